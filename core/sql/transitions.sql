-- Written by `make sql` from core/duly_core/tasks/transitions.sql. Edit that.

-- name: schedule
with asked as (
    select * from unnest(%(task_ids)b::uuid[], %(lambdas)b::text[], %(collections)b::text[], %(priorities)b::int2[], %(encodings)b::int2[], %(payloads)b::bytea[], %(scheduled_at)b::timestamptz[], %(delays)b::interval[], %(expires_at)b::timestamptz[], %(keys)b::text[], %(sessions)b::text[], %(session_orders)b::int2[], %(session_policies)b::int2[], %(resources)b::text[], %(scheduled_by)b::text[], %(fair_keys)b::text[], %(attachments)b::text[], %(unique_keys)b::text[], %(attribute_sets)b::text[]) as asked (task_id, lambda, collection, priority, encoding, payload, scheduled_at, delay, expires_at, key, session, session_order, session_policy, resources, scheduled_by, fair_key, attachments, unique_key, attributes)
), known as (
    select asked.*, duly_now() as asked_at
    from asked join lambda on lambda.name = any (array[asked.lambda])
), keyed as (
    insert into idempotency_key (lambda, key, task_id, created_at)
    select lambda, key, task_id, asked_at from known where key is not null
    on conflict do nothing
    returning task_id
), entity as (
    insert into task (task_id, lambda, collection, priority, payload_encoding, payload, expires_at, session, session_order, session_policy, resources, scheduled_by, fair_key, attachments, unique_key, attributes, created_at, scheduled_at)
    select asked.task_id, asked.lambda, asked.collection, asked.priority, asked.encoding, asked.payload, asked.expires_at, left(asked.lambda, greatest(strpos(asked.lambda, '/') - 1, 0)) || '/' || asked.session, asked.session_order, asked.session_policy, asked.resources::jsonb, asked.scheduled_by, asked.fair_key, asked.attachments::jsonb, asked.unique_key, asked.attributes::jsonb, asked.asked_at, greatest(asked.asked_at, coalesce(asked.scheduled_at, asked.asked_at + asked.delay, asked.asked_at))
    from known as asked
    where asked.key is null or asked.task_id in (select task_id from keyed)
    on conflict (task_id) do nothing
    returning task_id, lambda, collection, priority, expires_at, resources, fair_key, created_at, scheduled_at
), assoc as (
    insert into task_assoc (task_id, lambda, collection, priority, expires_at, resources, fair_key, status, next_trigger_at, due_at)
    select task_id, lambda, collection, priority, expires_at, resources, fair_key, 'new', scheduled_at, scheduled_at from entity
)
select task_id, (extract(epoch from scheduled_at - created_at) * 1000000)::int8 as due_in_us, (
    select pg_notify(duly_channel('duly_due'), '0 ' || (select string_agg(distinct lambda, ',') from entity))
    where %(tell)b and exists (select from entity where scheduled_at <= created_at)
)
from entity;

-- name: schedule_plain
with clock as materialized (
    select duly_now() as now
    where not exists (
        select from unnest(%(names)b::text[]) as asked (name)
        where not exists (select from lambda where lambda.name = any (array[asked.name]))
    )
), asked as (
    select * from unnest(%(task_ids)b::uuid[], %(lambdas)b::text[], %(collections)b::text[], %(priorities)b::int2[], %(encodings)b::int2[], %(payloads)b::bytea[], %(scheduled_at)b::timestamptz[], %(delays)b::interval[], %(scheduled_by)b::text[], %(fair_keys)b::text[]) as asked (task_id, lambda, collection, priority, encoding, payload, scheduled_at, delay, scheduled_by, fair_key)
), entity as (
    insert into task (task_id, lambda, collection, priority, payload_encoding, payload, scheduled_by, fair_key, created_at, scheduled_at)
    select asked.task_id, asked.lambda, asked.collection, asked.priority, asked.encoding, asked.payload, asked.scheduled_by, asked.fair_key, clock.now, greatest(clock.now, coalesce(asked.scheduled_at, clock.now + asked.delay, clock.now))
    from clock cross join asked
    returning task_id, lambda, collection, priority, fair_key, created_at, scheduled_at
), assoc as (
    insert into task_assoc (task_id, lambda, collection, priority, fair_key, status, next_trigger_at, due_at)
    select task_id, lambda, collection, priority, fair_key, 'new', scheduled_at, scheduled_at from entity
)
select task_id, (extract(epoch from scheduled_at - created_at) * 1000000)::int8 as due_in_us, (
    select pg_notify(duly_channel('duly_due'), '0 ' || (select string_agg(distinct lambda, ',') from entity))
    where %(tell)b and exists (select from entity where scheduled_at <= created_at)
)
from entity;

-- name: schedule_one
with clock as materialized (
    select duly_now() as now
    where exists (select from lambda where lambda.name = %(lambda_name)b)
), asked as (
    select %(task_id)b::uuid as task_id, %(lambda_name)b::text as lambda, %(collection)b::text as collection, %(priority)b::int2 as priority, %(encoding)b::int2 as encoding, %(payload)b::bytea as payload, %(scheduled_at)b::timestamptz as scheduled_at, %(delay)b::interval as delay, %(scheduled_by)b::text as scheduled_by, %(fair_key)b::text as fair_key
), entity as (
    insert into task (task_id, lambda, collection, priority, payload_encoding, payload, scheduled_by, fair_key, created_at, scheduled_at)
    select asked.task_id, asked.lambda, asked.collection, asked.priority, asked.encoding, asked.payload, asked.scheduled_by, asked.fair_key, clock.now, greatest(clock.now, coalesce(asked.scheduled_at, clock.now + asked.delay, clock.now))
    from clock cross join asked
    returning task_id, lambda, collection, priority, fair_key, created_at, scheduled_at
), assoc as (
    insert into task_assoc (task_id, lambda, collection, priority, fair_key, status, next_trigger_at, due_at)
    select task_id, lambda, collection, priority, fair_key, 'new', scheduled_at, scheduled_at from entity
)
select task_id, (extract(epoch from scheduled_at - created_at) * 1000000)::int8 as due_in_us, (
    select pg_notify(duly_channel('duly_due'), '0 ' || (select string_agg(distinct lambda, ',') from entity))
    where %(tell)b and exists (select from entity where scheduled_at <= created_at)
)
from entity;

-- name: tick
with asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(tables)b::text[], %(instants)b::timestamptz[], %(due_at)b::timestamptz[], %(keys)b::text[]
    ) as asked (task_id, name, tick_at, due_at, key)
), known as (
    select asked.*, table_.lambda, table_.collection, table_.priority, table_.payload_encoding, table_.payload, table_.session, table_.session_order, table_.session_policy, table_.resources, table_.fair_key, table_.attributes, (select duly_now()) as asked_at
    from asked join time_table as table_ on table_.name = any (array[asked.name])
), keyed as (
    insert into idempotency_key (lambda, key, task_id, created_at)
    select lambda, key, task_id, asked_at from known
    on conflict do nothing
    returning task_id
), entity as (
    insert into task (task_id, lambda, collection, priority, payload_encoding, payload, expires_at, session, session_order, session_policy, resources, scheduled_by, fair_key, attachments, unique_key, attributes, created_at, scheduled_at, time_table)
    select asked.task_id as task_id, asked.lambda as lambda, asked.collection as collection, asked.priority as priority, asked.payload_encoding as payload_encoding, asked.payload as payload, null::timestamptz as expires_at, left(asked.lambda, greatest(strpos(asked.lambda, '/') - 1, 0)) || '/' || asked.session as session, asked.session_order as session_order, asked.session_policy as session_policy, asked.resources::jsonb as resources, null::text as scheduled_by, asked.fair_key as fair_key, null as attachments, null::text as unique_key, asked.attributes::jsonb as attributes, asked_at, tick_at, name
    from known as asked
    where (task_id in (select task_id from keyed)) is true
    returning task_id, lambda
), assoc as (
    insert into task_assoc (task_id, lambda, collection, priority, expires_at, resources, fair_key, status, next_trigger_at, due_at)
    select asked.task_id as task_id, asked.lambda as lambda, asked.collection as collection, asked.priority as priority, null::timestamptz as expires_at, asked.resources::jsonb as resources, asked.fair_key as fair_key, 'new', asked_at, due_at
    from known as asked
    where (task_id in (select task_id from keyed)) is true
)
select task_id, lambda from entity;

-- name: tick_in_sessions
with asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(tables)b::text[], %(instants)b::timestamptz[], %(due_at)b::timestamptz[], %(keys)b::text[]
    ) with ordinality as asked (task_id, name, tick_at, due_at, key, place)
), known as (
    select asked.*, table_.lambda, table_.collection, table_.priority, table_.payload_encoding, table_.payload, table_.session, table_.session_order, table_.session_policy, table_.resources, table_.fair_key, table_.attributes, (select duly_now()) as asked_at
    from asked join time_table as table_ on table_.name = any (array[asked.name])
), keyed as (
    insert into idempotency_key (lambda, key, task_id, created_at)
    select lambda, key, task_id, asked_at from known order by lambda collate "C", key collate "C"
    on conflict do nothing
    returning task_id
), entity as (
    insert into task (task_id, lambda, collection, priority, payload_encoding, payload, expires_at, session, session_order, session_policy, resources, scheduled_by, fair_key, attachments, unique_key, attributes, created_at, scheduled_at, time_table)
    select asked.task_id as task_id, asked.lambda as lambda, asked.collection as collection, asked.priority as priority, asked.payload_encoding as payload_encoding, asked.payload as payload, null::timestamptz as expires_at, left(asked.lambda, greatest(strpos(asked.lambda, '/') - 1, 0)) || '/' || asked.session as session, asked.session_order as session_order, asked.session_policy as session_policy, asked.resources::jsonb as resources, null::text as scheduled_by, asked.fair_key as fair_key, null as attachments, null::text as unique_key, asked.attributes::jsonb as attributes, asked_at, tick_at, name
    from known as asked
    where (task_id in (select task_id from keyed)) is true
), ticked as (
    select asked.task_id as task_id, asked.lambda as lambda, asked.collection as collection, asked.priority as priority, null::timestamptz as expires_at, asked.resources::jsonb as resources, asked.fair_key as fair_key, asked.due_at, 0 as fence, null::uuid as last_token, left(asked.lambda, greatest(strpos(asked.lambda, '/') - 1, 0)) || '/' || asked.session as session,
        asked.session_order, asked.session_policy
    from known as asked
    where (task_id in (select task_id from keyed)) is true
    order by asked.place
), numbered as (
    select asked.*, row_number() over () as number,
        case when session_order = 2 then due_at else '-infinity' end as rank
    from ticked as asked
), line as (
    insert into session (key, head, length, last_seq)
    select session, (array_agg(task_id order by rank, number))[1], count(*), max(number)
    from numbered
    group by session
    order by session collate "C"
    on conflict (key) do update
    set length = session.length + excluded.length, last_seq = session.last_seq + excluded.last_seq,
        head = case
            when session.blocked_by in (select task_id from numbered) then session.blocked_by
            when session.length = 0 and session.blocked_by is null then excluded.head
            else session.head
        end,
        blocked_by = case when session.blocked_by not in (select task_id from numbered) then session.blocked_by end,
        blocked_at = case when session.blocked_by not in (select task_id from numbered) then session.blocked_at end
    returning key, head, last_seq
), lines as materialized (
    -- one object, for a join of two CTEs would compare each row with each
    select jsonb_object_agg(key, jsonb_build_array(head, last_seq)) as by_key from line
), placed as (
    select *, (line -> 0) #>> '{}' as session_head, (line -> 1)::int8 - max(number) over (partition by session) + number as seq
    from (select *, (select by_key from lines) -> session as line from numbered) as each
), joined as (
    insert into task_assoc (
        task_id, lambda, collection, priority, expires_at, resources, fair_key, status, next_trigger_at, due_at, fence, last_token, session, session_rank, session_seq,
        session_policy
    )
    select task_id, lambda, collection, priority, expires_at, resources, fair_key,
        (case when task_id::text = session_head then 'new' else 'waiting' end)::task_status,
        case when task_id::text = session_head then due_at else coalesce(expires_at, 'infinity') end,
        due_at, fence, last_token, session, rank, seq, session_policy
    from placed
    returning task_id, status, due_at, session, session_rank
), ordered as (
    select duly_put_earlier_first(array_agg(distinct session)) as done
    from joined
    where session_rank > '-infinity'
)
select known.task_id, known.lambda
from known, (select count(done) from ordered) as once
where (known.task_id in (select task_id from joined)) is true;

-- name: schedule_in_sessions
with asked as (
    select * from unnest(%(task_ids)b::uuid[], %(lambdas)b::text[], %(collections)b::text[], %(priorities)b::int2[], %(encodings)b::int2[], %(payloads)b::bytea[], %(scheduled_at)b::timestamptz[], %(delays)b::interval[], %(expires_at)b::timestamptz[], %(keys)b::text[], %(sessions)b::text[], %(session_orders)b::int2[], %(session_policies)b::int2[], %(resources)b::text[], %(scheduled_by)b::text[], %(fair_keys)b::text[], %(attachments)b::text[], %(unique_keys)b::text[], %(attribute_sets)b::text[]) with ordinality as asked (task_id, lambda, collection, priority, encoding, payload, scheduled_at, delay, expires_at, key, session, session_order, session_policy, resources, scheduled_by, fair_key, attachments, unique_key, attributes, place)
), known as (
    select asked.*, duly_now() as asked_at
    from asked join lambda on lambda.name = any (array[asked.lambda])
), keyed as (
    insert into idempotency_key (lambda, key, task_id, created_at)
    select lambda, key, task_id, asked_at from known where key is not null order by lambda collate "C", key collate "C"
    on conflict do nothing
    returning task_id
), entity as (
    insert into task (task_id, lambda, collection, priority, payload_encoding, payload, expires_at, session, session_order, session_policy, resources, scheduled_by, fair_key, attachments, unique_key, attributes, created_at, scheduled_at)
    select asked.task_id, asked.lambda, asked.collection, asked.priority, asked.encoding, asked.payload, asked.expires_at, left(asked.lambda, greatest(strpos(asked.lambda, '/') - 1, 0)) || '/' || asked.session, asked.session_order, asked.session_policy, asked.resources::jsonb, asked.scheduled_by, asked.fair_key, asked.attachments::jsonb, asked.unique_key, asked.attributes::jsonb, asked.asked_at, greatest(asked.asked_at, coalesce(asked.scheduled_at, asked.asked_at + asked.delay, asked.asked_at))
    from known as asked
    where asked.key is null or asked.task_id in (select task_id from keyed)
    order by asked.place
    on conflict (task_id) do nothing
    returning task_id, lambda, collection, priority, expires_at, resources, fair_key, scheduled_at as due_at, 0 as fence, null::uuid as last_token, session, session_order,
        session_policy
), numbered as (
    select asked.*, row_number() over () as number,
        case when session_order = 2 then due_at else '-infinity' end as rank
    from entity as asked
), line as (
    insert into session (key, head, length, last_seq)
    select session, (array_agg(task_id order by rank, number))[1], count(*), max(number)
    from numbered
    group by session
    order by session collate "C"
    on conflict (key) do update
    set length = session.length + excluded.length, last_seq = session.last_seq + excluded.last_seq,
        head = case
            when session.blocked_by in (select task_id from numbered) then session.blocked_by
            when session.length = 0 and session.blocked_by is null then excluded.head
            else session.head
        end,
        blocked_by = case when session.blocked_by not in (select task_id from numbered) then session.blocked_by end,
        blocked_at = case when session.blocked_by not in (select task_id from numbered) then session.blocked_at end
    returning key, head, last_seq
), lines as materialized (
    -- one object, for a join of two CTEs would compare each row with each
    select jsonb_object_agg(key, jsonb_build_array(head, last_seq)) as by_key from line
), placed as (
    select *, (line -> 0) #>> '{}' as session_head, (line -> 1)::int8 - max(number) over (partition by session) + number as seq
    from (select *, (select by_key from lines) -> session as line from numbered) as each
), joined as (
    insert into task_assoc (
        task_id, lambda, collection, priority, expires_at, resources, fair_key, status, next_trigger_at, due_at, fence, last_token, session, session_rank, session_seq,
        session_policy
    )
    select task_id, lambda, collection, priority, expires_at, resources, fair_key,
        (case when task_id::text = session_head then 'new' else 'waiting' end)::task_status,
        case when task_id::text = session_head then due_at else coalesce(expires_at, 'infinity') end,
        due_at, fence, last_token, session, rank, seq, session_policy
    from placed
    returning task_id, status, due_at, session, session_rank
), ordered as (
    select duly_put_earlier_first(array_agg(distinct session)) as done
    from joined
    where session_rank > '-infinity'
)
select joined.task_id,
    case when joined.status = 'new' or joined.session_rank > '-infinity'
        then greatest(0, (extract(epoch from joined.due_at - (select duly_now())) * 1000000)::int8) end as due_in_us
from joined, (select count(done) from ordered) as once;

-- name: schedule_graph
with asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(lambdas)b::text[], %(collections)b::text[], %(priorities)b::int2[], %(encodings)b::int2[], %(payloads)b::bytea[], %(scheduled_at)b::timestamptz[], %(delays)b::interval[], %(expires_at)b::timestamptz[], %(keys)b::text[], %(sessions)b::text[], %(session_orders)b::int2[], %(session_policies)b::int2[], %(resources)b::text[], %(scheduled_by)b::text[], %(fair_keys)b::text[], %(attachments)b::text[], %(unique_keys)b::text[], %(attribute_sets)b::text[],
        %(max_runtimes)b::interval[], %(labels)b::text[], %(waits_for)b::int4[], %(first_edges)b::int4[],
        %(any_of)b::bool[], %(ignore_failure)b::bool[], %(timeouts_final)b::bool[], %(handled)b::int2[]
    ) with ordinality as asked (
        task_id, lambda, collection, priority, encoding, payload, scheduled_at, delay, expires_at, key, session, session_order, session_policy, resources, scheduled_by, fair_key, attachments, unique_key, attributes,
        max_runtime, label, waits_for, first_edge, any_of, ignore_failure, timeout_is_final, handled, place
    )
), made as (
    insert into graph (graph_id, name, digest, definition, version, fail_fast, created_at, total, open, scheduled_by)
    select %(graph_id)b::uuid, %(name)b::text, %(digest)b::bytea, %(definition)b::text, %(version)b::int4, %(fail_fast)b::bool,
        duly_now(), cardinality(%(task_ids)b::uuid[]), cardinality(%(task_ids)b::uuid[]), (%(scheduled_by)b::text[])[1]
    on conflict do nothing
    returning graph_id, created_at
), known as (
    select asked.*, made.graph_id, made.created_at
    from made cross join asked join lambda on lambda.name = any (array[asked.lambda])
), entity as (
    insert into task (task_id, lambda, collection, priority, payload_encoding, payload, expires_at, session, session_order, session_policy, resources, scheduled_by, fair_key, attachments, unique_key, attributes, created_at, scheduled_at, graph, max_runtime)
    select asked.task_id, asked.lambda, asked.collection, asked.priority, asked.encoding, asked.payload, asked.expires_at, left(asked.lambda, greatest(strpos(asked.lambda, '/') - 1, 0)) || '/' || asked.session, asked.session_order, asked.session_policy, asked.resources::jsonb, asked.scheduled_by, asked.fair_key, asked.attachments::jsonb, asked.unique_key, asked.attributes::jsonb, asked.created_at, greatest(asked.created_at, coalesce(asked.scheduled_at, asked.created_at + asked.delay, asked.created_at)), asked.graph_id, asked.max_runtime
    from known as asked
    order by asked.task_id
    on conflict (task_id) do nothing
    returning task_id, scheduled_at - created_at as ahead
), assoc as (
    insert into task_assoc (
        task_id, lambda, collection, priority, expires_at, resources, fair_key, status, next_trigger_at, due_at, graph, open_edges, any_of, timeout_is_final, parked_on, parked_key, session_rank, session_policy
    )
    select asked.task_id, asked.lambda, asked.collection, asked.priority, asked.expires_at, asked.resources::jsonb, asked.fair_key,
        case when asked.waits_for = 0 and asked.session is null then 'new' else 'waiting' end::task_status,
        case
            when asked.waits_for > 0 then coalesce(asked.expires_at, 'infinity')
            when asked.session is null then greatest(asked.created_at, coalesce(asked.scheduled_at, asked.created_at + asked.delay, asked.created_at))
            else asked.created_at
        end,
        greatest(asked.created_at, coalesce(asked.scheduled_at, asked.created_at + asked.delay, asked.created_at)), asked.graph_id, asked.waits_for, asked.any_of, nullif(asked.timeout_is_final, false),
        case when asked.waits_for = 0 and asked.session is not null then 'session:' end,
        case when asked.session is not null then left(asked.lambda, greatest(strpos(asked.lambda, '/') - 1, 0)) || '/' || asked.session end,
        case when asked.session is not null then case when asked.session_order = 2 then 'infinity' else '-infinity' end::timestamptz end,
        case when asked.session is not null then asked.session_policy end
    from known as asked
    where (select count(*) from entity) = (select count(*) from known)
    order by asked.task_id
), node as (
    insert into graph_node (
        graph_id, label, task_id, lambda, place, any_of, ignore_failure, timeout_is_final, handled, waits_for, conditions
    )
    select graph_id, label, task_id, lambda, place - 1, any_of, ignore_failure, timeout_is_final, handled, (%(edges_from)b::uuid[])[first_edge : first_edge + waits_for - 1],
    (%(conditions)b::int2[])[first_edge : first_edge + waits_for - 1]
    from known
    order by label
), edge as (
    insert into graph_edge (from_task, to_task, fires_on)
    select edge.* from made cross join unnest(
        %(edges_from)b::uuid[], %(edges_to)b::uuid[], %(fires_on)b::int2[]
    ) as edge (from_task, to_task, fires_on)
)
select entity.task_id, (extract(epoch from entity.ahead) * 1000000)::int8 as due_in_us, graphs.made
from entity full join (select count(*) as made from made) as graphs on false;

-- name: grow_graph
with asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(lambdas)b::text[], %(collections)b::text[], %(priorities)b::int2[], %(encodings)b::int2[], %(payloads)b::bytea[], %(scheduled_at)b::timestamptz[], %(delays)b::interval[], %(expires_at)b::timestamptz[], %(keys)b::text[], %(sessions)b::text[], %(session_orders)b::int2[], %(session_policies)b::int2[], %(resources)b::text[], %(scheduled_by)b::text[], %(fair_keys)b::text[], %(attachments)b::text[], %(unique_keys)b::text[], %(attribute_sets)b::text[],
        %(max_runtimes)b::interval[], %(labels)b::text[], %(open_edges)b::int4[], %(waits_for)b::int4[],
        %(first_edges)b::int4[], %(any_of)b::bool[], %(ignore_failure)b::bool[], %(timeouts_final)b::bool[],
        %(handled)b::int2[], %(runs)b::bool[], %(skipped)b::bool[]
    ) with ordinality as asked (
        task_id, lambda, collection, priority, encoding, payload, scheduled_at, delay, expires_at, key, session, session_order, session_policy, resources, scheduled_by, fair_key, attachments, unique_key, attributes,
        max_runtime, label, open_edges, waits_for, first_edge, any_of, ignore_failure, timeout_is_final, handled, runs, skipped,
        place
    )
), grown as (
    update graph
    set total = total + cardinality(%(task_ids)b::uuid[]), open = open + cardinality(%(task_ids)b::uuid[]),
        unhandled = unhandled - %(now_handled)b::int4, finished_at = null
    where graph_id = any (array[%(graph_id)b::uuid])
    returning graph_id, total - cardinality(%(task_ids)b::uuid[]) as before, duly_now() as now
), untold as (
    -- the end of its last node, which this transaction has written, was to tell that the graph finished (duly_note_graph says as of when)
    delete from task_event as event
    where event.xid >= pg_current_xact_id() and event.kind = 3 and event.graph = %(graph_id)b::uuid
), known as (
    select asked.*, grown.graph_id, grown.before, grown.now, greatest(grown.now, coalesce(asked.scheduled_at, grown.now + asked.delay, grown.now)) as due_at
    from grown cross join asked join lambda on lambda.name = any (array[asked.lambda])
), entity as (
    insert into task (task_id, lambda, collection, priority, payload_encoding, payload, expires_at, session, session_order, session_policy, resources, scheduled_by, fair_key, attachments, unique_key, attributes, created_at, scheduled_at, graph, max_runtime)
    select asked.task_id, asked.lambda, asked.collection, asked.priority, asked.encoding, asked.payload, asked.expires_at, left(asked.lambda, greatest(strpos(asked.lambda, '/') - 1, 0)) || '/' || asked.session, asked.session_order, asked.session_policy, asked.resources::jsonb, asked.scheduled_by, asked.fair_key, asked.attachments::jsonb, asked.unique_key, asked.attributes::jsonb, asked.now, asked.due_at, asked.graph_id, asked.max_runtime
    from known as asked
    order by asked.task_id
    on conflict (task_id) do nothing
    returning task_id, scheduled_at - created_at as ahead
), assoc as (
    insert into task_assoc (
        task_id, lambda, collection, priority, expires_at, resources, fair_key, status, next_trigger_at, due_at, graph, open_edges, any_of, timeout_is_final, doom,
        parked_on, parked_key, session_rank, session_policy
    )
    select asked.task_id, asked.lambda, asked.collection, asked.priority, asked.expires_at, asked.resources::jsonb, asked.fair_key,
        case when asked.runs and asked.session is null then 'new' else 'waiting' end::task_status,
        case
            when asked.skipped or asked.runs and asked.session is not null then asked.now
            when asked.runs then asked.due_at
            else coalesce(asked.expires_at, 'infinity')
        end,
        asked.due_at, asked.graph_id, asked.open_edges, asked.any_of, nullif(asked.timeout_is_final, false), case when asked.skipped then 12 end,
        case when asked.runs and asked.session is not null then 'session:' end,
        case when asked.session is not null then left(asked.lambda, greatest(strpos(asked.lambda, '/') - 1, 0)) || '/' || asked.session end,
        case when asked.session is not null then case when asked.session_order = 2 then 'infinity' else '-infinity' end::timestamptz end,
        case when asked.session is not null then asked.session_policy end
    from known as asked
    where (select count(*) from entity) = (select count(*) from known)
    order by asked.task_id
), node as (
    insert into graph_node (
        graph_id, label, task_id, lambda, place, any_of, ignore_failure, timeout_is_final, handled, waits_for, conditions
    )
    select graph_id, label, task_id, lambda, before + place - 1, any_of, ignore_failure, timeout_is_final, handled, (%(edges_from)b::uuid[])[first_edge : first_edge + waits_for - 1],
    (%(conditions)b::int2[])[first_edge : first_edge + waits_for - 1]
    from known
    order by label
), waited_for as (
    update graph_node as node
    set handled = node.handled | asked.ends
    from unnest(%(handled_labels)b::text[], %(handled_ends)b::int2[]) as asked (label, ends)
    where node.graph_id = %(graph_id)b::uuid and node.label = any (array[asked.label])
        and node.handled | asked.ends <> node.handled
), edge as (
    insert into graph_edge (from_task, to_task, fires_on)
    select edge.*
    from unnest(%(edges_from)b::uuid[], %(edges_to)b::uuid[], %(fires_on)b::int2[]) as edge (from_task, to_task, fires_on)
)
select entity.task_id, (extract(epoch from entity.ahead) * 1000000)::int8 as due_in_us from entity;

-- name: enter_nodes
select lambda, due_in from duly_enter_nodes(%(limit)b::int4);

-- name: enqueue
with clock as materialized (
    select duly_now() as now
), quotas as materialized (
    select jsonb_object_agg(name, needs) as by_name
    from (
        select name, jsonb_build_array(jsonb_build_object('name', name, 'key', '', 'weight', 1)) as needs
        from resource
        where name like 'lambda:%%' or name like 'namespace:%%' or name like 'domain:%%'
        union all
        select 'needs:' || name, needs::jsonb from lambda where needs is not null
    ) as known
), queue as (
    select *, 0 as skip, case
    when (select by_name from quotas) is not null then nullif(
        coalesce((select by_name from quotas) -> concat('lambda:', split_part(queue.lambda, '@', 1)), '[]')
            || coalesce((select by_name from quotas) -> concat(
                'namespace:', case when strpos(queue.lambda, '/') > 0 then split_part(queue.lambda, '/', 1) else 'default' end
            ), '[]')
            || coalesce((select by_name from quotas) -> concat('domain:', split_part(split_part(queue.lambda, ':', 1), '~', 2)), '[]')
            || coalesce((select by_name from quotas) -> concat('needs:', split_part(queue.lambda, '@', 1)), '[]'),
        '[]'
    )
end as quota
    from unnest(%(lambdas)b::text[], %(priorities)b::int2[], %(room)b::int4[]) as queue (lambda, priority, size)
), due as (
    select picked.task_id, case
    when queue.quota is null or picked.resources @> queue.quota then picked.resources
    when picked.resources is null then queue.quota
    else (
        -- both may name one: then the larger weight counts
        select jsonb_agg(jsonb_build_object('name', merged.name, 'key', merged.key, 'weight', merged.weight))
        from (
            select need.name, need.key, max(need.weight) as weight
            from jsonb_to_recordset(picked.resources || queue.quota) as need (name text, key text, weight int4)
            group by need.name, need.key
        ) as merged
    )
end as resources
    from queue cross join lateral (select assoc.task_id, assoc.resources
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority
    and assoc.status in ('new', 'retriable_failure')
    and assoc.next_trigger_at <= (select now from clock)
    and (assoc.expires_at is null or assoc.expires_at > (select now from clock))
order by assoc.next_trigger_at
limit queue.size offset queue.skip
for update skip locked) as picked
), parked as materialized (
    select parked.task_id, parked.taken
    from (
        select array_agg(task_id) as task_ids, array_agg(resources) as needs
        from (
            -- two picks of a queue find one task twice if it is given back between them
            select distinct on (task_id) task_id, resources from due where resources is not null
        ) as once
    ) as asked
    cross join lateral duly_admit(asked.task_ids, asked.needs) as parked (task_id, taken)
)
update task_assoc as assoc
set status = 'enqueued', next_trigger_at = (select duly_now()) + %(enqueue_timeout)b, start_at = null,
    enqueued_at = (select duly_now()), resources = due.resources, taken = case
    when due.resources is not null
        then coalesce((select parked.taken from parked where parked.task_id = due.task_id), due.resources)
end
from due
where assoc.task_id = any (array[due.task_id]) and assoc.status::text in ('new', 'retriable_failure')
    and due.task_id not in (select task_id from parked where taken is null)
returning assoc.task_id, assoc.lambda, assoc.priority;

-- name: claim_work
with clock as materialized (
    select duly_now() as now
), quotas as materialized (
    select jsonb_object_agg(name, needs) as by_name
    from (
        select name, jsonb_build_array(jsonb_build_object('name', name, 'key', '', 'weight', 1)) as needs
        from resource
        where name like 'lambda:%%' or name like 'namespace:%%' or name like 'domain:%%'
        union all
        select 'needs:' || name, needs::jsonb from lambda where needs is not null
    ) as known
), queue as (
    select *, case
    when (select by_name from quotas) is not null then nullif(
        coalesce((select by_name from quotas) -> concat('lambda:', split_part(queue.lambda, '@', 1)), '[]')
            || coalesce((select by_name from quotas) -> concat(
                'namespace:', case when strpos(queue.lambda, '/') > 0 then split_part(queue.lambda, '/', 1) else 'default' end
            ), '[]')
            || coalesce((select by_name from quotas) -> concat('domain:', split_part(split_part(queue.lambda, ':', 1), '~', 2)), '[]')
            || coalesce((select by_name from quotas) -> concat('needs:', split_part(queue.lambda, '@', 1)), '[]'),
        '[]'
    )
end as quota
    from unnest(%(lambdas)b::text[], %(priorities)b::int2[], %(sizes)b::int4[], %(skips)b::int4[])
        as queue (lambda, priority, size, skip)
), due as (
    select picked.task_id, case
    when queue.quota is null or picked.resources @> queue.quota then picked.resources
    when picked.resources is null then queue.quota
    else (
        -- both may name one: then the larger weight counts
        select jsonb_agg(jsonb_build_object('name', merged.name, 'key', merged.key, 'weight', merged.weight))
        from (
            select need.name, need.key, max(need.weight) as weight
            from jsonb_to_recordset(picked.resources || queue.quota) as need (name text, key text, weight int4)
            group by need.name, need.key
        ) as merged
    )
end as resources
    from queue cross join lateral (select assoc.task_id, assoc.resources
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority
    and assoc.status in ('new', 'retriable_failure')
    and assoc.next_trigger_at <= (select now from clock)
    and (assoc.expires_at is null or assoc.expires_at > (select now from clock))
order by assoc.next_trigger_at
limit queue.size offset queue.skip
for update skip locked) as picked
    limit %(most)b
), parked as materialized (
    select parked.task_id, parked.taken
    from (
        select array_agg(task_id) as task_ids, array_agg(resources) as needs
        from (
            -- two picks of a queue find one task twice if it is given back between them
            select distinct on (task_id) task_id, resources from due where resources is not null
        ) as once
    ) as asked
    cross join lateral duly_admit(asked.task_ids, asked.needs) as parked (task_id, taken)
), placed as materialized (
    select task_id, resources, (row_number() over () - 1)::int4 as place
    from due
    where task_id not in (select task_id from parked where taken is null)
), claimed as (
    update task_assoc as assoc
    set status = 'claimed', fence = assoc.fence + 1, next_trigger_at = (select duly_now()) + %(claim_timeout)b,
        start_at = null, resources = placed.resources, taken = case
    when placed.resources is not null
        then coalesce((select parked.taken from parked where parked.task_id = placed.task_id), placed.resources)
end, claimed_at = (select duly_now()), holder = (%(holders)b::text[])[1 + placed.place %% %(callers)b::int4],
        token = encode((%(prefixes)b::bytea[])[1 + placed.place %% %(callers)b::int4]
            || int2send((placed.place / %(callers)b::int4)::int2), 'hex')::uuid
    from placed
    -- all are picked before the first is claimed: a later pick of a queue passes over those of an earlier one, and it would
    -- not see those that are claimed
    where (select count(*) from placed) > 0
        and assoc.task_id = any (array[placed.task_id]) and assoc.status::text in ('new', 'retriable_failure')
    returning assoc.task_id, assoc.token, assoc.lambda, assoc.priority, assoc.fence, assoc.failures, assoc.crashes,
    assoc.worker_crashes, assoc.due_at, assoc.edits, assoc.events
)
select answered.*, later.queue_lambda, later.queue_priority, later.due_in
from (select claimed.task_id, claimed.token, claimed.lambda as lambda_name, claimed.priority, claimed.fence,
    claimed.failures, claimed.crashes, (extract(epoch from claimed.due_at) * 1000000)::int8 as due_at_us,
    entity.payload, entity.payload_encoding::int4 as encoding, coalesce(entity.max_runtime, coalesce(lambda.max_runtime, interval '0 days 3600 seconds')) as max_runtime,
    case when entity.time_table is not null then (extract(epoch from entity.scheduled_at) * 1000000)::int8 end as tick_at_us,
    entity.graph as graph_id,
    entity.checkpoint,
    case when claimed.events is not null then (
        select max(case event ->> 'kind'
            when 'put_off' then event ->> 'next'
            when 'unparked' then event ->> 'at'
            when 'ungated' then event ->> 'at'
            when 'rate_lifted' then event ->> 'at'
        end::int8)
        from jsonb_array_elements(claimed.events) as event
    ) end as startable_at_us,
    claimed.crashes = 1 and claimed.worker_crashes = 1 as crashed_with_worker,
    entity.attachments, entity.received,
    entity.edits + entity.checkpoint_count <> claimed.edits as is_stale
from claimed
left join lateral (
    select task.priority, task.payload, task.payload_encoding, task.time_table, task.scheduled_at, task.graph,
        task.max_runtime, task.checkpoint, task.attachments, task.received, task.checkpoint_count, task.edits
    from task
    where task.task_id = claimed.task_id and task.lambda = claimed.lambda 
    limit 1
) as entity on true
left join lambda on lambda.name = any (array[claimed.lambda])
where coalesce(entity.priority, 0) > 0) as answered
full join (
    select queue.lambda as queue_lambda, queue.priority as queue_priority, (
    select assoc.next_trigger_at
    from task_assoc as assoc
    where assoc.lambda = queue.lambda and assoc.priority = queue.priority
        and assoc.status in ('new', 'retriable_failure')
        and assoc.next_trigger_at > (select now from clock)
        and assoc.next_trigger_at <= (select now from clock) + %(within)b::interval
        and (assoc.expires_at is null or assoc.expires_at > (select now from clock))
    order by assoc.next_trigger_at
    limit 1
) - (select duly_now()) as due_in
    from queue
    where queue.skip = 0 and (select count(*) from due) < %(most)b and not exists (select from parked where taken is null)
) as later on false;

-- name: enqueue_again
with room as (
    select * from unnest(%(lambdas)b::text[], %(priorities)b::int2[], %(room)b::int4[]) as room (lambda, priority, size)
), silent as (
    select picked.task_id,
        row_number() over (partition by picked.lambda, picked.priority order by picked.next_trigger_at)
            <= coalesce(room.size, 0) as send
    from (
        select task_id, lambda, priority, next_trigger_at
        from task_assoc
        where status = 'enqueued' and next_trigger_at <= (select duly_now())
            and (expires_at is null or expires_at > (select duly_now()))
        order by next_trigger_at
        limit %(limit)b
        for update skip locked
    ) as picked left join room using (lambda, priority)
)
update task_assoc as assoc
set next_trigger_at = (select duly_now()) + %(enqueue_timeout)b,
    events = case
        when silent.send
            then duly_note(assoc.events, 'sent_again', (select duly_now()), (select duly_now()) + %(enqueue_timeout)b)
        else assoc.events
    end
from silent
where assoc.task_id = any (array[silent.task_id]) and assoc.status::text = 'enqueued'
    and assoc.next_trigger_at <= (select duly_now())
returning assoc.task_id, assoc.lambda, assoc.priority, silent.send;

-- name: dequeue_gated
with sent as (
    select assoc.task_id, assoc.taken
    from unnest(%(task_ids)b::uuid[]) as asked (task_id)
    join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.status::text = 'enqueued' and exists (select from (select (%(gate_ids)b::int8[])[part.first:part.last] as ids,
    (%(gate_priorities)b::int2[])[part.first:part.last] as priorities,
    (%(gate_collections)b::text[])[part.first:part.last] as collections,
    (%(gate_sessions)b::text[])[part.first:part.last] as sessions, coalesce(part.probes_until, 'infinity') as probes_until,
    assoc.priority
from (
    select (%(set_firsts)b::int4[])[number] as first, (%(set_lasts)b::int4[])[number] as last,
        (%(set_probes_until)b::timestamptz[])[number] as probes_until
    from (
        select ((select jsonb_object(%(gated_lambdas)b::text[], %(gate_sets)b::text[])) ->> assoc.lambda)::int4 as number
    ) as gate_set
    offset 0
) as part
offset 0) as gates where exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = assoc.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(assoc.session, strpos(assoc.session, '/') + 1))
        and gate.gate_id <> all (coalesce(assoc.passed_gates, array[]::int8[]))
))
    for update of assoc
), back as (
    update task_assoc as assoc
    set status = 'new', next_trigger_at = (select duly_now()), taken = null,
        events = duly_note(assoc.events, 'dequeued_gated', (select duly_now()), (select duly_now()))
    from sent
    where assoc.task_id = any (array[sent.task_id]) and assoc.status::text = 'enqueued'
    returning assoc.task_id, assoc.resources, sent.taken
), freed as (
    select freed.lambda, freed.due_in
    from (
        select array_agg(resources) as resources, array_agg(taken) as taken from back where resources is not null
    ) as stopped
    cross join lateral duly_free(stopped.resources, stopped.taken) as freed
)
select back.task_id, freed.lambda from back full join freed on false;

-- name: put_back
with sent as (
    select assoc.task_id, assoc.taken, (select duly_now()) + random() * %(delay)b::interval as next_at
    from unnest(%(task_ids)b::uuid[]) as asked (task_id)
    join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.status::text = 'enqueued'
    for update of assoc
), back as (
    update task_assoc as assoc
    set status = 'new', next_trigger_at = sent.next_at, taken = null,
        events = duly_note(assoc.events, 'put_back', (select duly_now()), sent.next_at)
    from sent
    where assoc.task_id = any (array[sent.task_id]) and assoc.status::text = 'enqueued'
    returning assoc.task_id, assoc.resources, sent.taken
), freed as (
    select freed.lambda, freed.due_in
    from (
        select array_agg(resources) as resources, array_agg(taken) as taken from back where resources is not null
    ) as stopped
    cross join lateral duly_free(stopped.resources, stopped.taken) as freed
)
select back.task_id, freed.lambda from back full join freed on false;

-- name: dequeue
with waiting as (
    select task_id, taken
    from task_assoc
    where status = 'enqueued' and next_trigger_at <= (select duly_now())
    order by next_trigger_at
    limit %(limit)b
    for update skip locked
), back as (
    update task_assoc as assoc
    set status = 'new', next_trigger_at = (select duly_now()), taken = null,
        events = duly_note(assoc.events, 'dequeued', (select duly_now()), (select duly_now()))
    from waiting
    where assoc.task_id = any (array[waiting.task_id]) and assoc.status::text = 'enqueued'
    returning assoc.task_id, assoc.resources, waiting.taken
), freed as (
    select freed.lambda, freed.due_in
    from (
        select array_agg(resources) as resources, array_agg(taken) as taken from back where resources is not null
    ) as stopped
    cross join lateral duly_free(stopped.resources, stopped.taken) as freed
)
select back.task_id, freed.lambda from back full join freed on false;

-- name: reclaim
with silent as (
    select assoc.task_id, assoc.holder, assoc.enqueued_at, assoc.claimed_at, 'silent' as outcome, assoc.failures + assoc.crashes + 1 as attempt, null::timestamptz as started_at,
    4 as attempt_kind, 'its holder fell silent: ' || assoc.holder as attempt_message,
    null::text as traceback, duly_recent(assoc.crashed_at, (select duly_now()) - coalesce(lambda.crash_window, interval '3 days 0 seconds')) as crashed_at, assoc.taken
    from task_assoc as assoc left join lambda on lambda.name = any (array[assoc.lambda])
    where assoc.status in ('claimed', 'processing') and assoc.next_trigger_at <= (select least(%(as_of)b::timestamptz, duly_now()))
        and not assoc.cancel_requested and not (
    assoc.crashes + 1 >= coalesce(lambda.max_crashes, 3)
    and cardinality(duly_recent(assoc.crashed_at, (select duly_now()) - coalesce(lambda.crash_window, interval '3 days 0 seconds'))) + 1 >= coalesce(lambda.max_crashes, 3)
)
    order by assoc.next_trigger_at
    limit %(limit)b
    for update of assoc skip locked
), reclaimed as (
    update task_assoc as assoc
    set status = %(status)b::text::task_status, next_trigger_at = (select duly_now()) + %(trigger_in)b::interval,
        crashes = assoc.crashes + 1, worker_crashes = assoc.worker_crashes + 1,
        crashed_at = silent.crashed_at || (select duly_now()), last_token = null, token = null, holder = null, progress = null, progress_note = null,
    overdue_since_at = null, overdue_neighbours = null,
        taken = case when %(status)b::text = 'enqueued' then assoc.taken end,
        enqueued_at = case when %(status)b::text = 'enqueued' then (select duly_now()) else assoc.enqueued_at end
    from silent
    where assoc.task_id = any (array[silent.task_id]) and assoc.status::text in ('claimed', 'processing')
        and assoc.next_trigger_at <= (select least(%(as_of)b::timestamptz, duly_now()))
    returning silent.*, assoc.lambda, assoc.priority, assoc.fence,
        -- one instant: the history tells by it that the reference was sent at once
        case when assoc.status = 'enqueued' then assoc.enqueued_at else (select duly_now()) end as ended_at,
        assoc.next_trigger_at as next_at,
        silent.attempt_kind as failure_kind, silent.attempt_message as failure_message,
        case when assoc.status::text <> 'enqueued' then assoc.resources end as resources
), recorded as (
    insert into attempt (
        task_id, fence, attempt, outcome, holder, enqueued_at, claimed_at, started_at, ended_at, failure_kind, failure_message,
        traceback, next_trigger_at
    )
    select task_id, fence, attempt, outcome::attempt_outcome, holder, enqueued_at, claimed_at, started_at, ended_at,
        attempt_kind, left(attempt_message, 1024), traceback, next_at
    from reclaimed
    where case when (select exists (select from watch)) then duly_note_run(
    task_id, outcome::text, fence, attempt_kind::int2, ended_at, next_at
) else true end
    on conflict do nothing
), noted as (
    insert into task (task_id, started_at, failure_kind, failure_message, failed_at)
    select task_id, started_at, failure_kind, failure_message, ended_at from reclaimed
    on conflict (task_id) do update
    set started_at = coalesce(excluded.started_at, task.started_at), failure_kind = excluded.failure_kind,
        failure_message = excluded.failure_message, failed_at = excluded.failed_at
    where task.status is null
), freed as (
    select freed.lambda, freed.due_in
    from (
        select array_agg(resources) as resources, array_agg(taken) as taken from reclaimed where resources is not null
    ) as stopped
    cross join lateral duly_free(stopped.resources, stopped.taken) as freed
)
select reclaimed.task_id, coalesce(reclaimed.lambda, freed.lambda) as lambda, reclaimed.priority
from reclaimed full join freed on false;

-- name: quarantine_silent
with silent as (
    select assoc.task_id, assoc.holder, assoc.enqueued_at, assoc.claimed_at, 'silent' as outcome, assoc.failures + assoc.crashes + 1 as attempt, null::timestamptz as started_at,
    4 as attempt_kind, 'its holder fell silent: ' || assoc.holder as attempt_message,
    null::text as traceback, coalesce(lambda.crash_window, interval '3 days 0 seconds') as crash_window,
        cardinality(duly_recent(assoc.crashed_at, (select duly_now()) - coalesce(lambda.crash_window, interval '3 days 0 seconds'))) + 1 as recent
    from task_assoc as assoc left join lambda on lambda.name = any (array[assoc.lambda])
    where assoc.status in ('claimed', 'processing') and assoc.next_trigger_at <= (select least(%(as_of)b::timestamptz, duly_now()))
        and not assoc.cancel_requested and (
    assoc.crashes + 1 >= coalesce(lambda.max_crashes, 3)
    and cardinality(duly_recent(assoc.crashed_at, (select duly_now()) - coalesce(lambda.crash_window, interval '3 days 0 seconds'))) + 1 >= coalesce(lambda.max_crashes, 3)
)
    order by assoc.next_trigger_at
    limit %(limit)b
    for update of assoc skip locked
), ended as (
    delete from task_assoc as assoc
    using silent
    where assoc.task_id = any (array[silent.task_id]) and assoc.status::text in ('claimed', 'processing')
        and assoc.next_trigger_at <= (select least(%(as_of)b::timestamptz, duly_now()))
    returning silent.*, null::timestamptz as next_at, 'fatal_failure'::task_status as status, (select duly_now()) as ended_at, assoc.fence, assoc.failures,
        assoc.crashes + 1 as crashes, null::uuid as last_token, assoc.lambda, assoc.session, assoc.session_policy, assoc.graph, assoc.doom, assoc.resources, assoc.taken, assoc.events, null::bytea as result, null::int2 as result_encoding, 5 as failure_kind,
        'crashed or fell silent ' || silent.recent || ' times within ' || silent.crash_window
            || '; the last: ' || silent.attempt_message as failure_message
), recorded as (
    insert into attempt (
        task_id, fence, attempt, outcome, holder, enqueued_at, claimed_at, started_at, ended_at, failure_kind, failure_message,
        traceback, next_trigger_at
    )
    select task_id, fence, attempt, outcome::attempt_outcome, holder, enqueued_at, claimed_at, started_at, ended_at,
        attempt_kind, left(attempt_message, 1024), traceback, next_at
    from ended
    where case when (select exists (select from watch)) then duly_note_run(
    task_id, outcome::text, fence, attempt_kind::int2, ended_at, next_at
) else true end
    on conflict do nothing
), entity as (
    insert into task (
        task_id, status, finished_at, started_at, fence, failures, crashes, last_token, result, result_encoding,
        failure_kind, failure_message, failed_at, events, enqueued_at, claimed_at, holder
    )
    select task_id, status::task_status, ended_at, started_at, fence, failures, crashes, last_token, result,
        result_encoding, failure_kind, failure_message, case when failure_kind is not null then ended_at end, events,
        case when status = 'success' then enqueued_at end, case when status = 'success' then claimed_at end,
        -- not of the first run: a plain task's row must not outgrow the free half of its page (decision 0043)
        case when status = 'success' and fence > 1 then holder end
    from ended
    where case when (select exists (select from watch)) then duly_note_end(
    task_id, lambda, graph, session, status::text, fence, failure_kind::int2, ended_at
) else true end
    on conflict (task_id) do update
    set status = excluded.status, finished_at = excluded.finished_at,
        started_at = coalesce(excluded.started_at, task.started_at),
        fence = excluded.fence, failures = excluded.failures, crashes = excluded.crashes,
        last_token = excluded.last_token, result = excluded.result, result_encoding = excluded.result_encoding,
        failure_kind = coalesce(excluded.failure_kind, task.failure_kind),
        failure_message = case
            when excluded.failure_kind is null then task.failure_message
            when excluded.failure_kind = 7 and task.failure_message is not null
                then left('expires_at passed before it could run again; the last failure: ' || task.failure_message, 1024)
            else excluded.failure_message
        end,
        failed_at = coalesce(excluded.failed_at, task.failed_at),
        checkpoint = case when excluded.status::text <> 'success' then task.checkpoint end,
        enqueued_at = excluded.enqueued_at, claimed_at = excluded.claimed_at, holder = excluded.holder,
        events = case
            when excluded.events is null then task.events
            when task.events is null then excluded.events
            else duly_bound_events(task.events || excluded.events)
        end
    where task.status is null
), released as (
    select released.lambda, released.due_in
    from (
        select array_agg(session) as sessions, array_agg(session_policy) as policies, array_agg(graph) as graphs,
            array_agg(task_id) as task_ids, array_agg(doom) as dooms,
            -- the only end that keeps this kind is a timeout that is final
            array_agg(
                case when status::text = 'fatal_failure' and failure_kind = 3 then 'timed_out' else status::text end
            ) as statuses,
            array_agg(resources) as resources, array_agg(taken) as taken
        from ended
        where session is not null or graph is not null or resources is not null
    ) as linked cross join lateral duly_release(
        linked.sessions, linked.policies, linked.graphs, linked.task_ids, linked.statuses, linked.dooms, linked.resources,
        linked.taken
    ) as released
)
select ended.task_id, released.lambda, released.due_in from ended full join released on false;

-- name: cancel_silent
with silent as (
    select assoc.task_id, assoc.holder, assoc.enqueued_at, assoc.claimed_at, 'silent' as outcome, assoc.failures + assoc.crashes + 1 as attempt, null::timestamptz as started_at,
    4 as attempt_kind, 'its holder fell silent: ' || assoc.holder as attempt_message,
    null::text as traceback
    from task_assoc as assoc
    where assoc.status in ('claimed', 'processing') and assoc.next_trigger_at <= (select least(%(as_of)b::timestamptz, duly_now())) and assoc.cancel_requested
    order by assoc.next_trigger_at
    limit %(limit)b
    for update skip locked
), ended as (
    delete from task_assoc as assoc
    using silent
    where assoc.task_id = any (array[silent.task_id]) and assoc.status::text in ('claimed', 'processing')
        and assoc.next_trigger_at <= (select least(%(as_of)b::timestamptz, duly_now()))
    returning silent.*, null::timestamptz as next_at, 'cancelled'::task_status as status, (select duly_now()) as ended_at, assoc.fence, assoc.failures,
        assoc.crashes + 1 as crashes, null::uuid as last_token, assoc.lambda, assoc.session, assoc.session_policy, assoc.graph, assoc.doom, assoc.resources, assoc.taken, assoc.events, null::bytea as result, null::int2 as result_encoding, null::int2 as failure_kind, null::text as failure_message
), recorded as (
    insert into attempt (
        task_id, fence, attempt, outcome, holder, enqueued_at, claimed_at, started_at, ended_at, failure_kind, failure_message,
        traceback, next_trigger_at
    )
    select task_id, fence, attempt, outcome::attempt_outcome, holder, enqueued_at, claimed_at, started_at, ended_at,
        attempt_kind, left(attempt_message, 1024), traceback, next_at
    from ended
    where case when (select exists (select from watch)) then duly_note_run(
    task_id, outcome::text, fence, attempt_kind::int2, ended_at, next_at
) else true end
    on conflict do nothing
), entity as (
    insert into task (
        task_id, status, finished_at, started_at, fence, failures, crashes, last_token, result, result_encoding,
        failure_kind, failure_message, failed_at, events, enqueued_at, claimed_at, holder
    )
    select task_id, status::task_status, ended_at, started_at, fence, failures, crashes, last_token, result,
        result_encoding, failure_kind, failure_message, case when failure_kind is not null then ended_at end, events,
        case when status = 'success' then enqueued_at end, case when status = 'success' then claimed_at end,
        -- not of the first run: a plain task's row must not outgrow the free half of its page (decision 0043)
        case when status = 'success' and fence > 1 then holder end
    from ended
    where case when (select exists (select from watch)) then duly_note_end(
    task_id, lambda, graph, session, status::text, fence, failure_kind::int2, ended_at
) else true end
    on conflict (task_id) do update
    set status = excluded.status, finished_at = excluded.finished_at,
        started_at = coalesce(excluded.started_at, task.started_at),
        fence = excluded.fence, failures = excluded.failures, crashes = excluded.crashes,
        last_token = excluded.last_token, result = excluded.result, result_encoding = excluded.result_encoding,
        failure_kind = coalesce(excluded.failure_kind, task.failure_kind),
        failure_message = case
            when excluded.failure_kind is null then task.failure_message
            when excluded.failure_kind = 7 and task.failure_message is not null
                then left('expires_at passed before it could run again; the last failure: ' || task.failure_message, 1024)
            else excluded.failure_message
        end,
        failed_at = coalesce(excluded.failed_at, task.failed_at),
        checkpoint = case when excluded.status::text <> 'success' then task.checkpoint end,
        enqueued_at = excluded.enqueued_at, claimed_at = excluded.claimed_at, holder = excluded.holder,
        events = case
            when excluded.events is null then task.events
            when task.events is null then excluded.events
            else duly_bound_events(task.events || excluded.events)
        end
    where task.status is null
), released as (
    select released.lambda, released.due_in
    from (
        select array_agg(session) as sessions, array_agg(session_policy) as policies, array_agg(graph) as graphs,
            array_agg(task_id) as task_ids, array_agg(doom) as dooms,
            -- the only end that keeps this kind is a timeout that is final
            array_agg(
                case when status::text = 'fatal_failure' and failure_kind = 3 then 'timed_out' else status::text end
            ) as statuses,
            array_agg(resources) as resources, array_agg(taken) as taken
        from ended
        where session is not null or graph is not null or resources is not null
    ) as linked cross join lateral duly_release(
        linked.sessions, linked.policies, linked.graphs, linked.task_ids, linked.statuses, linked.dooms, linked.resources,
        linked.taken
    ) as released
)
select ended.task_id, released.lambda, released.due_in from ended full join released on false;

-- name: expire
with late as (
    select assoc.task_id
    from task_assoc as assoc
    where assoc.status in ('new', 'retriable_failure', 'enqueued') and assoc.expires_at <= (select duly_now())
    order by assoc.expires_at
    limit %(limit)b
    for update skip locked
), ended as (
    delete from task_assoc as assoc
    using late
    where assoc.task_id = any (array[late.task_id]) and assoc.status::text in ('new', 'retriable_failure', 'enqueued')
        and assoc.expires_at <= (select duly_now())
    returning assoc.task_id, 'fatal_failure'::task_status as status, (select duly_now()) as ended_at,
        null::timestamptz as started_at, assoc.fence, assoc.failures, assoc.crashes, assoc.last_token, assoc.lambda, assoc.session, assoc.session_policy, assoc.graph, assoc.doom, assoc.resources, assoc.taken, assoc.events, null::timestamptz as enqueued_at, null::timestamptz as claimed_at, null::text as holder,
        null::bytea as result, null::int2 as result_encoding, 7 as failure_kind, 'expires_at passed before it could start' as failure_message
), entity as (
    insert into task (
        task_id, status, finished_at, started_at, fence, failures, crashes, last_token, result, result_encoding,
        failure_kind, failure_message, failed_at, events, enqueued_at, claimed_at, holder
    )
    select task_id, status::task_status, ended_at, started_at, fence, failures, crashes, last_token, result,
        result_encoding, failure_kind, failure_message, case when failure_kind is not null then ended_at end, events,
        case when status = 'success' then enqueued_at end, case when status = 'success' then claimed_at end,
        -- not of the first run: a plain task's row must not outgrow the free half of its page (decision 0043)
        case when status = 'success' and fence > 1 then holder end
    from ended
    where case when (select exists (select from watch)) then duly_note_end(
    task_id, lambda, graph, session, status::text, fence, failure_kind::int2, ended_at
) else true end
    on conflict (task_id) do update
    set status = excluded.status, finished_at = excluded.finished_at,
        started_at = coalesce(excluded.started_at, task.started_at),
        fence = excluded.fence, failures = excluded.failures, crashes = excluded.crashes,
        last_token = excluded.last_token, result = excluded.result, result_encoding = excluded.result_encoding,
        failure_kind = coalesce(excluded.failure_kind, task.failure_kind),
        failure_message = case
            when excluded.failure_kind is null then task.failure_message
            when excluded.failure_kind = 7 and task.failure_message is not null
                then left('expires_at passed before it could run again; the last failure: ' || task.failure_message, 1024)
            else excluded.failure_message
        end,
        failed_at = coalesce(excluded.failed_at, task.failed_at),
        checkpoint = case when excluded.status::text <> 'success' then task.checkpoint end,
        enqueued_at = excluded.enqueued_at, claimed_at = excluded.claimed_at, holder = excluded.holder,
        events = case
            when excluded.events is null then task.events
            when task.events is null then excluded.events
            else duly_bound_events(task.events || excluded.events)
        end
    where task.status is null
), released as (
    select released.lambda, released.due_in
    from (
        select array_agg(session) as sessions, array_agg(session_policy) as policies, array_agg(graph) as graphs,
            array_agg(task_id) as task_ids, array_agg(doom) as dooms,
            -- the only end that keeps this kind is a timeout that is final
            array_agg(
                case when status::text = 'fatal_failure' and failure_kind = 3 then 'timed_out' else status::text end
            ) as statuses,
            array_agg(resources) as resources, array_agg(taken) as taken
        from ended
        where session is not null or graph is not null or resources is not null
    ) as linked cross join lateral duly_release(
        linked.sessions, linked.policies, linked.graphs, linked.task_ids, linked.statuses, linked.dooms, linked.resources,
        linked.taken
    ) as released
)
select ended.task_id, released.lambda, released.due_in from ended full join released on false;

-- name: drop_gated
with gate as materialized (
    select gate_id, name, reason, delay, created_at
    from gate
    where gate_id = %(gate_id)b::int8 and (expires_at is null or expires_at > (select duly_now()))
    for share
), picked as (
    select picked.task_id
    from gate
    cross join unnest(%(lambdas)b::text[], %(priorities)b::int2[]) as queue (lambda, priority)
    cross join lateral (
        select assoc.task_id
        from task_assoc as assoc
        where assoc.lambda = queue.lambda and assoc.priority = queue.priority
            and assoc.status in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= (select duly_now())
            and assoc.next_trigger_at >= coalesce(%(since)b::timestamptz, '-infinity')
            and (%(collection)b::text is null or assoc.collection = %(collection)b::text)
            and (%(session)b::text is null or substr(assoc.session, strpos(assoc.session, '/') + 1) = %(session)b::text)
            
        order by assoc.next_trigger_at
        limit %(limit)b
        for update skip locked
    ) as picked
    limit %(limit)b
), ended as (
    delete from task_assoc as assoc
    using picked, gate
    where assoc.task_id = any (array[picked.task_id]) and assoc.status::text in ('new', 'retriable_failure')
    returning assoc.task_id, 'dropped'::task_status as status, (select duly_now()) as ended_at, null::timestamptz as started_at,
        assoc.fence, assoc.failures, assoc.crashes, assoc.last_token, assoc.lambda, assoc.session, assoc.session_policy, assoc.graph, assoc.doom, assoc.resources, assoc.taken, assoc.events, null::timestamptz as enqueued_at, null::timestamptz as claimed_at, null::text as holder, null::bytea as result, null::int2 as result_encoding,
        14 as failure_kind,
        left('dropped by the gate ' || gate.name || coalesce(': ' || nullif(gate.reason, ''), ''), 1024) as failure_message
), cancelled as (
    select task_id, 'cancelled' as status, failure_kind, session, session_policy, graph, doom, resources, taken from ended
), entity as (
    insert into task (
        task_id, status, finished_at, started_at, fence, failures, crashes, last_token, result, result_encoding,
        failure_kind, failure_message, failed_at, events, enqueued_at, claimed_at, holder
    )
    select task_id, status::task_status, ended_at, started_at, fence, failures, crashes, last_token, result,
        result_encoding, failure_kind, failure_message, case when failure_kind is not null then ended_at end, events,
        case when status = 'success' then enqueued_at end, case when status = 'success' then claimed_at end,
        -- not of the first run: a plain task's row must not outgrow the free half of its page (decision 0043)
        case when status = 'success' and fence > 1 then holder end
    from ended
    where case when (select exists (select from watch)) then duly_note_end(
    task_id, lambda, graph, session, status::text, fence, failure_kind::int2, ended_at
) else true end
    on conflict (task_id) do update
    set status = excluded.status, finished_at = excluded.finished_at,
        started_at = coalesce(excluded.started_at, task.started_at),
        fence = excluded.fence, failures = excluded.failures, crashes = excluded.crashes,
        last_token = excluded.last_token, result = excluded.result, result_encoding = excluded.result_encoding,
        failure_kind = coalesce(excluded.failure_kind, task.failure_kind),
        failure_message = case
            when excluded.failure_kind is null then task.failure_message
            when excluded.failure_kind = 7 and task.failure_message is not null
                then left('expires_at passed before it could run again; the last failure: ' || task.failure_message, 1024)
            else excluded.failure_message
        end,
        failed_at = coalesce(excluded.failed_at, task.failed_at),
        checkpoint = case when excluded.status::text <> 'success' then task.checkpoint end,
        enqueued_at = excluded.enqueued_at, claimed_at = excluded.claimed_at, holder = excluded.holder,
        events = case
            when excluded.events is null then task.events
            when task.events is null then excluded.events
            else duly_bound_events(task.events || excluded.events)
        end
    where task.status is null
), released as (
    select released.lambda, released.due_in
    from (
        select array_agg(session) as sessions, array_agg(session_policy) as policies, array_agg(graph) as graphs,
            array_agg(task_id) as task_ids, array_agg(doom) as dooms,
            -- the only end that keeps this kind is a timeout that is final
            array_agg(
                case when status::text = 'fatal_failure' and failure_kind = 3 then 'timed_out' else status::text end
            ) as statuses,
            array_agg(resources) as resources, array_agg(taken) as taken
        from cancelled
        where session is not null or graph is not null or resources is not null
    ) as linked cross join lateral duly_release(
        linked.sessions, linked.policies, linked.graphs, linked.task_ids, linked.statuses, linked.dooms, linked.resources,
        linked.taken
    ) as released
)
select ended.task_id, released.lambda, released.due_in from ended full join released on false;

-- name: delay_gated
with gate as materialized (
    select gate_id, name, reason, delay, created_at
    from gate
    where gate_id = %(gate_id)b::int8 and (expires_at is null or expires_at > (select duly_now()))
    for share
), picked as (
    select picked.task_id
    from gate
    cross join unnest(%(lambdas)b::text[], %(priorities)b::int2[]) as queue (lambda, priority)
    cross join lateral (
        select assoc.task_id
        from task_assoc as assoc
        where assoc.lambda = queue.lambda and assoc.priority = queue.priority
            and assoc.status in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= (select duly_now())
            and assoc.next_trigger_at >= coalesce(%(since)b::timestamptz, '-infinity')
            and (%(collection)b::text is null or assoc.collection = %(collection)b::text)
            and (%(session)b::text is null or substr(assoc.session, strpos(assoc.session, '/') + 1) = %(session)b::text)
            and %(gate_id)b::int8 <> all (coalesce(assoc.passed_gates, array[]::int8[]))
        order by assoc.next_trigger_at
        limit %(limit)b
        for update skip locked
    ) as picked
    limit %(limit)b
), delayed as (
    update task_assoc as assoc
    set status = 'new', next_trigger_at = greatest(assoc.next_trigger_at, gate.created_at) + gate.delay,
        due_at = greatest(assoc.next_trigger_at, gate.created_at) + gate.delay,
        passed_gates = coalesce(assoc.passed_gates, array[]::int8[]) || gate.gate_id,
        events = duly_note(
            assoc.events, 'delayed', (select duly_now()), greatest(assoc.next_trigger_at, gate.created_at) + gate.delay, gate.name
        )
    from picked, gate
    where assoc.task_id = any (array[picked.task_id]) and assoc.status::text in ('new', 'retriable_failure')
    returning assoc.lambda, assoc.next_trigger_at
)
select lambda, count(*), min(next_trigger_at) - (select duly_now()) as due_in from delayed group by lambda;

-- name: park_gated
with gate as materialized (
    select gate_id, name, reason, delay, created_at
    from gate
    where gate_id = %(gate_id)b::int8 and (expires_at is null or expires_at > (select duly_now()))
    for share
), picked as (
    select picked.task_id
    from gate
    cross join unnest(%(lambdas)b::text[], %(priorities)b::int2[]) as queue (lambda, priority)
    cross join lateral (
        select assoc.task_id
        from task_assoc as assoc
        where assoc.lambda = queue.lambda and assoc.priority = queue.priority
            and assoc.status in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= (select duly_now())
            and assoc.next_trigger_at >= coalesce(%(since)b::timestamptz, '-infinity')
            and (%(collection)b::text is null or assoc.collection = %(collection)b::text)
            and (%(session)b::text is null or substr(assoc.session, strpos(assoc.session, '/') + 1) = %(session)b::text)
            
        order by assoc.next_trigger_at
        limit %(limit)b
        for update skip locked
    ) as picked
    limit %(limit)b
), parked as (
    update task_assoc as assoc
    set status = 'waiting', next_trigger_at = coalesce(assoc.expires_at, 'infinity'),
        parked_on = 'gate:' || gate.name, parked_key = gate.gate_id::text,
        events = duly_note(assoc.events, 'gated', (select duly_now()), assoc.expires_at, gate.name)
    from picked, gate
    where assoc.task_id = any (array[picked.task_id]) and assoc.status::text in ('new', 'retriable_failure')
    returning assoc.lambda
)
select lambda, count(*) from parked group by lambda;

-- name: probe_gated
with picked as (
    select picked.task_id
    from unnest(%(lambdas)b::text[], %(priorities)b::int2[]) as queue (lambda, priority)
    cross join lateral (
        select assoc.task_id, assoc.next_trigger_at
        from task_assoc as assoc
        where assoc.lambda = queue.lambda and assoc.priority = queue.priority
            and assoc.status in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= (select duly_now())
            and (assoc.expires_at is null or assoc.expires_at > (select duly_now()))
            and %(gate_id)b::int8 <> all (coalesce(assoc.passed_gates, array[]::int8[]))
        order by assoc.next_trigger_at
        limit %(limit)b
        for update skip locked
    ) as picked
    order by picked.next_trigger_at
    limit %(limit)b
)
update task_assoc as assoc
set status = 'new', next_trigger_at = assoc.next_trigger_at,
    passed_gates = coalesce(assoc.passed_gates, array[]::int8[]) || %(gate_id)b::int8
from picked
where assoc.task_id = any (array[picked.task_id]) and assoc.status::text in ('new', 'retriable_failure')
returning assoc.lambda, assoc.next_trigger_at;

-- name: release_gated
with parked as (
    select task_id
    from task_assoc
    where parked_on = %(parked_on)b::text and parked_key = %(parked_key)b::text and status = 'waiting'
    limit %(limit)b
    for update skip locked
), released as (
    update task_assoc as assoc
    set status = 'new', parked_on = null, parked_key = null,
        next_trigger_at = greatest(assoc.due_at, (select duly_now())),
        events = duly_note(
            assoc.events, 'ungated', (select duly_now()), greatest(assoc.due_at, (select duly_now())), substr(assoc.parked_on, 6)
        )
    from parked
    where assoc.task_id = any (array[parked.task_id]) and assoc.status::text = 'waiting'
    returning assoc.lambda
)
select lambda, count(*) from released group by lambda;

-- name: unpark_gated
update task_assoc as assoc
set status = 'new', parked_on = null, parked_key = null, next_trigger_at = greatest(assoc.due_at, (select duly_now())),
    events = duly_note(
        assoc.events, 'ungated', (select duly_now()), greatest(assoc.due_at, (select duly_now())), substr(assoc.parked_on, 6)
    )
from unnest(%(task_ids)b::uuid[]) as asked (task_id)
where assoc.task_id = any (array[asked.task_id]) and assoc.status::text = 'waiting' and starts_with(assoc.parked_on, 'gate:')
returning assoc.task_id;

-- name: unpark_replaced
update task_assoc as assoc
set status = 'new', parked_on = null, parked_key = null, next_trigger_at = greatest(assoc.due_at, (select duly_now())),
    events = duly_note(
        assoc.events, case when starts_with(assoc.parked_on, 'gate:') then 'ungated' else 'unparked' end,
        (select duly_now()), greatest(assoc.due_at, (select duly_now())),
        case
            when starts_with(assoc.parked_on, 'gate:') then substr(assoc.parked_on, 6)
            else concat_ws('/', assoc.parked_on, nullif(assoc.parked_key, ''))
        end
    )
from unnest(%(task_ids)b::uuid[]) as asked (task_id)
where assoc.task_id = any (array[asked.task_id]) and assoc.status::text = 'waiting' and assoc.doom is null
    and assoc.parked_on not in ('completion:', 'event:', 'session:')
returning assoc.task_id;

-- name: end_waiting
with ended as (
    delete from task_assoc as assoc
    using unnest(%(task_ids)b::uuid[]) as asked (task_id)
    where assoc.task_id = any (array[asked.task_id]) and assoc.status::text = 'waiting'
        and assoc.next_trigger_at <= (select duly_now()) and coalesce(assoc.parked_on, '') not in ('completion:', 'event:', 'session:')
        and (assoc.session is null or assoc.task_id <> all (%(without_session)b::uuid[]))
    returning assoc.task_id,
        case when abs(assoc.doom) in (12, 15) then 'dropped' else 'fatal_failure' end::task_status
            as status,
        (select duly_now()) as ended_at,
        null::timestamptz as started_at, assoc.fence, assoc.failures, assoc.crashes, assoc.last_token, assoc.lambda, assoc.session, assoc.session_policy, assoc.graph, assoc.doom, assoc.resources, assoc.taken, assoc.events, null::timestamptz as enqueued_at, null::timestamptz as claimed_at, null::text as holder,
        null::bytea as result, null::int2 as result_encoding, coalesce(abs(assoc.doom), 7) as failure_kind,
        case coalesce(abs(assoc.doom), 7)
            when 7 then 'expires_at passed before it could start'
            when 12 then 'what it waits for in its graph did not happen'
            when 15 then 'another node of its graph failed, and the graph fails fast'
            else 'a task before it in its session failed for good'
        end as failure_message
), entity as (
    insert into task (
        task_id, status, finished_at, started_at, fence, failures, crashes, last_token, result, result_encoding,
        failure_kind, failure_message, failed_at, events, enqueued_at, claimed_at, holder
    )
    select task_id, status::task_status, ended_at, started_at, fence, failures, crashes, last_token, result,
        result_encoding, failure_kind, failure_message, case when failure_kind is not null then ended_at end, events,
        case when status = 'success' then enqueued_at end, case when status = 'success' then claimed_at end,
        -- not of the first run: a plain task's row must not outgrow the free half of its page (decision 0043)
        case when status = 'success' and fence > 1 then holder end
    from ended
    where case when (select exists (select from watch)) then duly_note_end(
    task_id, lambda, graph, session, status::text, fence, failure_kind::int2, ended_at
) else true end
    on conflict (task_id) do update
    set status = excluded.status, finished_at = excluded.finished_at,
        started_at = coalesce(excluded.started_at, task.started_at),
        fence = excluded.fence, failures = excluded.failures, crashes = excluded.crashes,
        last_token = excluded.last_token, result = excluded.result, result_encoding = excluded.result_encoding,
        failure_kind = coalesce(excluded.failure_kind, task.failure_kind),
        failure_message = case
            when excluded.failure_kind is null then task.failure_message
            when excluded.failure_kind = 7 and task.failure_message is not null
                then left('expires_at passed before it could run again; the last failure: ' || task.failure_message, 1024)
            else excluded.failure_message
        end,
        failed_at = coalesce(excluded.failed_at, task.failed_at),
        checkpoint = case when excluded.status::text <> 'success' then task.checkpoint end,
        enqueued_at = excluded.enqueued_at, claimed_at = excluded.claimed_at, holder = excluded.holder,
        events = case
            when excluded.events is null then task.events
            when task.events is null then excluded.events
            else duly_bound_events(task.events || excluded.events)
        end
    where task.status is null
), released as (
    select released.lambda, released.due_in
    from (
        select array_agg(session) as sessions, array_agg(session_policy) as policies, array_agg(graph) as graphs,
            array_agg(task_id) as task_ids, array_agg(doom) as dooms,
            -- the only end that keeps this kind is a timeout that is final
            array_agg(
                case when status::text = 'fatal_failure' and failure_kind = 3 then 'timed_out' else status::text end
            ) as statuses,
            array_agg(resources) as resources, array_agg(taken) as taken
        from ended
        where session is not null or graph is not null or resources is not null
    ) as linked cross join lateral duly_release(
        linked.sessions, linked.policies, linked.graphs, linked.task_ids, linked.statuses, linked.dooms, linked.resources,
        linked.taken
    ) as released
)
select ended.task_id, released.lambda, released.due_in from ended full join released on false;

-- name: claim
with asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(tokens)b::uuid[], %(lambdas)b::text[], %(holders)b::text[]
    ) as asked (task_id, token, lambda, holder)
), claimed as (
    update task_assoc as assoc
    set status = 'claimed', token = asked.token, holder = asked.holder, fence = assoc.fence + 1,
        next_trigger_at = (select duly_now()) + %(claim_timeout)b, claimed_at = (select duly_now())
    from asked
    where assoc.task_id = any (array[asked.task_id]) and assoc.lambda = asked.lambda and assoc.status::text = 'enqueued'
        and (assoc.expires_at is null or assoc.expires_at > (select duly_now()))
        and assoc.last_token is distinct from asked.token
    returning assoc.task_id, assoc.token, assoc.lambda, assoc.priority, assoc.fence, assoc.failures, assoc.crashes,
    assoc.worker_crashes, assoc.due_at, assoc.edits, assoc.events
)
select claimed.task_id, claimed.token, claimed.lambda as lambda_name, claimed.priority, claimed.fence,
    claimed.failures, claimed.crashes, (extract(epoch from claimed.due_at) * 1000000)::int8 as due_at_us,
    entity.payload, entity.payload_encoding::int4 as encoding, coalesce(entity.max_runtime, coalesce(lambda.max_runtime, interval '0 days 3600 seconds')) as max_runtime,
    case when entity.time_table is not null then (extract(epoch from entity.scheduled_at) * 1000000)::int8 end as tick_at_us,
    entity.graph as graph_id,
    entity.checkpoint,
    case when claimed.events is not null then (
        select max(case event ->> 'kind'
            when 'put_off' then event ->> 'next'
            when 'unparked' then event ->> 'at'
            when 'ungated' then event ->> 'at'
            when 'rate_lifted' then event ->> 'at'
        end::int8)
        from jsonb_array_elements(claimed.events) as event
    ) end as startable_at_us,
    claimed.crashes = 1 and claimed.worker_crashes = 1 as crashed_with_worker,
    entity.attachments, entity.received,
    entity.edits + entity.checkpoint_count <> claimed.edits as is_stale
from claimed
left join lateral (
    select task.priority, task.payload, task.payload_encoding, task.time_table, task.scheduled_at, task.graph,
        task.max_runtime, task.checkpoint, task.attachments, task.received, task.checkpoint_count, task.edits
    from task
    where task.task_id = claimed.task_id and task.lambda = claimed.lambda and task.task_id between (%(task_ids)b::uuid[])[1] and (%(task_ids)b::uuid[])[cardinality(%(task_ids)b::uuid[])]
    limit 1
) as entity on true
left join lambda on lambda.name = any (array[claimed.lambda])
where coalesce(entity.priority, 0) > 0;

-- name: claim_repeated
with claimed as (
    update task_assoc as assoc
    set next_trigger_at = least(greatest(assoc.next_trigger_at, (select duly_now()) + %(claim_timeout)b), (select duly_now()) + %(longest_lease)b)
    from unnest(%(task_ids)b::uuid[], %(tokens)b::uuid[]) as asked (task_id, token)
    where assoc.task_id = any (array[asked.task_id]) and assoc.token = asked.token
        and assoc.status::text in ('claimed', 'processing')
    returning assoc.task_id, assoc.token, assoc.lambda, assoc.priority, assoc.fence, assoc.failures, assoc.crashes,
    assoc.worker_crashes, assoc.due_at, assoc.edits, assoc.events
)
select claimed.task_id, claimed.token, claimed.lambda as lambda_name, claimed.priority, claimed.fence,
    claimed.failures, claimed.crashes, (extract(epoch from claimed.due_at) * 1000000)::int8 as due_at_us,
    entity.payload, entity.payload_encoding::int4 as encoding, coalesce(entity.max_runtime, coalesce(lambda.max_runtime, interval '0 days 3600 seconds')) as max_runtime,
    case when entity.time_table is not null then (extract(epoch from entity.scheduled_at) * 1000000)::int8 end as tick_at_us,
    entity.graph as graph_id,
    entity.checkpoint,
    case when claimed.events is not null then (
        select max(case event ->> 'kind'
            when 'put_off' then event ->> 'next'
            when 'unparked' then event ->> 'at'
            when 'ungated' then event ->> 'at'
            when 'rate_lifted' then event ->> 'at'
        end::int8)
        from jsonb_array_elements(claimed.events) as event
    ) end as startable_at_us,
    claimed.crashes = 1 and claimed.worker_crashes = 1 as crashed_with_worker,
    entity.attachments, entity.received,
    entity.edits + entity.checkpoint_count <> claimed.edits as is_stale
from claimed
left join lateral (
    select task.priority, task.payload, task.payload_encoding, task.time_table, task.scheduled_at, task.graph,
        task.max_runtime, task.checkpoint, task.attachments, task.received, task.checkpoint_count, task.edits
    from task
    where task.task_id = claimed.task_id and task.lambda = claimed.lambda and task.task_id between (%(task_ids)b::uuid[])[1] and (%(task_ids)b::uuid[])[cardinality(%(task_ids)b::uuid[])]
    limit 1
) as entity on true
left join lambda on lambda.name = any (array[claimed.lambda])
where coalesce(entity.priority, 0) > 0;

-- name: claim_again
with lost as (
    select task_id, (row_number() over () - 1)::int2 as place
    from (
        select task_id
        from task_assoc
        where status = 'claimed' and holder = %(holder)b
            and substring(uuid_send(token) from 1 for 14) = any (%(lost)b::bytea[])
        order by uuid_send(task_id)
        for update
    ) as locked
), claimed as (
    update task_assoc as assoc
    set token = encode(%(prefix)b::bytea || int2send(lost.place), 'hex')::uuid,
        next_trigger_at = (select duly_now()) + %(claim_timeout)b,
        events = duly_note(assoc.events, 'claimed_again', (select duly_now()), (select duly_now()) + %(claim_timeout)b)
    from lost
    where assoc.task_id = any (array[lost.task_id]) and assoc.status::text = 'claimed'
    returning assoc.task_id, assoc.token, assoc.lambda, assoc.priority, assoc.fence, assoc.failures, assoc.crashes,
    assoc.worker_crashes, assoc.due_at, assoc.edits, assoc.events
)
select claimed.task_id, claimed.token, claimed.lambda as lambda_name, claimed.priority, claimed.fence,
    claimed.failures, claimed.crashes, (extract(epoch from claimed.due_at) * 1000000)::int8 as due_at_us,
    entity.payload, entity.payload_encoding::int4 as encoding, coalesce(entity.max_runtime, coalesce(lambda.max_runtime, interval '0 days 3600 seconds')) as max_runtime,
    case when entity.time_table is not null then (extract(epoch from entity.scheduled_at) * 1000000)::int8 end as tick_at_us,
    entity.graph as graph_id,
    entity.checkpoint,
    case when claimed.events is not null then (
        select max(case event ->> 'kind'
            when 'put_off' then event ->> 'next'
            when 'unparked' then event ->> 'at'
            when 'ungated' then event ->> 'at'
            when 'rate_lifted' then event ->> 'at'
        end::int8)
        from jsonb_array_elements(claimed.events) as event
    ) end as startable_at_us,
    claimed.crashes = 1 and claimed.worker_crashes = 1 as crashed_with_worker,
    entity.attachments, entity.received,
    entity.edits + entity.checkpoint_count <> claimed.edits as is_stale
from claimed
left join lateral (
    select task.priority, task.payload, task.payload_encoding, task.time_table, task.scheduled_at, task.graph,
        task.max_runtime, task.checkpoint, task.attachments, task.received, task.checkpoint_count, task.edits
    from task
    where task.task_id = claimed.task_id and task.lambda = claimed.lambda 
    limit 1
) as entity on true
left join lambda on lambda.name = any (array[claimed.lambda])
where coalesce(entity.priority, 0) > 0;

-- name: heartbeat
update task_assoc as assoc
set status = 'processing', next_trigger_at = least(greatest(assoc.next_trigger_at, (select duly_now()) + %(heartbeat_timeout)b), (select duly_now()) + %(longest_lease)b),
    progress = coalesce(beat.progress, assoc.progress), progress_note = coalesce(beat.note, assoc.progress_note)
from unnest(
    %(task_ids)b::uuid[], %(tokens)b::uuid[], %(progress)b::float4[], %(notes)b::text[]
) as beat (task_id, token, progress, note)
where assoc.task_id = any (array[beat.task_id]) and assoc.token = beat.token and assoc.status::text in ('claimed', 'processing')
returning assoc.token, assoc.cancel_requested, assoc.kill_requested;

-- name: finish
with asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(tokens)b::uuid[], %(results)b::bytea[], %(encodings)b::int2[],
        %(started_at)b::timestamptz[]
    ) as asked (task_id, token, result, encoding, started_at)
), ended as (
    delete from task_assoc as assoc
    using asked
    where assoc.task_id = any (array[asked.task_id]) and assoc.token = asked.token and assoc.status::text in ('claimed', 'processing')
    returning assoc.task_id, 'success'::task_status as status, (select duly_now()) as ended_at, asked.started_at, assoc.fence,
        assoc.failures, assoc.crashes, asked.token as last_token, asked.result, asked.encoding as result_encoding,
        assoc.enqueued_at, assoc.claimed_at, assoc.holder, assoc.lambda, assoc.session, assoc.session_policy, assoc.graph, assoc.doom, assoc.resources, assoc.taken, assoc.events, null::int2 as failure_kind, null::text as failure_message
), entity as (
    insert into task (
        task_id, status, finished_at, started_at, fence, failures, crashes, last_token, result, result_encoding,
        failure_kind, failure_message, failed_at, events, enqueued_at, claimed_at, holder
    )
    select task_id, status::task_status, ended_at, started_at, fence, failures, crashes, last_token, result,
        result_encoding, failure_kind, failure_message, case when failure_kind is not null then ended_at end, events,
        case when status = 'success' then enqueued_at end, case when status = 'success' then claimed_at end,
        -- not of the first run: a plain task's row must not outgrow the free half of its page (decision 0043)
        case when status = 'success' and fence > 1 then holder end
    from ended
    where case when (select exists (select from watch)) then duly_note_end(
    task_id, lambda, graph, session, status::text, fence, failure_kind::int2, ended_at
) else true end
    on conflict (task_id) do update
    set status = excluded.status, finished_at = excluded.finished_at,
        started_at = coalesce(excluded.started_at, task.started_at),
        fence = excluded.fence, failures = excluded.failures, crashes = excluded.crashes,
        last_token = excluded.last_token, result = excluded.result, result_encoding = excluded.result_encoding,
        failure_kind = coalesce(excluded.failure_kind, task.failure_kind),
        failure_message = case
            when excluded.failure_kind is null then task.failure_message
            when excluded.failure_kind = 7 and task.failure_message is not null
                then left('expires_at passed before it could run again; the last failure: ' || task.failure_message, 1024)
            else excluded.failure_message
        end,
        failed_at = coalesce(excluded.failed_at, task.failed_at),
        checkpoint = case when excluded.status::text <> 'success' then task.checkpoint end,
        enqueued_at = excluded.enqueued_at, claimed_at = excluded.claimed_at, holder = excluded.holder,
        events = case
            when excluded.events is null then task.events
            when task.events is null then excluded.events
            else duly_bound_events(task.events || excluded.events)
        end
    where task.status is null
), released as (
    select released.lambda, released.due_in
    from (
        select array_agg(session) as sessions, array_agg(session_policy) as policies, array_agg(graph) as graphs,
            array_agg(task_id) as task_ids, array_agg(doom) as dooms,
            -- the only end that keeps this kind is a timeout that is final
            array_agg(
                case when status::text = 'fatal_failure' and failure_kind = 3 then 'timed_out' else status::text end
            ) as statuses,
            array_agg(resources) as resources, array_agg(taken) as taken
        from ended
        where session is not null or graph is not null or resources is not null
    ) as linked cross join lateral duly_release(
        linked.sessions, linked.policies, linked.graphs, linked.task_ids, linked.statuses, linked.dooms, linked.resources,
        linked.taken
    ) as released
)
select ended.task_id, ended.last_token as token, released.lambda, released.due_in from ended full join released on false;

-- name: finish_one
with asked as (
    select %(task_id)b::uuid as task_id, %(token)b::uuid as token, %(result)b::bytea as result, %(encoding)b::int2 as encoding,
        %(started_at)b::timestamptz as started_at
), ended as (
    delete from task_assoc as assoc
    using asked
    where assoc.task_id = any (array[asked.task_id]) and assoc.token = asked.token and assoc.status::text in ('claimed', 'processing')
    returning assoc.task_id, 'success'::task_status as status, (select duly_now()) as ended_at, asked.started_at, assoc.fence,
        assoc.failures, assoc.crashes, asked.token as last_token, asked.result, asked.encoding as result_encoding,
        assoc.enqueued_at, assoc.claimed_at, assoc.holder, assoc.lambda, assoc.session, assoc.session_policy, assoc.graph, assoc.doom, assoc.resources, assoc.taken, assoc.events, null::int2 as failure_kind, null::text as failure_message
), entity as (
    insert into task (
        task_id, status, finished_at, started_at, fence, failures, crashes, last_token, result, result_encoding,
        failure_kind, failure_message, failed_at, events, enqueued_at, claimed_at, holder
    )
    select task_id, status::task_status, ended_at, started_at, fence, failures, crashes, last_token, result,
        result_encoding, failure_kind, failure_message, case when failure_kind is not null then ended_at end, events,
        case when status = 'success' then enqueued_at end, case when status = 'success' then claimed_at end,
        -- not of the first run: a plain task's row must not outgrow the free half of its page (decision 0043)
        case when status = 'success' and fence > 1 then holder end
    from ended
    where case when (select exists (select from watch)) then duly_note_end(
    task_id, lambda, graph, session, status::text, fence, failure_kind::int2, ended_at
) else true end
    on conflict (task_id) do update
    set status = excluded.status, finished_at = excluded.finished_at,
        started_at = coalesce(excluded.started_at, task.started_at),
        fence = excluded.fence, failures = excluded.failures, crashes = excluded.crashes,
        last_token = excluded.last_token, result = excluded.result, result_encoding = excluded.result_encoding,
        failure_kind = coalesce(excluded.failure_kind, task.failure_kind),
        failure_message = case
            when excluded.failure_kind is null then task.failure_message
            when excluded.failure_kind = 7 and task.failure_message is not null
                then left('expires_at passed before it could run again; the last failure: ' || task.failure_message, 1024)
            else excluded.failure_message
        end,
        failed_at = coalesce(excluded.failed_at, task.failed_at),
        checkpoint = case when excluded.status::text <> 'success' then task.checkpoint end,
        enqueued_at = excluded.enqueued_at, claimed_at = excluded.claimed_at, holder = excluded.holder,
        events = case
            when excluded.events is null then task.events
            when task.events is null then excluded.events
            else duly_bound_events(task.events || excluded.events)
        end
    where task.status is null
), released as (
    select released.lambda, released.due_in
    from (
        select array_agg(session) as sessions, array_agg(session_policy) as policies, array_agg(graph) as graphs,
            array_agg(task_id) as task_ids, array_agg(doom) as dooms,
            -- the only end that keeps this kind is a timeout that is final
            array_agg(
                case when status::text = 'fatal_failure' and failure_kind = 3 then 'timed_out' else status::text end
            ) as statuses,
            array_agg(resources) as resources, array_agg(taken) as taken
        from ended
        where session is not null or graph is not null or resources is not null
    ) as linked cross join lateral duly_release(
        linked.sessions, linked.policies, linked.graphs, linked.task_ids, linked.statuses, linked.dooms, linked.resources,
        linked.taken
    ) as released
)
select ended.task_id, ended.last_token as token, released.lambda, released.due_in from ended full join released on false;

-- name: fail
with clock as materialized (
    select duly_now() as now
), asked as (
    select task_id, token, case outcome when 'crashed_with_worker' then 'crashed' when 'skipped' then 'fatal_failure' else outcome end as outcome,
        outcome = 'crashed_with_worker' as with_worker, outcome = 'skipped' as skips, retry_after, failure_message, started_at, traceback,
        coalesce(
            failure_kind, case when outcome in ('crashed', 'crashed_with_worker') then 4 else 1 end
        ) as failure_kind
    from unnest(
        %(task_ids)b::uuid[], %(tokens)b::uuid[], %(outcomes)b::text[], %(retry_after)b::interval[],
        %(failure_kinds)b::int2[], %(failure_messages)b::text[], %(started_at)b::timestamptz[],
        %(tracebacks)b::text[]
    ) as asked (task_id, token, outcome, retry_after, failure_kind, failure_message, started_at, traceback)
), held_back as (
    select * from unnest(%(held_back)b::text[], %(hold_back)b::interval[]) as held_back (lambda, delay)
), held as (
    select asked.*, clock.now, assoc.lambda, assoc.holder, assoc.enqueued_at, assoc.claimed_at, assoc.fence, assoc.failures, assoc.crashes,
        assoc.cancel_requested, assoc.taken as took, asked.outcome = 'crashed' as crashed,
        coalesce(assoc.timeout_is_final and asked.failure_kind = 3, false) as timed_out,
        duly_recent(assoc.crashed_at, clock.now - coalesce(lambda.crash_window, interval '3 days 0 seconds')) as crashed_at, coalesce(lambda.crash_window, interval '3 days 0 seconds') as crash_window,
        coalesce(lambda.max_crashes, 3) as max_crashes, coalesce(lambda.max_attempts, 10) as max_attempts,
        greatest(
            coalesce(asked.retry_after, duly_backoff(
                coalesce(lambda.backoff_initial, interval '0 days 1 seconds'), coalesce(lambda.backoff_factor, 2), coalesce(lambda.backoff_max, interval '0 days 600 seconds'),
                assoc.failures + assoc.crashes
            )),
            held_back.delay * (1 + random() / 2)
        ) as wait
    from clock cross join asked
    join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    left join lambda on lambda.name = any (array[assoc.lambda])
    left join held_back on held_back.lambda = assoc.lambda
    where assoc.token = asked.token and assoc.status::text in ('claimed', 'processing')
    for update of assoc
), decided as (
    select held.*,
        case
            when skips then 'dropped'
            when outcome in ('fatal_failure', 'cancelled') then outcome
            when timed_out then 'fatal_failure'
            when crashed and cardinality(crashed_at) + 1 >= max_crashes then 'fatal_failure'
            when not crashed and failures + 1 >= max_attempts then 'fatal_failure'
            when cancel_requested then 'cancelled'
            else 'retriable_failure'
        end as status
    from held
), planned as (
    select task_id, token, token as last_token, status, now as ended_at, wait, started_at, fence, holder, enqueued_at,
        claimed_at, case when status = 'retriable_failure' then now + wait end as next_at, took,
        outcome, crashed, with_worker, crashed_at, failures + crashes + 1 as attempt,
        failures + (outcome in ('retriable_failure', 'fatal_failure'))::int as failures,
        crashes + crashed::int as crashes, null::bytea as result, null::int2 as result_encoding,
        -- what stopped as it was asked to has not failed
        case when outcome <> 'cancelled' then failure_kind end as attempt_kind, failure_message as attempt_message,
        traceback,
        case
            when outcome = 'cancelled' then null
            when status <> 'fatal_failure' or outcome = status or timed_out then failure_kind
            when crashed then 5
            else 6
        end as failure_kind,
        case
            when status <> 'fatal_failure' or outcome = status or timed_out then failure_message
            else left(
                case when crashed
                    then 'crashed ' || cardinality(crashed_at) + 1 || ' times within ' || crash_window
                    else 'failed ' || failures + 1 || ' times'
                end || '; the last: ' || coalesce(failure_message, ''), 1024)
        end as failure_message
    from decided
), retried as (
    update task_assoc as assoc
    set status = 'retriable_failure', next_trigger_at = planned.ended_at + planned.wait,
        due_at = planned.ended_at + planned.wait, failures = planned.failures, crashes = planned.crashes,
        worker_crashes = assoc.worker_crashes + planned.with_worker::int,
        crashed_at = nullif(planned.crashed_at || case when planned.crashed then array[planned.ended_at] end, '{}'),
        taken = null, last_token = planned.token, token = null, holder = null, progress = null, progress_note = null,
    overdue_since_at = null, overdue_neighbours = null
    from planned
    where assoc.task_id = any (array[planned.task_id]) and assoc.token = planned.token
        and assoc.status::text in ('claimed', 'processing') and planned.status = 'retriable_failure'
    returning planned.*, assoc.lambda, null::text as session, null::int2 as session_policy, null::uuid as graph, null::int2 as doom, assoc.resources,
    planned.took as taken, null::jsonb as events
), ended as (
    delete from task_assoc as assoc
    using planned
    where assoc.task_id = any (array[planned.task_id]) and assoc.token = planned.token
        and assoc.status::text in ('claimed', 'processing') and planned.status <> 'retriable_failure'
    returning planned.*, assoc.lambda, assoc.session, assoc.session_policy, assoc.graph, assoc.doom, assoc.resources, assoc.taken, assoc.events
), done as (
    select * from retried union all select * from ended
), recorded as (
    insert into attempt (
        task_id, fence, attempt, outcome, holder, enqueued_at, claimed_at, started_at, ended_at, failure_kind, failure_message,
        traceback, next_trigger_at
    )
    select task_id, fence, attempt, outcome::attempt_outcome, holder, enqueued_at, claimed_at, started_at, ended_at,
        attempt_kind, left(attempt_message, 1024), traceback, next_at
    from done
    where case when (select exists (select from watch)) then duly_note_run(
    task_id, outcome::text, fence, attempt_kind::int2, ended_at, next_at
) else true end
    on conflict do nothing
), noted as (
    insert into task (task_id, started_at, failure_kind, failure_message, failed_at)
    select task_id, started_at, failure_kind, failure_message, ended_at from retried
    on conflict (task_id) do update
    set started_at = coalesce(excluded.started_at, task.started_at), failure_kind = excluded.failure_kind,
        failure_message = excluded.failure_message, failed_at = excluded.failed_at
    where task.status is null
), entity as (
    insert into task (
        task_id, status, finished_at, started_at, fence, failures, crashes, last_token, result, result_encoding,
        failure_kind, failure_message, failed_at, events, enqueued_at, claimed_at, holder
    )
    select task_id, status::task_status, ended_at, started_at, fence, failures, crashes, last_token, result,
        result_encoding, failure_kind, failure_message, case when failure_kind is not null then ended_at end, events,
        case when status = 'success' then enqueued_at end, case when status = 'success' then claimed_at end,
        -- not of the first run: a plain task's row must not outgrow the free half of its page (decision 0043)
        case when status = 'success' and fence > 1 then holder end
    from ended
    where case when (select exists (select from watch)) then duly_note_end(
    task_id, lambda, graph, session, status::text, fence, failure_kind::int2, ended_at
) else true end
    on conflict (task_id) do update
    set status = excluded.status, finished_at = excluded.finished_at,
        started_at = coalesce(excluded.started_at, task.started_at),
        fence = excluded.fence, failures = excluded.failures, crashes = excluded.crashes,
        last_token = excluded.last_token, result = excluded.result, result_encoding = excluded.result_encoding,
        failure_kind = coalesce(excluded.failure_kind, task.failure_kind),
        failure_message = case
            when excluded.failure_kind is null then task.failure_message
            when excluded.failure_kind = 7 and task.failure_message is not null
                then left('expires_at passed before it could run again; the last failure: ' || task.failure_message, 1024)
            else excluded.failure_message
        end,
        failed_at = coalesce(excluded.failed_at, task.failed_at),
        checkpoint = case when excluded.status::text <> 'success' then task.checkpoint end,
        enqueued_at = excluded.enqueued_at, claimed_at = excluded.claimed_at, holder = excluded.holder,
        events = case
            when excluded.events is null then task.events
            when task.events is null then excluded.events
            else duly_bound_events(task.events || excluded.events)
        end
    where task.status is null
), released as (
    select released.lambda, released.due_in
    from (
        select array_agg(session) as sessions, array_agg(session_policy) as policies, array_agg(graph) as graphs,
            array_agg(task_id) as task_ids, array_agg(doom) as dooms,
            -- the only end that keeps this kind is a timeout that is final
            array_agg(
                case when status::text = 'fatal_failure' and failure_kind = 3 then 'timed_out' else status::text end
            ) as statuses,
            array_agg(resources) as resources, array_agg(taken) as taken
        from done
        where session is not null or graph is not null or resources is not null
    ) as linked cross join lateral duly_release(
        linked.sessions, linked.policies, linked.graphs, linked.task_ids, linked.statuses, linked.dooms, linked.resources,
        linked.taken
    ) as released
)
select done.task_id, done.token, coalesce(done.lambda, released.lambda) as lambda,
    case
        when done.task_id is null then released.due_in
        when done.status = 'retriable_failure' then done.ended_at + done.wait - (select duly_now())
    end as due_in
from done full join released on false;

-- name: snooze
with asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(tokens)b::uuid[], %(retry_after)b::interval[],
        %(failure_messages)b::text[], %(started_at)b::timestamptz[]
    ) as asked (task_id, token, retry_after, message, started_at)
), held as (
    select asked.*, assoc.holder, assoc.enqueued_at, assoc.claimed_at, assoc.taken
    from asked join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.token = asked.token and assoc.status::text in ('claimed', 'processing')
    for update of assoc
), snoozed as (
    update task_assoc as assoc
    set status = 'new', next_trigger_at = (select duly_now()) + held.retry_after,
        due_at = (select duly_now()) + held.retry_after, taken = null, last_token = held.token, token = null, holder = null, progress = null, progress_note = null,
    overdue_since_at = null, overdue_neighbours = null
    from held
    where assoc.task_id = any (array[held.task_id]) and assoc.token = held.token and assoc.status::text in ('claimed', 'processing')
    returning held.*, assoc.fence, assoc.failures + assoc.crashes + 1 as attempt, 'snoozed' as outcome, assoc.next_trigger_at as next_at,
        (select duly_now()) as ended_at, null::int2 as attempt_kind, held.message as attempt_message,
        null::text as traceback, assoc.resources
), recorded as (
    insert into attempt (
        task_id, fence, attempt, outcome, holder, enqueued_at, claimed_at, started_at, ended_at, failure_kind, failure_message,
        traceback, next_trigger_at
    )
    select task_id, fence, attempt, outcome::attempt_outcome, holder, enqueued_at, claimed_at, started_at, ended_at,
        attempt_kind, left(attempt_message, 1024), traceback, next_at
    from snoozed
    where case when (select exists (select from watch)) then duly_note_run(
    task_id, outcome::text, fence, attempt_kind::int2, ended_at, next_at
) else true end
    on conflict do nothing
), freed as (
    select freed.lambda, freed.due_in
    from (
        select array_agg(resources) as resources, array_agg(taken) as taken from snoozed where resources is not null
    ) as stopped
    cross join lateral duly_free(stopped.resources, stopped.taken) as freed
)
select snoozed.task_id, snoozed.token, coalesce(snoozed.retry_after, freed.due_in) as due_in, freed.lambda
from snoozed full join freed on false;

-- name: hand_over
with asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(tokens)b::uuid[], %(hashes)b::text[], %(complete_within)b::interval[], %(started_at)b::timestamptz[]
    ) as asked (task_id, token, hash, complete_within, started_at)
), held as (
    select asked.*, assoc.holder, assoc.enqueued_at, assoc.claimed_at, assoc.taken
    from asked join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.token = asked.token and assoc.status::text in ('claimed', 'processing')
    for update of assoc
), handed_over as (
    update task_assoc as assoc
    set status = 'waiting', next_trigger_at = (select duly_now()) + held.complete_within,
        parked_on = 'completion:', parked_key = held.hash, taken = null, last_token = held.token, token = null, holder = null, progress = null, progress_note = null,
    overdue_since_at = null, overdue_neighbours = null,
        events = duly_note(assoc.events, 'handed_over', (select duly_now()), (select duly_now()) + held.complete_within)
    from held
    where assoc.task_id = any (array[held.task_id]) and assoc.token = held.token and assoc.status::text in ('claimed', 'processing')
    returning held.*, assoc.fence, assoc.failures + assoc.crashes + 1 as attempt, 'handed_over' as outcome,
        assoc.next_trigger_at as next_at, (select duly_now()) as ended_at, null::int2 as attempt_kind,
        null::text as attempt_message, null::text as traceback, assoc.resources, assoc.cancel_requested
), recorded as (
    insert into attempt (
        task_id, fence, attempt, outcome, holder, enqueued_at, claimed_at, started_at, ended_at, failure_kind, failure_message,
        traceback, next_trigger_at
    )
    select task_id, fence, attempt, outcome::attempt_outcome, holder, enqueued_at, claimed_at, started_at, ended_at,
        attempt_kind, left(attempt_message, 1024), traceback, next_at
    from handed_over
    where case when (select exists (select from watch)) then duly_note_run(
    task_id, outcome::text, fence, attempt_kind::int2, ended_at, next_at
) else true end
    on conflict do nothing
), noted as (
    insert into task (task_id, started_at)
    select task_id, started_at from handed_over where started_at is not null
    on conflict (task_id) do update set started_at = excluded.started_at where task.status is null
), freed as (
    select freed.lambda, freed.due_in
    from (
        select array_agg(resources) as resources, array_agg(taken) as taken from handed_over where resources is not null
    ) as stopped
    cross join lateral duly_free(stopped.resources, stopped.taken) as freed
)
select handed_over.task_id, handed_over.token, handed_over.cancel_requested, freed.lambda, freed.due_in
from handed_over full join freed on false;

-- name: wait_for_event
with asked as (
    select asked.task_id, asked.token, asked.started_at, asked.wait, asked.needs_all,
        coalesce(asked.until_at, (select duly_now()) + asked.timeout) as until_at
    from unnest(
        %(task_ids)b::uuid[], %(tokens)b::uuid[], %(started_at)b::timestamptz[], %(waits)b::text[], %(needs_all)b::bool[],
        %(timeouts)b::interval[], %(until_at)b::timestamptz[]
    ) as asked (task_id, token, started_at, wait, needs_all, timeout, until_at)
), held as (
    select asked.*, assoc.holder, assoc.enqueued_at, assoc.claimed_at, assoc.taken, assoc.lambda
    from asked join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.token = asked.token and assoc.status::text in ('claimed', 'processing')
    for update of assoc
), wanted as materialized (
    select held.task_id, held.wait, held.needs_all, named.key as name, left(held.lambda, greatest(strpos(held.lambda, '/') - 1, 0)) || '/' || named.key as key, entity.created_at,
        entity.received, held.until_at
    from unnest(%(key_task_ids)b::uuid[], %(keys)b::text[]) as named (task_id, key)
    join held on held.task_id = named.task_id
    left join lateral (
        select task.created_at, task.received
        from task
        where task.task_id = held.task_id and task.task_id between (%(task_ids)b::uuid[])[1] and (%(task_ids)b::uuid[])[cardinality(%(task_ids)b::uuid[])]
        limit 1
    ) as entity on true
), found as materialized (
    select wanted.task_id, wanted.wait, wanted.needs_all, wanted.name, wanted.key, event.seq, event.encoding, event.value,
        event.sent_by, event.sent_at, wanted.until_at,
        count(event.seq) over each_task as there, count(*) over each_task as needed,
        row_number() over (partition by wanted.task_id order by event.seq) as place
    from wanted left join lateral (
        select event.seq, event.encoding, event.value, event.sent_by, event.sent_at
        from event
        where event.key = wanted.key and event.sent_at >= wanted.created_at and event.expires_at > (select duly_now())
            and event.seq > coalesce((
                select max((each ->> 'seq')::int8)
                from jsonb_array_elements(wanted.received) as each
                where each ->> 'key' = wanted.name
            ), 0)
        order by event.key, event.seq
        limit 1
    ) as event on true
    window each_task as (partition by wanted.task_id)
), judged as (
    select task_id, bool_and(case when needs_all then there = needed else there > 0 end) as is_over,
        string_agg(name, ', ' order by name) as names,
        string_agg(name, ', ' order by seq) filter (where seq is not null and (needs_all or place = 1)) as received_names,
        jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
    'wait', found.wait, 'key', found.name, 'seq', found.seq, 'encoding', found.encoding,
    'value', translate(encode(found.value, 'base64'), E'\n', ''), 'sent_by', found.sent_by,
    'sent_at', (extract(epoch from found.sent_at) * 1000000)::int8, 'until', (extract(epoch from found.until_at) * 1000000)::int8
)) order by seq) filter (where seq is not null and (needs_all or place = 1)) as received
    from found
    group by task_id
), waited as (
    update task_assoc as assoc
    set status = case when judged.is_over then 'new' else 'waiting' end::task_status,
        next_trigger_at = case
            when judged.is_over then (select duly_now())
            else least(held.until_at, coalesce(assoc.expires_at, 'infinity'))
        end,
        due_at = case when judged.is_over then (select duly_now()) else assoc.due_at end,
        parked_on = case when not judged.is_over then 'event:' end,
        parked_key = case when not judged.is_over then left(judged.names, 400) end,
        edits = assoc.edits + (judged.received is not null)::int, taken = null, last_token = held.token, token = null, holder = null, progress = null, progress_note = null,
    overdue_since_at = null, overdue_neighbours = null,
        events = case
            when judged.is_over then duly_note(assoc.events, 'event_received', (select duly_now()), null, judged.received_names)
            else duly_note(assoc.events, 'event_awaited', (select duly_now()), held.until_at, judged.names)
        end
    from held join judged on judged.task_id = held.task_id
    where assoc.task_id = any (array[held.task_id]) and assoc.token = held.token and assoc.status::text in ('claimed', 'processing')
    returning held.*, judged.is_over, judged.received, assoc.fence, assoc.failures + assoc.crashes + 1 as attempt, 'waited' as outcome,
        assoc.next_trigger_at as next_at, (select duly_now()) as ended_at, null::int2 as attempt_kind,
        'waits for ' || judged.names as attempt_message, null::text as traceback, assoc.resources, assoc.cancel_requested
), waits as (
    insert into event_wait (key, task_id, fence, wait, needs_all)
    select found.key, found.task_id, waited.fence, found.wait, found.needs_all
    from found join waited on waited.task_id = found.task_id
    where not waited.is_over and found.seq is null
    on conflict (key, task_id) do update set fence = excluded.fence, wait = excluded.wait, needs_all = excluded.needs_all
), kept as (
    insert into task (task_id, started_at, received)
    select task_id, started_at, received from waited
    on conflict (task_id) do update
    set started_at = coalesce(excluded.started_at, task.started_at),
        received = coalesce(task.received || excluded.received, task.received, excluded.received),
        checkpoint_count = task.checkpoint_count + (excluded.received is not null)::int
    where task.status is null
), recorded as (
    insert into attempt (
        task_id, fence, attempt, outcome, holder, enqueued_at, claimed_at, started_at, ended_at, failure_kind, failure_message,
        traceback, next_trigger_at
    )
    select task_id, fence, attempt, outcome::attempt_outcome, holder, enqueued_at, claimed_at, started_at, ended_at,
        attempt_kind, left(attempt_message, 1024), traceback, next_at
    from waited
    where case when (select exists (select from watch)) then duly_note_run(
    task_id, outcome::text, fence, attempt_kind::int2, ended_at, next_at
) else true end
    on conflict do nothing
), freed as (
    select freed.lambda, freed.due_in
    from (
        select array_agg(resources) as resources, array_agg(taken) as taken from waited where resources is not null
    ) as stopped
    cross join lateral duly_free(stopped.resources, stopped.taken) as freed
)
select waited.task_id, waited.token, waited.is_over, waited.cancel_requested, coalesce(waited.lambda, freed.lambda) as lambda,
    freed.due_in
from waited full join freed on false;

-- name: end_event_waits
with held as materialized (
    select assoc.task_id, assoc.fence, assoc.next_trigger_at as until_at
    from unnest(%(task_ids)b::uuid[]) as asked (task_id)
    join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.status::text = 'waiting' and assoc.parked_on = 'event:'
), waiting as materialized (
    select held.task_id, wait.key, substr(wait.key, strpos(wait.key, '/') + 1) as name, wait.wait, wait.needs_all, event.seq, event.encoding,
        event.value, event.sent_by, event.sent_at, held.until_at,
        row_number() over (partition by held.task_id order by event.seq) as place,
        count(*) over (partition by held.task_id) as there,
        (
            select count(*) from event_wait as needed where needed.task_id = held.task_id and needed.fence = held.fence
        ) as needed
    from held
    cross join lateral (
        select wait.key, wait.wait, wait.needs_all
        from event_wait as wait
        where wait.task_id = held.task_id and wait.fence = held.fence
        offset 0
    ) as wait
    cross join lateral (
        select *
        from event
        where event.key = wait.key and event.expires_at > (select duly_now())
            and event.seq > coalesce((%(seqs)b::int8[])[array_position(%(keys)b::text[], wait.key)] - 1, (
                select greatest(
                    (
                        select max((each ->> 'seq')::int8)
                        from jsonb_array_elements(task.received) as each
                        where each ->> 'key' = substr(wait.key, strpos(wait.key, '/') + 1)
                    ),
                    (select max(old.seq) from event as old where old.key = wait.key and old.sent_at < task.created_at)
                )
                from task
                where task.task_id = held.task_id and task.task_id between (%(task_ids)b::uuid[])[1] and (%(task_ids)b::uuid[])[cardinality(%(task_ids)b::uuid[])]
                limit 1
            ), 0)
        order by event.key, event.seq
        limit 1
    ) as event
), judged as (
    select task_id, bool_and(not needs_all or there = needed) as is_over, null::timestamptz as started_at,
        array_agg(key) as keys, string_agg(name, ', ' order by seq) filter (where needs_all or place = 1) as names,
        (array_agg(sent_by order by seq))[1] as sent_by,
        jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
    'wait', waiting.wait, 'key', waiting.name, 'seq', waiting.seq, 'encoding', waiting.encoding,
    'value', translate(encode(waiting.value, 'base64'), E'\n', ''), 'sent_by', waiting.sent_by,
    'sent_at', (extract(epoch from waiting.sent_at) * 1000000)::int8, 'until', (extract(epoch from waiting.until_at) * 1000000)::int8
)) order by seq) filter (where needs_all or place = 1) as received
    from waiting
    group by task_id
), moved as (
    update task_assoc as assoc
    set status = case when judged.is_over then 'new' else 'waiting' end::task_status,
        next_trigger_at = case when judged.is_over then (select duly_now()) else assoc.next_trigger_at end,
        due_at = case when judged.is_over then (select duly_now()) else assoc.due_at end,
        parked_on = case when not judged.is_over then assoc.parked_on end,
        parked_key = case when not judged.is_over then assoc.parked_key end,
        edits = assoc.edits + 1,
        events = duly_note(assoc.events, 'event_received', (select duly_now()), null, judged.names, judged.sent_by)
    from judged
    where assoc.task_id = any (array[judged.task_id]) and assoc.status::text = 'waiting' and assoc.parked_on = 'event:'
    returning judged.*, assoc.lambda
), over as (
    delete from event_wait as wait
    using moved
    where wait.task_id = any (array[moved.task_id]) and (moved.is_over or wait.key = any (moved.keys))
), kept as (
    insert into task (task_id, started_at, received)
    select task_id, started_at, received from moved
    on conflict (task_id) do update
    set started_at = coalesce(excluded.started_at, task.started_at),
        received = coalesce(task.received || excluded.received, task.received, excluded.received),
        checkpoint_count = task.checkpoint_count + (excluded.received is not null)::int
    where task.status is null
)
select waiting.seq, moved.task_id, moved.lambda, moved.is_over
from moved join waiting on waiting.task_id = moved.task_id
where waiting.needs_all or waiting.place = 1;

-- name: time_out_event_waits
with late as (
    select assoc.task_id, assoc.fence
    from task_assoc as assoc
    where assoc.status = 'waiting' and assoc.next_trigger_at < 'infinity' and assoc.next_trigger_at <= (select duly_now())
        and assoc.parked_on = 'event:'
    order by assoc.next_trigger_at
    limit %(limit)b
    for update skip locked
), timed_out as (
    update task_assoc as assoc
    set status = 'new', next_trigger_at = (select duly_now()), due_at = (select duly_now()), parked_on = null, parked_key = null,
        edits = assoc.edits + 1,
        events = duly_note(assoc.events, 'event_timed_out', (select duly_now()), null, assoc.parked_key)
    from late
    where assoc.task_id = any (array[late.task_id]) and assoc.status::text = 'waiting' and assoc.parked_on = 'event:'
    returning assoc.task_id, late.fence, assoc.lambda
), told as (
    select timed_out.task_id, null::timestamptz as started_at,
        jsonb_build_array(jsonb_build_object('wait', wait.wait, 'timed_out', true)) as received
    from timed_out left join lateral (
        select wait.wait from event_wait as wait where wait.task_id = timed_out.task_id and wait.fence = timed_out.fence limit 1
    ) as wait on true
), over as (
    delete from event_wait as wait using timed_out where wait.task_id = any (array[timed_out.task_id])
), kept as (
    insert into task (task_id, started_at, received)
    select task_id, started_at, received from told
    on conflict (task_id) do update
    set started_at = coalesce(excluded.started_at, task.started_at),
        received = coalesce(task.received || excluded.received, task.received, excluded.received),
        checkpoint_count = task.checkpoint_count + (excluded.received is not null)::int
    where task.status is null
)
select lambda, count(*) from timed_out group by lambda;

-- name: complete
with asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(hashes)b::text[], %(results)b::bytea[], %(encodings)b::int2[], %(by)b::text[]
    ) as asked (task_id, hash, result, encoding, by)
), ended as (
    delete from task_assoc as assoc
    using asked
    where assoc.task_id = any (array[asked.task_id]) and assoc.status::text = 'waiting' and assoc.parked_on = 'completion:' and assoc.parked_key = asked.hash
    returning assoc.task_id, 'success'::task_status as status, (select duly_now()) as ended_at, null::timestamptz as started_at,
        assoc.fence, assoc.failures, assoc.crashes, left(asked.hash, 32)::uuid as last_token, asked.result,
        asked.encoding as result_encoding, assoc.enqueued_at, assoc.claimed_at, null::text as holder, assoc.lambda, assoc.session, assoc.session_policy, assoc.graph,
        assoc.doom, assoc.resources, assoc.taken,
        duly_note(assoc.events, 'completed', (select duly_now()), null, null, asked.by) as events, asked.hash, null::int2 as failure_kind, null::text as failure_message
), entity as (
    insert into task (
        task_id, status, finished_at, started_at, fence, failures, crashes, last_token, result, result_encoding,
        failure_kind, failure_message, failed_at, events, enqueued_at, claimed_at, holder
    )
    select task_id, status::task_status, ended_at, started_at, fence, failures, crashes, last_token, result,
        result_encoding, failure_kind, failure_message, case when failure_kind is not null then ended_at end, events,
        case when status = 'success' then enqueued_at end, case when status = 'success' then claimed_at end,
        -- not of the first run: a plain task's row must not outgrow the free half of its page (decision 0043)
        case when status = 'success' and fence > 1 then holder end
    from ended
    where case when (select exists (select from watch)) then duly_note_end(
    task_id, lambda, graph, session, status::text, fence, failure_kind::int2, ended_at
) else true end
    on conflict (task_id) do update
    set status = excluded.status, finished_at = excluded.finished_at,
        started_at = coalesce(excluded.started_at, task.started_at),
        fence = excluded.fence, failures = excluded.failures, crashes = excluded.crashes,
        last_token = excluded.last_token, result = excluded.result, result_encoding = excluded.result_encoding,
        failure_kind = coalesce(excluded.failure_kind, task.failure_kind),
        failure_message = case
            when excluded.failure_kind is null then task.failure_message
            when excluded.failure_kind = 7 and task.failure_message is not null
                then left('expires_at passed before it could run again; the last failure: ' || task.failure_message, 1024)
            else excluded.failure_message
        end,
        failed_at = coalesce(excluded.failed_at, task.failed_at),
        checkpoint = case when excluded.status::text <> 'success' then task.checkpoint end,
        enqueued_at = excluded.enqueued_at, claimed_at = excluded.claimed_at, holder = excluded.holder,
        events = case
            when excluded.events is null then task.events
            when task.events is null then excluded.events
            else duly_bound_events(task.events || excluded.events)
        end
    where task.status is null
), released as (
    select released.lambda, released.due_in
    from (
        select array_agg(session) as sessions, array_agg(session_policy) as policies, array_agg(graph) as graphs,
            array_agg(task_id) as task_ids, array_agg(doom) as dooms,
            -- the only end that keeps this kind is a timeout that is final
            array_agg(
                case when status::text = 'fatal_failure' and failure_kind = 3 then 'timed_out' else status::text end
            ) as statuses,
            array_agg(resources) as resources, array_agg(taken) as taken
        from ended
        where session is not null or graph is not null or resources is not null
    ) as linked cross join lateral duly_release(
        linked.sessions, linked.policies, linked.graphs, linked.task_ids, linked.statuses, linked.dooms, linked.resources,
        linked.taken
    ) as released
)
select ended.hash, released.lambda, released.due_in from ended full join released on false;

-- name: fail_handed_over
with clock as materialized (
    select duly_now() as now
), asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(hashes)b::text[], %(outcomes)b::text[], %(retry_after)b::interval[], %(failure_kinds)b::int2[],
        %(failure_messages)b::text[]
    ) as asked (task_id, hash, outcome, retry_after, failure_kind, failure_message)
), held as (
    select asked.*, clock.now, assoc.lambda, assoc.enqueued_at, assoc.claimed_at, assoc.fence, assoc.failures, assoc.crashes,
        asked.outcome = 'fatal_failure' or assoc.failures + 1 >= coalesce(lambda.max_attempts, 10) as is_last,
        coalesce(asked.retry_after, duly_backoff(
            coalesce(lambda.backoff_initial, interval '0 days 1 seconds'), coalesce(lambda.backoff_factor, 2), coalesce(lambda.backoff_max, interval '0 days 600 seconds'), assoc.failures + assoc.crashes
        )) as wait
    from clock cross join asked
    join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    left join lambda on lambda.name = any (array[assoc.lambda])
    where assoc.status::text = 'waiting' and assoc.parked_on = 'completion:' and assoc.parked_key = asked.hash
        and (asked.failure_kind <> 16 or assoc.next_trigger_at <= clock.now)
    for update of assoc
), planned as (
    select task_id, hash, left(hash, 32)::uuid as last_token,
        case when is_last then 'fatal_failure' else 'retriable_failure' end as status, now as ended_at, wait,
        null::timestamptz as started_at, fence, null::text as holder, enqueued_at, claimed_at,
        case when not is_last then now + wait end as next_at, outcome, failures + crashes + 1 as attempt,
        failures + 1 as failures, crashes, null::bytea as result, null::int2 as result_encoding, failure_kind as attempt_kind, failure_message as attempt_message,
        case when is_last and outcome <> 'fatal_failure' then 6 else failure_kind end as failure_kind,
        case
            when is_last and outcome <> 'fatal_failure'
                then left('failed ' || failures + 1 || ' times; the last: ' || coalesce(failure_message, ''), 1024)
            else failure_message
        end as failure_message
    from held
), retried as (
    update task_assoc as assoc
    set status = 'retriable_failure', next_trigger_at = planned.next_at, due_at = planned.next_at, failures = planned.failures,
        last_token = planned.last_token, parked_on = null, parked_key = null
    from planned
    where assoc.task_id = any (array[planned.task_id]) and assoc.status::text = 'waiting' and assoc.parked_on = 'completion:' and assoc.parked_key = planned.hash
        and planned.status = 'retriable_failure'
    returning planned.*, assoc.lambda, null::text as session, null::int2 as session_policy, null::uuid as graph, null::int2 as doom, assoc.resources,
    null::jsonb as taken, null::jsonb as events
), ended as (
    delete from task_assoc as assoc
    using planned
    where assoc.task_id = any (array[planned.task_id]) and assoc.status::text = 'waiting' and assoc.parked_on = 'completion:' and assoc.parked_key = planned.hash
        and planned.status = 'fatal_failure'
    returning planned.*, assoc.lambda, assoc.session, assoc.session_policy, assoc.graph, assoc.doom, assoc.resources, assoc.taken, assoc.events
), done as (
    select * from retried union all select * from ended
), rewritten as (
    insert into attempt (task_id, fence, attempt, outcome, holder, ended_at, failure_kind, failure_message, next_trigger_at)
    select task_id, fence, attempt, outcome::attempt_outcome, 'unknown', ended_at, attempt_kind, left(attempt_message, 1024), next_at
    from done
    where case when (select exists (select from watch)) then duly_note_run(
    task_id, outcome::text, fence, attempt_kind::int2, ended_at, next_at
) else true end
    on conflict (task_id, fence) do update
    set outcome = excluded.outcome, ended_at = excluded.ended_at, failure_kind = excluded.failure_kind,
        failure_message = excluded.failure_message, next_trigger_at = excluded.next_trigger_at
), noted as (
    insert into task (task_id, started_at, failure_kind, failure_message, failed_at)
    select task_id, started_at, failure_kind, failure_message, ended_at from retried
    on conflict (task_id) do update
    set started_at = coalesce(excluded.started_at, task.started_at), failure_kind = excluded.failure_kind,
        failure_message = excluded.failure_message, failed_at = excluded.failed_at
    where task.status is null
), entity as (
    insert into task (
        task_id, status, finished_at, started_at, fence, failures, crashes, last_token, result, result_encoding,
        failure_kind, failure_message, failed_at, events, enqueued_at, claimed_at, holder
    )
    select task_id, status::task_status, ended_at, started_at, fence, failures, crashes, last_token, result,
        result_encoding, failure_kind, failure_message, case when failure_kind is not null then ended_at end, events,
        case when status = 'success' then enqueued_at end, case when status = 'success' then claimed_at end,
        -- not of the first run: a plain task's row must not outgrow the free half of its page (decision 0043)
        case when status = 'success' and fence > 1 then holder end
    from ended
    where case when (select exists (select from watch)) then duly_note_end(
    task_id, lambda, graph, session, status::text, fence, failure_kind::int2, ended_at
) else true end
    on conflict (task_id) do update
    set status = excluded.status, finished_at = excluded.finished_at,
        started_at = coalesce(excluded.started_at, task.started_at),
        fence = excluded.fence, failures = excluded.failures, crashes = excluded.crashes,
        last_token = excluded.last_token, result = excluded.result, result_encoding = excluded.result_encoding,
        failure_kind = coalesce(excluded.failure_kind, task.failure_kind),
        failure_message = case
            when excluded.failure_kind is null then task.failure_message
            when excluded.failure_kind = 7 and task.failure_message is not null
                then left('expires_at passed before it could run again; the last failure: ' || task.failure_message, 1024)
            else excluded.failure_message
        end,
        failed_at = coalesce(excluded.failed_at, task.failed_at),
        checkpoint = case when excluded.status::text <> 'success' then task.checkpoint end,
        enqueued_at = excluded.enqueued_at, claimed_at = excluded.claimed_at, holder = excluded.holder,
        events = case
            when excluded.events is null then task.events
            when task.events is null then excluded.events
            else duly_bound_events(task.events || excluded.events)
        end
    where task.status is null
), released as (
    select released.lambda, released.due_in
    from (
        select array_agg(session) as sessions, array_agg(session_policy) as policies, array_agg(graph) as graphs,
            array_agg(task_id) as task_ids, array_agg(doom) as dooms,
            -- the only end that keeps this kind is a timeout that is final
            array_agg(
                case when status::text = 'fatal_failure' and failure_kind = 3 then 'timed_out' else status::text end
            ) as statuses,
            array_agg(resources) as resources, array_agg(taken) as taken
        from done
        where session is not null or graph is not null or resources is not null
    ) as linked cross join lateral duly_release(
        linked.sessions, linked.policies, linked.graphs, linked.task_ids, linked.statuses, linked.dooms, linked.resources,
        linked.taken
    ) as released
)
select done.hash, done.status, coalesce(done.lambda, released.lambda) as lambda,
    case when done.task_id is null then released.due_in else done.next_at - (select duly_now()) end as due_in
from done full join released on false;

-- name: release
with asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(tokens)b::uuid[], %(started_at)b::timestamptz[], %(reasons)b::text[]
    ) as asked (task_id, token, started_at, reason)
), held as (
    select asked.*, assoc.holder, assoc.enqueued_at, assoc.claimed_at, assoc.taken
    from asked join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.token = asked.token and assoc.status::text in ('claimed', 'processing')
    for update of assoc
), released as (
    update task_assoc as assoc
    set status = 'new', next_trigger_at = (select duly_now()), taken = null, last_token = held.token, token = null, holder = null, progress = null, progress_note = null,
    overdue_since_at = null, overdue_neighbours = null
    from held
    where assoc.task_id = any (array[held.task_id]) and assoc.token = held.token and assoc.status::text in ('claimed', 'processing')
    returning held.*, assoc.fence, assoc.failures + assoc.crashes + 1 as attempt, 'released' as outcome, assoc.next_trigger_at as next_at,
        (select duly_now()) as ended_at, null::int2 as attempt_kind, held.reason as attempt_message,
        null::text as traceback, assoc.resources
), recorded as (
    insert into attempt (
        task_id, fence, attempt, outcome, holder, enqueued_at, claimed_at, started_at, ended_at, failure_kind, failure_message,
        traceback, next_trigger_at
    )
    select task_id, fence, attempt, outcome::attempt_outcome, holder, enqueued_at, claimed_at, started_at, ended_at,
        attempt_kind, left(attempt_message, 1024), traceback, next_at
    from released
    where case when (select exists (select from watch)) then duly_note_run(
    task_id, outcome::text, fence, attempt_kind::int2, ended_at, next_at
) else true end
    on conflict do nothing
), freed as (
    select freed.lambda, freed.due_in
    from (
        select array_agg(resources) as resources, array_agg(taken) as taken from released where resources is not null
    ) as stopped
    cross join lateral duly_free(stopped.resources, stopped.taken) as freed
)
select released.task_id, released.token from released full join freed on false;

-- name: cancel
with ended as (
    delete from task_assoc as assoc
    using unnest(%(task_ids)b::uuid[]) as asked (task_id)
    where assoc.task_id = any (array[asked.task_id]) and assoc.status::text in ('new', 'retriable_failure', 'enqueued')
        and (assoc.cancel_requested or not %(only_if_requested)b)
    returning assoc.task_id, 'cancelled'::task_status as status, (select duly_now()) as ended_at, null::timestamptz as started_at,
        assoc.fence, assoc.failures, assoc.crashes, assoc.last_token, assoc.lambda, assoc.session, assoc.session_policy, assoc.graph, assoc.doom, assoc.resources, assoc.taken,
    duly_note(assoc.events, 'cancelled', (select duly_now()), null, null, %(by)b::text) as events, null::timestamptz as enqueued_at, null::timestamptz as claimed_at, null::text as holder, null::bytea as result, null::int2 as result_encoding, null::int2 as failure_kind, null::text as failure_message
), entity as (
    insert into task (
        task_id, status, finished_at, started_at, fence, failures, crashes, last_token, result, result_encoding,
        failure_kind, failure_message, failed_at, events, enqueued_at, claimed_at, holder
    )
    select task_id, status::task_status, ended_at, started_at, fence, failures, crashes, last_token, result,
        result_encoding, failure_kind, failure_message, case when failure_kind is not null then ended_at end, events,
        case when status = 'success' then enqueued_at end, case when status = 'success' then claimed_at end,
        -- not of the first run: a plain task's row must not outgrow the free half of its page (decision 0043)
        case when status = 'success' and fence > 1 then holder end
    from ended
    where case when (select exists (select from watch)) then duly_note_end(
    task_id, lambda, graph, session, status::text, fence, failure_kind::int2, ended_at
) else true end
    on conflict (task_id) do update
    set status = excluded.status, finished_at = excluded.finished_at,
        started_at = coalesce(excluded.started_at, task.started_at),
        fence = excluded.fence, failures = excluded.failures, crashes = excluded.crashes,
        last_token = excluded.last_token, result = excluded.result, result_encoding = excluded.result_encoding,
        failure_kind = coalesce(excluded.failure_kind, task.failure_kind),
        failure_message = case
            when excluded.failure_kind is null then task.failure_message
            when excluded.failure_kind = 7 and task.failure_message is not null
                then left('expires_at passed before it could run again; the last failure: ' || task.failure_message, 1024)
            else excluded.failure_message
        end,
        failed_at = coalesce(excluded.failed_at, task.failed_at),
        checkpoint = case when excluded.status::text <> 'success' then task.checkpoint end,
        enqueued_at = excluded.enqueued_at, claimed_at = excluded.claimed_at, holder = excluded.holder,
        events = case
            when excluded.events is null then task.events
            when task.events is null then excluded.events
            else duly_bound_events(task.events || excluded.events)
        end
    where task.status is null
), released as (
    select released.lambda, released.due_in
    from (
        select array_agg(session) as sessions, array_agg(session_policy) as policies, array_agg(graph) as graphs,
            array_agg(task_id) as task_ids, array_agg(doom) as dooms,
            -- the only end that keeps this kind is a timeout that is final
            array_agg(
                case when status::text = 'fatal_failure' and failure_kind = 3 then 'timed_out' else status::text end
            ) as statuses,
            array_agg(resources) as resources, array_agg(taken) as taken
        from ended
        where session is not null or graph is not null or resources is not null
    ) as linked cross join lateral duly_release(
        linked.sessions, linked.policies, linked.graphs, linked.task_ids, linked.statuses, linked.dooms, linked.resources,
        linked.taken
    ) as released
)
select ended.task_id, released.lambda, released.due_in from ended full join released on false;

-- name: cancel_waiting
with ended as (
    delete from task_assoc as assoc
    using unnest(%(task_ids)b::uuid[]) as asked (task_id)
    where assoc.task_id = any (array[asked.task_id]) and assoc.status::text = 'waiting'
        and (assoc.graph is null or assoc.doom is null) and (assoc.session is null or assoc.task_id <> all (%(without_session)b::uuid[]))
    returning assoc.task_id, 'cancelled'::task_status as status, (select duly_now()) as ended_at, null::timestamptz as started_at,
        assoc.fence, assoc.failures, assoc.crashes, case when assoc.parked_on = 'completion:' then left(assoc.parked_key, 32)::uuid else assoc.last_token end as last_token, assoc.lambda, assoc.session, assoc.session_policy, assoc.graph, assoc.doom, assoc.resources, assoc.taken,
    duly_note(assoc.events, 'cancelled', (select duly_now()), null, null, %(by)b::text) as events, null::timestamptz as enqueued_at, null::timestamptz as claimed_at, null::text as holder, null::bytea as result, null::int2 as result_encoding, null::int2 as failure_kind, null::text as failure_message
), entity as (
    insert into task (
        task_id, status, finished_at, started_at, fence, failures, crashes, last_token, result, result_encoding,
        failure_kind, failure_message, failed_at, events, enqueued_at, claimed_at, holder
    )
    select task_id, status::task_status, ended_at, started_at, fence, failures, crashes, last_token, result,
        result_encoding, failure_kind, failure_message, case when failure_kind is not null then ended_at end, events,
        case when status = 'success' then enqueued_at end, case when status = 'success' then claimed_at end,
        -- not of the first run: a plain task's row must not outgrow the free half of its page (decision 0043)
        case when status = 'success' and fence > 1 then holder end
    from ended
    where case when (select exists (select from watch)) then duly_note_end(
    task_id, lambda, graph, session, status::text, fence, failure_kind::int2, ended_at
) else true end
    on conflict (task_id) do update
    set status = excluded.status, finished_at = excluded.finished_at,
        started_at = coalesce(excluded.started_at, task.started_at),
        fence = excluded.fence, failures = excluded.failures, crashes = excluded.crashes,
        last_token = excluded.last_token, result = excluded.result, result_encoding = excluded.result_encoding,
        failure_kind = coalesce(excluded.failure_kind, task.failure_kind),
        failure_message = case
            when excluded.failure_kind is null then task.failure_message
            when excluded.failure_kind = 7 and task.failure_message is not null
                then left('expires_at passed before it could run again; the last failure: ' || task.failure_message, 1024)
            else excluded.failure_message
        end,
        failed_at = coalesce(excluded.failed_at, task.failed_at),
        checkpoint = case when excluded.status::text <> 'success' then task.checkpoint end,
        enqueued_at = excluded.enqueued_at, claimed_at = excluded.claimed_at, holder = excluded.holder,
        events = case
            when excluded.events is null then task.events
            when task.events is null then excluded.events
            else duly_bound_events(task.events || excluded.events)
        end
    where task.status is null
), released as (
    select released.lambda, released.due_in
    from (
        select array_agg(session) as sessions, array_agg(session_policy) as policies, array_agg(graph) as graphs,
            array_agg(task_id) as task_ids, array_agg(doom) as dooms,
            -- the only end that keeps this kind is a timeout that is final
            array_agg(
                case when status::text = 'fatal_failure' and failure_kind = 3 then 'timed_out' else status::text end
            ) as statuses,
            array_agg(resources) as resources, array_agg(taken) as taken
        from ended
        where session is not null or graph is not null or resources is not null
    ) as linked cross join lateral duly_release(
        linked.sessions, linked.policies, linked.graphs, linked.task_ids, linked.statuses, linked.dooms, linked.resources,
        linked.taken
    ) as released
)
select ended.task_id, released.lambda, released.due_in from ended full join released on false;

-- name: cancel_graph
with ended as (
    delete from task_assoc as assoc
    using unnest(%(task_ids)b::uuid[]) as asked (task_id)
    where assoc.task_id = any (array[asked.task_id]) and assoc.status::text = 'waiting' and assoc.doom is null
        and assoc.session is null
    returning assoc.task_id, 'cancelled'::task_status as status, (select duly_now()) as ended_at, null::timestamptz as started_at,
        assoc.fence, assoc.failures, assoc.crashes, case when assoc.parked_on = 'completion:' then left(assoc.parked_key, 32)::uuid else assoc.last_token end as last_token, assoc.lambda, assoc.session, assoc.session_policy, assoc.graph, assoc.doom, assoc.resources, assoc.taken,
    duly_note(assoc.events, 'cancelled', (select duly_now()), null, null, %(by)b::text) as events, null::timestamptz as enqueued_at, null::timestamptz as claimed_at, null::text as holder, null::bytea as result, null::int2 as result_encoding, null::int2 as failure_kind, null::text as failure_message
), entity as (
    insert into task (
        task_id, status, finished_at, started_at, fence, failures, crashes, last_token, result, result_encoding,
        failure_kind, failure_message, failed_at, events, enqueued_at, claimed_at, holder
    )
    select task_id, status::task_status, ended_at, started_at, fence, failures, crashes, last_token, result,
        result_encoding, failure_kind, failure_message, case when failure_kind is not null then ended_at end, events,
        case when status = 'success' then enqueued_at end, case when status = 'success' then claimed_at end,
        -- not of the first run: a plain task's row must not outgrow the free half of its page (decision 0043)
        case when status = 'success' and fence > 1 then holder end
    from ended
    where case when (select exists (select from watch)) then duly_note_end(
    task_id, lambda, graph, session, status::text, fence, failure_kind::int2, ended_at
) else true end
    on conflict (task_id) do update
    set status = excluded.status, finished_at = excluded.finished_at,
        started_at = coalesce(excluded.started_at, task.started_at),
        fence = excluded.fence, failures = excluded.failures, crashes = excluded.crashes,
        last_token = excluded.last_token, result = excluded.result, result_encoding = excluded.result_encoding,
        failure_kind = coalesce(excluded.failure_kind, task.failure_kind),
        failure_message = case
            when excluded.failure_kind is null then task.failure_message
            when excluded.failure_kind = 7 and task.failure_message is not null
                then left('expires_at passed before it could run again; the last failure: ' || task.failure_message, 1024)
            else excluded.failure_message
        end,
        failed_at = coalesce(excluded.failed_at, task.failed_at),
        checkpoint = case when excluded.status::text <> 'success' then task.checkpoint end,
        enqueued_at = excluded.enqueued_at, claimed_at = excluded.claimed_at, holder = excluded.holder,
        events = case
            when excluded.events is null then task.events
            when task.events is null then excluded.events
            else duly_bound_events(task.events || excluded.events)
        end
    where task.status is null
), released as (
    select released.lambda, released.due_in
    from (
        select array_agg(session) as sessions, array_agg(session_policy) as policies, array_agg(graph) as graphs,
            array_agg(task_id) as task_ids, array_agg(doom) as dooms,
            -- the only end that keeps this kind is a timeout that is final
            array_agg(
                case when status::text = 'fatal_failure' and failure_kind = 3 then 'timed_out' else status::text end
            ) as statuses,
            array_agg(resources) as resources, array_agg(taken) as taken
        from ended
        where session is not null or graph is not null or resources is not null
    ) as linked cross join lateral duly_release(
        linked.sessions, linked.policies, linked.graphs, linked.task_ids, linked.statuses, linked.dooms, linked.resources,
        linked.taken
    ) as released
)
select ended.task_id, released.lambda, released.due_in from ended full join released on false;

-- name: request_cancel
update task_assoc as assoc
set cancel_requested = true, kill_requested = assoc.kill_requested or %(kill)b,
    events = case
        when %(kill)b and not assoc.kill_requested
            then duly_note(assoc.events, 'kill_requested', (select duly_now()), null, null, %(by)b::text)
        when not assoc.cancel_requested
            then duly_note(assoc.events, 'cancel_requested', (select duly_now()), null, null, %(by)b::text)
        else assoc.events
    end
from unnest(%(task_ids)b::uuid[]) as asked (task_id)
where assoc.task_id = any (array[asked.task_id]) and assoc.status::text in ('claimed', 'processing')
returning assoc.task_id, assoc.status::text;

-- name: redrive
with asked as (
    select * from unnest(%(task_ids)b::uuid[], %(ahead)b::interval[]) as asked (task_id, ahead)
), dead as (
    select task.task_id, task.fence, task.last_token,
        greatest((select duly_now()), coalesce(%(as_of)b::timestamptz, (select duly_now())) + asked.ahead) as due_at
    from asked join task on task.task_id = any (array[asked.task_id]) join lambda on lambda.name = any (array[task.lambda])
    where task.status::text = 'fatal_failure' and (task.unique_key is null or task.task_id = any (%(keyed)b::uuid[]))
        and (%(as_of)b::timestamptz is null or task.finished_at <= %(as_of)b::timestamptz)
    for update of task
), redriven as (
    update task
    set status = null, started_at = null, finished_at = null, fence = null, failures = null, crashes = null,
        last_token = null,
        expires_at = case when task.expires_at > dead.due_at then task.expires_at end,
        redrives = task.redrives + 1, edits = 0, received = jsonb_path_query_array(task.received, '$[*] ? (!exists (@.timed_out))'), checkpoint_count = 0, enqueued_at = null, claimed_at = null, holder = null,
        events = duly_note(
            duly_note(task.events, 'failed', task.finished_at, null, task.failure_message),
            'redriven', (select duly_now()), dead.due_at, null, %(by)b::text
        )
    from dead
    where task.task_id = any (array[dead.task_id]) and task.status::text = 'fatal_failure'
    returning task.task_id, task.lambda, task.collection, task.priority, task.expires_at, task.resources, task.fair_key, dead.due_at, dead.fence, dead.last_token, task.session, task.session_order,
        task.session_policy
), found_no_more as (
    delete from dead_letter using redriven where dead_letter.task_id = any (array[redriven.task_id])
), assoc as (
    insert into task_assoc (task_id, lambda, collection, priority, expires_at, resources, fair_key, status, next_trigger_at, due_at, fence, last_token)
    select task_id, lambda, collection, priority, expires_at, resources, fair_key, 'new', due_at, due_at, fence, last_token
    from redriven
    where session is null
), in_session as (
    select * from redriven where session is not null order by task_id
), numbered as (
    select asked.*, row_number() over () as number,
        case when session_order = 2 then due_at else '-infinity' end as rank
    from in_session as asked
), line as (
    insert into session (key, head, length, last_seq)
    select session, (array_agg(task_id order by rank, number))[1], count(*), max(number)
    from numbered
    group by session
    order by session collate "C"
    on conflict (key) do update
    set length = session.length + excluded.length, last_seq = session.last_seq + excluded.last_seq,
        head = case
            when session.blocked_by in (select task_id from numbered) then session.blocked_by
            when session.length = 0 and session.blocked_by is null then excluded.head
            else session.head
        end,
        blocked_by = case when session.blocked_by not in (select task_id from numbered) then session.blocked_by end,
        blocked_at = case when session.blocked_by not in (select task_id from numbered) then session.blocked_at end
    returning key, head, last_seq
), lines as materialized (
    -- one object, for a join of two CTEs would compare each row with each
    select jsonb_object_agg(key, jsonb_build_array(head, last_seq)) as by_key from line
), placed as (
    select *, (line -> 0) #>> '{}' as session_head, (line -> 1)::int8 - max(number) over (partition by session) + number as seq
    from (select *, (select by_key from lines) -> session as line from numbered) as each
), joined as (
    insert into task_assoc (
        task_id, lambda, collection, priority, expires_at, resources, fair_key, status, next_trigger_at, due_at, fence, last_token, session, session_rank, session_seq,
        session_policy
    )
    select task_id, lambda, collection, priority, expires_at, resources, fair_key,
        (case when task_id::text = session_head then 'new' else 'waiting' end)::task_status,
        case when task_id::text = session_head then due_at else coalesce(expires_at, 'infinity') end,
        due_at, fence, last_token, session, rank, seq, session_policy
    from placed
    returning task_id, status, due_at, session, session_rank
), ordered as (
    select duly_put_earlier_first(array_agg(distinct session)) as done
    from joined
    where session_rank > '-infinity'
)
select task_id, due_at - (select duly_now()) as due_in, 'new' as status from redriven where session is null
union all
select joined.task_id, joined.due_at - (select duly_now()), joined.status::text
from joined, (select count(done) from ordered) as once;

-- name: unblock_sessions
select asked.key
from (select key from unnest(%(keys)b::text[]) as asked (key) order by key collate "C") as asked
where duly_unblock_session(asked.key, %(by)b::text);

-- name: update_pending
with clock as materialized (
    select duly_now() as now
), asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(payloads)b::bytea[], %(encodings)b::int2[], %(priorities)b::int2[],
        %(scheduled_at)b::timestamptz[], %(delays)b::interval[]
    ) as asked (task_id, payload, encoding, priority, scheduled_at, delay)
), found as (
    select asked.*, coalesce(lambda.payload_limit, 262144) as payload_limit,
        greatest((select now from clock), coalesce(asked.scheduled_at, (select now from clock) + asked.delay)) as due_at,
        asked.scheduled_at is not null or asked.delay is not null as is_moved, assoc.resources, assoc.taken
    from asked join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    left join lambda on lambda.name = any (array[assoc.lambda])
    where assoc.status::text in ('new', 'retriable_failure', 'enqueued')
    for update of assoc
), changed as (
    update task_assoc as assoc
    set status = 'new', taken = null,
        next_trigger_at = case
            when found.is_moved then found.due_at
            when assoc.status = 'enqueued' then (select now from clock)
            else assoc.next_trigger_at
        end,
        due_at = case when found.is_moved then found.due_at else assoc.due_at end,
        priority = coalesce(found.priority, assoc.priority), edits = assoc.edits + 1,
        events = duly_note(
            assoc.events, 'updated', (select now from clock), case
                when found.is_moved then found.due_at
                when assoc.status = 'enqueued' then (select now from clock)
                else assoc.next_trigger_at
            end, concat_ws(', ',
    case when found.payload is not null then 'payload' end,
    case when found.priority is not null then 'priority' end,
    case when found.is_moved then 'due time' end
), %(by)b::text
        )
    from found
    where assoc.task_id = any (array[found.task_id])
        and assoc.status::text in ('new', 'retriable_failure', 'enqueued')
        and coalesce(octet_length(found.payload), 0) <= found.payload_limit
        and not (found.is_moved and coalesce(assoc.session_rank, '-infinity') > '-infinity')
    returning found.*, assoc.status::text as status, assoc.next_trigger_at, assoc.priority as priority_now
), entity as (
    insert into task (task_id, payload, payload_encoding, result_encoding, priority, scheduled_at)
    select task_id, coalesce(payload, ''), coalesce(encoding, 1), encoding, priority_now,
        case when is_moved then due_at else 'epoch' end
    from changed
    on conflict (task_id) do update
    set payload = case when excluded.result_encoding is not null then excluded.payload else task.payload end,
        payload_encoding = coalesce(excluded.result_encoding, task.payload_encoding),
        priority = excluded.priority,
        scheduled_at = coalesce(nullif(excluded.scheduled_at, 'epoch'), task.scheduled_at),
        edits = task.edits + 1,
        scheduled_as = case
            when task.scheduled_as is null and (excluded.result_encoding is not null or excluded.priority <> task.priority)
                then sha256(task.payload || int2send(task.payload_encoding) || int2send(task.priority))
            else task.scheduled_as
        end
    where task.status is null
), freed as (
    select freed.lambda, freed.due_in
    from (
        select array_agg(resources) as resources, array_agg(taken) as taken from changed where resources is not null
    ) as stopped
    cross join lateral duly_free(stopped.resources, stopped.taken) as freed
)
select asked.task_id, coalesce(assoc.lambda, freed.lambda) as lambda, assoc.status::text as was,
    coalesce(lambda.payload_limit, 262144) as payload_limit, coalesce(assoc.session_rank, '-infinity') > '-infinity' as is_ordered_by_time,
    changed.status, coalesce(changed.next_trigger_at - (select now from clock), freed.due_in) as due_in
from asked join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
left join lambda on lambda.name = any (array[assoc.lambda])
left join changed on changed.task_id = any (array[asked.task_id])
full join freed on false;

-- name: update_waiting
with clock as materialized (
    select duly_now() as now
), asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(payloads)b::bytea[], %(encodings)b::int2[], %(priorities)b::int2[],
        %(scheduled_at)b::timestamptz[], %(delays)b::interval[]
    ) as asked (task_id, payload, encoding, priority, scheduled_at, delay)
), found as (
    select asked.*, coalesce(lambda.payload_limit, 262144) as payload_limit,
        greatest((select now from clock), coalesce(asked.scheduled_at, (select now from clock) + asked.delay)) as due_at,
        asked.scheduled_at is not null or asked.delay is not null as is_moved
    from asked join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    left join lambda on lambda.name = any (array[assoc.lambda])
    where assoc.status::text = 'waiting'
), changed as (
    update task_assoc as assoc
    set due_at = case when found.is_moved then found.due_at else assoc.due_at end,
        priority = coalesce(found.priority, assoc.priority), edits = assoc.edits + 1,
        events = duly_note(
            assoc.events, 'updated', (select now from clock), null, concat_ws(', ',
    case when found.payload is not null then 'payload' end,
    case when found.priority is not null then 'priority' end,
    case when found.is_moved then 'due time' end
), %(by)b::text
        )
    from found
    where assoc.task_id = any (array[found.task_id]) and assoc.status::text = 'waiting' and assoc.doom is null
        and assoc.parked_on is null
        and coalesce(octet_length(found.payload), 0) <= found.payload_limit
        and not (found.is_moved and coalesce(assoc.session_rank, '-infinity') > '-infinity')
    returning found.*, assoc.status::text as status, assoc.priority as priority_now
), entity as (
    insert into task (task_id, payload, payload_encoding, result_encoding, priority, scheduled_at)
    select task_id, coalesce(payload, ''), coalesce(encoding, 1), encoding, priority_now,
        case when is_moved then due_at else 'epoch' end
    from changed
    on conflict (task_id) do update
    set payload = case when excluded.result_encoding is not null then excluded.payload else task.payload end,
        payload_encoding = coalesce(excluded.result_encoding, task.payload_encoding),
        priority = excluded.priority,
        scheduled_at = coalesce(nullif(excluded.scheduled_at, 'epoch'), task.scheduled_at),
        edits = task.edits + 1,
        scheduled_as = case
            when task.scheduled_as is null and (excluded.result_encoding is not null or excluded.priority <> task.priority)
                then sha256(task.payload || int2send(task.payload_encoding) || int2send(task.priority))
            else task.scheduled_as
        end
    where task.status is null
)
select asked.task_id, assoc.lambda, assoc.status::text as was, coalesce(lambda.payload_limit, 262144) as payload_limit,
    coalesce(assoc.session_rank, '-infinity') > '-infinity' as is_ordered_by_time, changed.status, coalesce(assoc.doom is not null or assoc.parked_on is not null, false) as is_fixed
from asked join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
left join lambda on lambda.name = any (array[assoc.lambda])
left join changed on changed.task_id = any (array[asked.task_id]);

-- name: enqueue_gated
with clock as materialized (
    select duly_now() as now
), quotas as materialized (
    select jsonb_object_agg(name, needs) as by_name
    from (
        select name, jsonb_build_array(jsonb_build_object('name', name, 'key', '', 'weight', 1)) as needs
        from resource
        where name like 'lambda:%%' or name like 'namespace:%%' or name like 'domain:%%'
        union all
        select 'needs:' || name, needs::jsonb from lambda where needs is not null
    ) as known
), queue as (
    select *, 0 as skip, case
    when (select by_name from quotas) is not null then nullif(
        coalesce((select by_name from quotas) -> concat('lambda:', split_part(queue.lambda, '@', 1)), '[]')
            || coalesce((select by_name from quotas) -> concat(
                'namespace:', case when strpos(queue.lambda, '/') > 0 then split_part(queue.lambda, '/', 1) else 'default' end
            ), '[]')
            || coalesce((select by_name from quotas) -> concat('domain:', split_part(split_part(queue.lambda, ':', 1), '~', 2)), '[]')
            || coalesce((select by_name from quotas) -> concat('needs:', split_part(queue.lambda, '@', 1)), '[]'),
        '[]'
    )
end as quota
    from unnest(%(lambdas)b::text[], %(priorities)b::int2[], %(room)b::int4[]) as queue (lambda, priority, size)
), due as (
    select picked.task_id, case
    when queue.quota is null or picked.resources @> queue.quota then picked.resources
    when picked.resources is null then queue.quota
    else (
        -- both may name one: then the larger weight counts
        select jsonb_agg(jsonb_build_object('name', merged.name, 'key', merged.key, 'weight', merged.weight))
        from (
            select need.name, need.key, max(need.weight) as weight
            from jsonb_to_recordset(picked.resources || queue.quota) as need (name text, key text, weight int4)
            group by need.name, need.key
        ) as merged
    )
end as resources
    from queue cross join lateral (select assoc.task_id, assoc.resources
from (select (%(gate_ids)b::int8[])[part.first:part.last] as ids,
    (%(gate_priorities)b::int2[])[part.first:part.last] as priorities,
    (%(gate_collections)b::text[])[part.first:part.last] as collections,
    (%(gate_sessions)b::text[])[part.first:part.last] as sessions, coalesce(part.probes_until, 'infinity') as probes_until,
    queue.priority
from (
    select (%(set_firsts)b::int4[])[number] as first, (%(set_lasts)b::int4[])[number] as last,
        (%(set_probes_until)b::timestamptz[])[number] as probes_until
    from (
        select ((select jsonb_object(%(gated_lambdas)b::text[], %(gate_sets)b::text[])) ->> queue.lambda)::int4 as number
    ) as gate_set
    offset 0
) as part
offset 0) as gates
cross join lateral (
    select coalesce(array_agg(first.task_id order by first.next_trigger_at) filter (where not exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = first.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(first.session, strpos(first.session, '/') + 1))
        and gate.gate_id <> all (coalesce(first.passed_gates, array[]::int8[]))
)), '{}') as ids
    from (
        select assoc.task_id, assoc.next_trigger_at, assoc.collection, assoc.session, assoc.passed_gates
        from task_assoc as assoc
        where assoc.lambda = queue.lambda and assoc.priority = queue.priority
            and assoc.status in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= least((select now from clock), gates.probes_until)
        order by assoc.next_trigger_at
        limit %(window)b::int4
    ) as first
) as head
cross join lateral unnest(head.ids || array(
    select behind.task_id
    from unnest(%(behind)b::uuid[], %(behind_lambdas)b::text[], %(behind_priorities)b::int2[])
        as behind (task_id, lambda, priority)
    where behind.lambda = queue.lambda and behind.priority = queue.priority and behind.task_id <> all (head.ids)
)) with ordinality as found (task_id, place)
join task_assoc as assoc on assoc.task_id = any (array[found.task_id])
where assoc.lambda = queue.lambda and assoc.priority = queue.priority
    and assoc.status::text in ('new', 'retriable_failure')
    and assoc.next_trigger_at <= least((select now from clock), gates.probes_until)
    and (assoc.expires_at is null or assoc.expires_at > (select now from clock)) and not exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = assoc.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(assoc.session, strpos(assoc.session, '/') + 1))
        and gate.gate_id <> all (coalesce(assoc.passed_gates, array[]::int8[]))
)
order by found.place
limit queue.size offset queue.skip
for update of assoc skip locked) as picked
), parked as materialized (
    select parked.task_id, parked.taken
    from (
        select array_agg(task_id) as task_ids, array_agg(resources) as needs
        from (
            -- two picks of a queue find one task twice if it is given back between them
            select distinct on (task_id) task_id, resources from due where resources is not null
        ) as once
    ) as asked
    cross join lateral duly_admit(asked.task_ids, asked.needs) as parked (task_id, taken)
)
update task_assoc as assoc
set status = 'enqueued', next_trigger_at = (select duly_now()) + %(enqueue_timeout)b, start_at = null,
    enqueued_at = (select duly_now()), resources = due.resources, taken = case
    when due.resources is not null
        then coalesce((select parked.taken from parked where parked.task_id = due.task_id), due.resources)
end
from due
where assoc.task_id = any (array[due.task_id]) and assoc.status::text in ('new', 'retriable_failure')
    and due.task_id not in (select task_id from parked where taken is null)
returning assoc.task_id, assoc.lambda, assoc.priority;

-- name: claim_work_gated
with clock as materialized (
    select duly_now() as now
), quotas as materialized (
    select jsonb_object_agg(name, needs) as by_name
    from (
        select name, jsonb_build_array(jsonb_build_object('name', name, 'key', '', 'weight', 1)) as needs
        from resource
        where name like 'lambda:%%' or name like 'namespace:%%' or name like 'domain:%%'
        union all
        select 'needs:' || name, needs::jsonb from lambda where needs is not null
    ) as known
), queue as (
    select *, case
    when (select by_name from quotas) is not null then nullif(
        coalesce((select by_name from quotas) -> concat('lambda:', split_part(queue.lambda, '@', 1)), '[]')
            || coalesce((select by_name from quotas) -> concat(
                'namespace:', case when strpos(queue.lambda, '/') > 0 then split_part(queue.lambda, '/', 1) else 'default' end
            ), '[]')
            || coalesce((select by_name from quotas) -> concat('domain:', split_part(split_part(queue.lambda, ':', 1), '~', 2)), '[]')
            || coalesce((select by_name from quotas) -> concat('needs:', split_part(queue.lambda, '@', 1)), '[]'),
        '[]'
    )
end as quota
    from unnest(%(lambdas)b::text[], %(priorities)b::int2[], %(sizes)b::int4[], %(skips)b::int4[])
        as queue (lambda, priority, size, skip)
), due as (
    select picked.task_id, case
    when queue.quota is null or picked.resources @> queue.quota then picked.resources
    when picked.resources is null then queue.quota
    else (
        -- both may name one: then the larger weight counts
        select jsonb_agg(jsonb_build_object('name', merged.name, 'key', merged.key, 'weight', merged.weight))
        from (
            select need.name, need.key, max(need.weight) as weight
            from jsonb_to_recordset(picked.resources || queue.quota) as need (name text, key text, weight int4)
            group by need.name, need.key
        ) as merged
    )
end as resources
    from queue cross join lateral (select assoc.task_id, assoc.resources
from (select (%(gate_ids)b::int8[])[part.first:part.last] as ids,
    (%(gate_priorities)b::int2[])[part.first:part.last] as priorities,
    (%(gate_collections)b::text[])[part.first:part.last] as collections,
    (%(gate_sessions)b::text[])[part.first:part.last] as sessions, coalesce(part.probes_until, 'infinity') as probes_until,
    queue.priority
from (
    select (%(set_firsts)b::int4[])[number] as first, (%(set_lasts)b::int4[])[number] as last,
        (%(set_probes_until)b::timestamptz[])[number] as probes_until
    from (
        select ((select jsonb_object(%(gated_lambdas)b::text[], %(gate_sets)b::text[])) ->> queue.lambda)::int4 as number
    ) as gate_set
    offset 0
) as part
offset 0) as gates
cross join lateral (
    select coalesce(array_agg(first.task_id order by first.next_trigger_at) filter (where not exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = first.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(first.session, strpos(first.session, '/') + 1))
        and gate.gate_id <> all (coalesce(first.passed_gates, array[]::int8[]))
)), '{}') as ids
    from (
        select assoc.task_id, assoc.next_trigger_at, assoc.collection, assoc.session, assoc.passed_gates
        from task_assoc as assoc
        where assoc.lambda = queue.lambda and assoc.priority = queue.priority
            and assoc.status in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= least((select now from clock), gates.probes_until)
        order by assoc.next_trigger_at
        limit %(window)b::int4
    ) as first
) as head
cross join lateral unnest(head.ids || array(
    select behind.task_id
    from unnest(%(behind)b::uuid[], %(behind_lambdas)b::text[], %(behind_priorities)b::int2[])
        as behind (task_id, lambda, priority)
    where behind.lambda = queue.lambda and behind.priority = queue.priority and behind.task_id <> all (head.ids)
)) with ordinality as found (task_id, place)
join task_assoc as assoc on assoc.task_id = any (array[found.task_id])
where assoc.lambda = queue.lambda and assoc.priority = queue.priority
    and assoc.status::text in ('new', 'retriable_failure')
    and assoc.next_trigger_at <= least((select now from clock), gates.probes_until)
    and (assoc.expires_at is null or assoc.expires_at > (select now from clock)) and not exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = assoc.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(assoc.session, strpos(assoc.session, '/') + 1))
        and gate.gate_id <> all (coalesce(assoc.passed_gates, array[]::int8[]))
)
order by found.place
limit queue.size offset queue.skip
for update of assoc skip locked) as picked
    limit %(most)b
), parked as materialized (
    select parked.task_id, parked.taken
    from (
        select array_agg(task_id) as task_ids, array_agg(resources) as needs
        from (
            -- two picks of a queue find one task twice if it is given back between them
            select distinct on (task_id) task_id, resources from due where resources is not null
        ) as once
    ) as asked
    cross join lateral duly_admit(asked.task_ids, asked.needs) as parked (task_id, taken)
), placed as materialized (
    select task_id, resources, (row_number() over () - 1)::int4 as place
    from due
    where task_id not in (select task_id from parked where taken is null)
), claimed as (
    update task_assoc as assoc
    set status = 'claimed', fence = assoc.fence + 1, next_trigger_at = (select duly_now()) + %(claim_timeout)b,
        start_at = null, resources = placed.resources, taken = case
    when placed.resources is not null
        then coalesce((select parked.taken from parked where parked.task_id = placed.task_id), placed.resources)
end, claimed_at = (select duly_now()), holder = (%(holders)b::text[])[1 + placed.place %% %(callers)b::int4],
        token = encode((%(prefixes)b::bytea[])[1 + placed.place %% %(callers)b::int4]
            || int2send((placed.place / %(callers)b::int4)::int2), 'hex')::uuid
    from placed
    -- all are picked before the first is claimed: a later pick of a queue passes over those of an earlier one, and it would
    -- not see those that are claimed
    where (select count(*) from placed) > 0
        and assoc.task_id = any (array[placed.task_id]) and assoc.status::text in ('new', 'retriable_failure')
    returning assoc.task_id, assoc.token, assoc.lambda, assoc.priority, assoc.fence, assoc.failures, assoc.crashes,
    assoc.worker_crashes, assoc.due_at, assoc.edits, assoc.events
)
select answered.*, later.queue_lambda, later.queue_priority, later.due_in
from (select claimed.task_id, claimed.token, claimed.lambda as lambda_name, claimed.priority, claimed.fence,
    claimed.failures, claimed.crashes, (extract(epoch from claimed.due_at) * 1000000)::int8 as due_at_us,
    entity.payload, entity.payload_encoding::int4 as encoding, coalesce(entity.max_runtime, coalesce(lambda.max_runtime, interval '0 days 3600 seconds')) as max_runtime,
    case when entity.time_table is not null then (extract(epoch from entity.scheduled_at) * 1000000)::int8 end as tick_at_us,
    entity.graph as graph_id,
    entity.checkpoint,
    case when claimed.events is not null then (
        select max(case event ->> 'kind'
            when 'put_off' then event ->> 'next'
            when 'unparked' then event ->> 'at'
            when 'ungated' then event ->> 'at'
            when 'rate_lifted' then event ->> 'at'
        end::int8)
        from jsonb_array_elements(claimed.events) as event
    ) end as startable_at_us,
    claimed.crashes = 1 and claimed.worker_crashes = 1 as crashed_with_worker,
    entity.attachments, entity.received,
    entity.edits + entity.checkpoint_count <> claimed.edits as is_stale
from claimed
left join lateral (
    select task.priority, task.payload, task.payload_encoding, task.time_table, task.scheduled_at, task.graph,
        task.max_runtime, task.checkpoint, task.attachments, task.received, task.checkpoint_count, task.edits
    from task
    where task.task_id = claimed.task_id and task.lambda = claimed.lambda 
    limit 1
) as entity on true
left join lambda on lambda.name = any (array[claimed.lambda])
where coalesce(entity.priority, 0) > 0) as answered
full join (
    select queue.lambda as queue_lambda, queue.priority as queue_priority, (
    select assoc.next_trigger_at
    from task_assoc as assoc
    where assoc.lambda = queue.lambda and assoc.priority = queue.priority
        and assoc.status in ('new', 'retriable_failure')
        and assoc.next_trigger_at > (select now from clock)
        and assoc.next_trigger_at <= (select now from clock) + %(within)b::interval
        and (assoc.expires_at is null or assoc.expires_at > (select now from clock))
    order by assoc.next_trigger_at
    limit 1
) - (select duly_now()) as due_in
    from queue
    where queue.skip = 0 and (select count(*) from due) < %(most)b and not exists (select from parked where taken is null)
) as later on false;

-- name: heartbeat_gated
update task_assoc as assoc
set status = 'processing', next_trigger_at = least(greatest(assoc.next_trigger_at, (select duly_now()) + %(heartbeat_timeout)b), (select duly_now()) + %(longest_lease)b),
    progress = coalesce(beat.progress, assoc.progress), progress_note = coalesce(beat.note, assoc.progress_note)
from unnest(
    %(task_ids)b::uuid[], %(tokens)b::uuid[], %(progress)b::float4[], %(notes)b::text[]
) as beat (task_id, token, progress, note)
where assoc.task_id = any (array[beat.task_id]) and assoc.token = beat.token and assoc.status::text in ('claimed', 'processing')
returning assoc.token, assoc.cancel_requested, assoc.kill_requested, assoc.lambda, assoc.priority, assoc.collection, assoc.session, assoc.passed_gates;

-- name: enqueue_fair
with clock as materialized (
    select duly_now() as now
), quotas as materialized (
    select jsonb_object_agg(name, needs) as by_name
    from (
        select name, jsonb_build_array(jsonb_build_object('name', name, 'key', '', 'weight', 1)) as needs
        from resource
        where name like 'lambda:%%' or name like 'namespace:%%' or name like 'domain:%%'
        union all
        select 'needs:' || name, needs::jsonb from lambda where needs is not null
    ) as known
), queue as (
    select *, 0 as skip, case
    when (select by_name from quotas) is not null then nullif(
        coalesce((select by_name from quotas) -> concat('lambda:', split_part(queue.lambda, '@', 1)), '[]')
            || coalesce((select by_name from quotas) -> concat(
                'namespace:', case when strpos(queue.lambda, '/') > 0 then split_part(queue.lambda, '/', 1) else 'default' end
            ), '[]')
            || coalesce((select by_name from quotas) -> concat('domain:', split_part(split_part(queue.lambda, ':', 1), '~', 2)), '[]')
            || coalesce((select by_name from quotas) -> concat('needs:', split_part(queue.lambda, '@', 1)), '[]'),
        '[]'
    )
end as quota
    from unnest(%(lambdas)b::text[], %(priorities)b::int2[], %(room)b::int4[], %(takes_turns)b::bool[], %(from_keys)b::text[], %(from_used)b::int4[], %(is_weighted)b::bool[], %(reaches)b::int4[]) as queue (lambda, priority, size, takes_turns, from_key, from_used, is_weighted, reach)
), due as (
    select picked.task_id, case
    when queue.quota is null or picked.resources @> queue.quota then picked.resources
    when picked.resources is null then queue.quota
    else (
        -- both may name one: then the larger weight counts
        select jsonb_agg(jsonb_build_object('name', merged.name, 'key', merged.key, 'weight', merged.weight))
        from (
            select need.name, need.key, max(need.weight) as weight
            from jsonb_to_recordset(picked.resources || queue.quota) as need (name text, key text, weight int4)
            group by need.name, need.key
        ) as merged
    )
end as resources, queue.lambda, queue.priority, picked.turn_key, picked.turn_used, picked.turn_place
    from queue cross join lateral (select found.task_id, found.resources, found.turn_key, found.turn_used, found.turn_place
from (select coalesce(array_agg(listed.task_id) filter (where listed.task_id is not null), '{}') as ids,
    array_agg(listed.key) as keys, array_agg(listed.used) as used, (array_agg(listed.end_key))[1] as end_key
from (select (select now from clock) as now offset 0) as moment cross join lateral (
    with recursive walk as (
        -- what is left of the last turn
        select 0 as probes, start.key, false as is_wrapped, start.weight, queue.from_used as used_before,
            0 as passed, start.ids, cardinality(start.ids) as total, cardinality(start.ids) as first_taken
        from (
            select entry.key, entry.weight, array(select assoc.task_id
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
    and assoc.fair_key >= entry.key and assoc.fair_key <= entry.key
    and assoc.next_trigger_at <= moment.now
    and (assoc.expires_at is null or assoc.expires_at > moment.now)
order by assoc.fair_key, assoc.next_trigger_at
limit entry.most offset entry.passed) as ids
            from (
                select queue.from_key collate "C" as key, weighed.weight, 0 as passed,
                    case when queue.from_used > 0 then greatest(weighed.weight - queue.from_used, 0) else 0 end as most
                from (select case
    when queue.is_weighted then coalesce((
        select fair_weight.weight
        from fair_weight
        where fair_weight.lambda = split_part(queue.lambda, '@', 1) and fair_weight.fair_key = queue.from_key
    ), 1)
    else 1
end as weight offset 0) as weighed
                offset 0
            ) as entry
            offset 0
        ) as start
        where queue.takes_turns
        union all
        select walk.probes + 1, entry.key, entry.is_wrapped, entry.most, 0, entry.passed, taken.ids,
            walk.total + cardinality(taken.ids), walk.first_taken
        from walk
        cross join lateral (
            (
                select later.*, walk.is_wrapped
                from (select assoc.fair_key as key, assoc.task_id, assoc.next_trigger_at, assoc.expires_at, assoc.collection, assoc.session,
    assoc.passed_gates
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
    and assoc.fair_key is not null and assoc.fair_key > walk.key
order by assoc.fair_key, assoc.next_trigger_at
limit 1) as later
                where not walk.is_wrapped or later.key <= queue.from_key
            )
            union all
            (
                select first.*, true
                from (select assoc.fair_key as key, assoc.task_id, assoc.next_trigger_at, assoc.expires_at, assoc.collection, assoc.session,
    assoc.passed_gates
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
    and assoc.fair_key is not null 
order by assoc.fair_key, assoc.next_trigger_at
limit 1) as first
                where not walk.is_wrapped and first.key <= queue.from_key
            )
            limit 1
        ) as head
        cross join lateral (
            -- the key that began the round ends it, too
            select head.key, head.is_wrapped, case
    when queue.is_weighted then coalesce((
        select fair_weight.weight
        from fair_weight
        where fair_weight.lambda = split_part(queue.lambda, '@', 1) and fair_weight.fair_key = head.key
    ), 1)
    else 1
end as most,
                case when head.key = queue.from_key then walk.first_taken else 0 end as passed
            -- else Postgres would write the weight's subquery into each place that uses it
            offset 0
        ) as entry
        cross join lateral (
            select case
                when head.next_trigger_at > moment.now then '{}'
                when entry.most = 1 and entry.passed = 0 and (head.expires_at is null or head.expires_at > moment.now) then array[head.task_id]
                else array(select assoc.task_id
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
    and assoc.fair_key >= entry.key and assoc.fair_key <= entry.key
    and assoc.next_trigger_at <= moment.now
    and (assoc.expires_at is null or assoc.expires_at > moment.now)
order by assoc.fair_key, assoc.next_trigger_at
limit entry.most offset entry.passed)
            end as ids
            -- else of_key would be written twice, too
            offset 0
        ) as taken
        where walk.total < queue.size + queue.skip and walk.probes < 64 + 2 * (queue.size + queue.skip)
    ), round as (
        select max(total) as total, count(*) as keys, greatest(sum(weight) filter (where probes > 0 and cardinality(ids) > 0), 1) as weights,
            case
                when max(total) < queue.size + queue.skip and max(probes) >= 64 + 2 * (queue.size + queue.skip)
                    then (array_agg(key order by probes desc))[1]
            end as end_key
        from walk
    ), further as (
        -- of each key its part twice: that is enough unless many keys have little
        select walk.probes, walk.key, walk.weight, walk.passed, of_each.most, one.task_id, one.place
        from round
        join walk on round.total < queue.size + queue.skip and walk.probes > 0 and cardinality(walk.ids) = walk.weight
        cross join lateral (
            select least(2 * walk.weight * ceil(queue.reach / round.weights), queue.reach)::int4 as most offset 0
        ) as of_each
        cross join lateral (
            select of_key.task_id, walk.weight + row_number() over () as place
            from (select walk.key, walk.passed + walk.weight as passed, of_each.most) as entry
            cross join lateral (select assoc.task_id
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
    and assoc.fair_key >= entry.key and assoc.fair_key <= entry.key
    and assoc.next_trigger_at <= moment.now
    and (assoc.expires_at is null or assoc.expires_at > moment.now)
order by assoc.fair_key, assoc.next_trigger_at
limit entry.most offset entry.passed) as of_key
        ) as one
    )
    select taken.task_id, coalesce(round.end_key, taken.key) as key,
        case when round.end_key is null then taken.used else 0 end as used, round.end_key
    from round left join (
        select 0 as number, walk.probes, one.place, walk.key, walk.used_before + one.place as used, one.task_id
        from walk cross join lateral unnest(walk.ids) with ordinality as one (task_id, place)
        union all
        select (one.place - 1) / one.weight, one.probes, one.place, one.key, 1 + (one.place - 1) %% one.weight, one.task_id
        from (
            select further.probes, further.key, further.weight, further.place, further.task_id
            from further
            union all
            select further.probes, further.key, further.weight, deeper.place, deeper.task_id
            from round
            join further on round.total + (select count(*) from further) < queue.size + queue.skip
                and further.place = further.weight + further.most
            cross join lateral (
                select of_key.task_id, further.place + row_number() over () as place
                from (
                    select further.key, further.passed + further.place as passed,
                        least(1000 / round.keys, queue.reach)::int4 - further.most as most
                    where least(1000 / round.keys, queue.reach) > further.most
                ) as entry
                cross join lateral (select assoc.task_id
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
    and assoc.fair_key >= entry.key and assoc.fair_key <= entry.key
    and assoc.next_trigger_at <= moment.now
    and (assoc.expires_at is null or assoc.expires_at > moment.now)
order by assoc.fair_key, assoc.next_trigger_at
limit entry.most offset entry.passed) as of_key
            ) as deeper
        ) as one
    ) as taken on true
    order by taken.number, taken.probes, taken.place
    limit queue.size + queue.skip
) as listed) as turn
cross join lateral (
    select *
    from (
        select assoc.task_id, assoc.resources, listed.turn_key, listed.turn_used, listed.turn_place
        from unnest(turn.ids, turn.keys, turn.used) with ordinality as listed (task_id, turn_key, turn_used, turn_place)
        join task_assoc as assoc on assoc.task_id = any (array[listed.task_id])
        where assoc.lambda = queue.lambda and assoc.priority = queue.priority
            and assoc.status::text in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= (select now from clock)
            and (assoc.expires_at is null or assoc.expires_at > (select now from clock))
        order by listed.turn_place
        for update of assoc skip locked
    ) as of_turns
    union all
    select *
    from (
        select assoc.task_id, assoc.resources, turn.end_key, 0, 1000000
        from task_assoc as assoc
        where assoc.lambda = queue.lambda and assoc.priority = queue.priority
            and assoc.status in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= (select now from clock)
            and (assoc.expires_at is null or assoc.expires_at > (select now from clock))
            and assoc.task_id <> all (turn.ids)
        order by assoc.next_trigger_at
        limit queue.size + queue.skip
        for update skip locked
    ) as rest
) as found
limit queue.size offset queue.skip) as picked
), parked as materialized (
    select parked.task_id, parked.taken
    from (
        select array_agg(task_id) as task_ids, array_agg(resources) as needs
        from (
            -- two picks of a queue find one task twice if it is given back between them
            select distinct on (task_id) task_id, resources from due where resources is not null
        ) as once
    ) as asked
    cross join lateral duly_admit(asked.task_ids, asked.needs) as parked (task_id, taken)
)
update task_assoc as assoc
set status = 'enqueued', next_trigger_at = (select duly_now()) + %(enqueue_timeout)b, start_at = null,
    enqueued_at = (select duly_now()), resources = due.resources, taken = case
    when due.resources is not null
        then coalesce((select parked.taken from parked where parked.task_id = due.task_id), due.resources)
end
from due
where assoc.task_id = any (array[due.task_id]) and assoc.status::text in ('new', 'retriable_failure')
    and due.task_id not in (select task_id from parked where taken is null)
returning assoc.task_id, assoc.lambda, assoc.priority, due.turn_key, due.turn_used, due.turn_place;

-- name: claim_work_fair
with clock as materialized (
    select duly_now() as now
), quotas as materialized (
    select jsonb_object_agg(name, needs) as by_name
    from (
        select name, jsonb_build_array(jsonb_build_object('name', name, 'key', '', 'weight', 1)) as needs
        from resource
        where name like 'lambda:%%' or name like 'namespace:%%' or name like 'domain:%%'
        union all
        select 'needs:' || name, needs::jsonb from lambda where needs is not null
    ) as known
), queue as (
    select *, case
    when (select by_name from quotas) is not null then nullif(
        coalesce((select by_name from quotas) -> concat('lambda:', split_part(queue.lambda, '@', 1)), '[]')
            || coalesce((select by_name from quotas) -> concat(
                'namespace:', case when strpos(queue.lambda, '/') > 0 then split_part(queue.lambda, '/', 1) else 'default' end
            ), '[]')
            || coalesce((select by_name from quotas) -> concat('domain:', split_part(split_part(queue.lambda, ':', 1), '~', 2)), '[]')
            || coalesce((select by_name from quotas) -> concat('needs:', split_part(queue.lambda, '@', 1)), '[]'),
        '[]'
    )
end as quota
    from unnest(%(lambdas)b::text[], %(priorities)b::int2[], %(sizes)b::int4[], %(skips)b::int4[], %(takes_turns)b::bool[], %(from_keys)b::text[], %(from_used)b::int4[], %(is_weighted)b::bool[], %(reaches)b::int4[])
        as queue (lambda, priority, size, skip, takes_turns, from_key, from_used, is_weighted, reach)
), due as (
    select picked.task_id, case
    when queue.quota is null or picked.resources @> queue.quota then picked.resources
    when picked.resources is null then queue.quota
    else (
        -- both may name one: then the larger weight counts
        select jsonb_agg(jsonb_build_object('name', merged.name, 'key', merged.key, 'weight', merged.weight))
        from (
            select need.name, need.key, max(need.weight) as weight
            from jsonb_to_recordset(picked.resources || queue.quota) as need (name text, key text, weight int4)
            group by need.name, need.key
        ) as merged
    )
end as resources, queue.lambda, queue.priority, picked.turn_key, picked.turn_used, picked.turn_place
    from queue cross join lateral (select found.task_id, found.resources, found.turn_key, found.turn_used, found.turn_place
from (select coalesce(array_agg(listed.task_id) filter (where listed.task_id is not null), '{}') as ids,
    array_agg(listed.key) as keys, array_agg(listed.used) as used, (array_agg(listed.end_key))[1] as end_key
from (select (select now from clock) as now offset 0) as moment cross join lateral (
    with recursive walk as (
        -- what is left of the last turn
        select 0 as probes, start.key, false as is_wrapped, start.weight, queue.from_used as used_before,
            0 as passed, start.ids, cardinality(start.ids) as total, cardinality(start.ids) as first_taken
        from (
            select entry.key, entry.weight, array(select assoc.task_id
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
    and assoc.fair_key >= entry.key and assoc.fair_key <= entry.key
    and assoc.next_trigger_at <= moment.now
    and (assoc.expires_at is null or assoc.expires_at > moment.now)
order by assoc.fair_key, assoc.next_trigger_at
limit entry.most offset entry.passed) as ids
            from (
                select queue.from_key collate "C" as key, weighed.weight, 0 as passed,
                    case when queue.from_used > 0 then greatest(weighed.weight - queue.from_used, 0) else 0 end as most
                from (select case
    when queue.is_weighted then coalesce((
        select fair_weight.weight
        from fair_weight
        where fair_weight.lambda = split_part(queue.lambda, '@', 1) and fair_weight.fair_key = queue.from_key
    ), 1)
    else 1
end as weight offset 0) as weighed
                offset 0
            ) as entry
            offset 0
        ) as start
        where queue.takes_turns
        union all
        select walk.probes + 1, entry.key, entry.is_wrapped, entry.most, 0, entry.passed, taken.ids,
            walk.total + cardinality(taken.ids), walk.first_taken
        from walk
        cross join lateral (
            (
                select later.*, walk.is_wrapped
                from (select assoc.fair_key as key, assoc.task_id, assoc.next_trigger_at, assoc.expires_at, assoc.collection, assoc.session,
    assoc.passed_gates
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
    and assoc.fair_key is not null and assoc.fair_key > walk.key
order by assoc.fair_key, assoc.next_trigger_at
limit 1) as later
                where not walk.is_wrapped or later.key <= queue.from_key
            )
            union all
            (
                select first.*, true
                from (select assoc.fair_key as key, assoc.task_id, assoc.next_trigger_at, assoc.expires_at, assoc.collection, assoc.session,
    assoc.passed_gates
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
    and assoc.fair_key is not null 
order by assoc.fair_key, assoc.next_trigger_at
limit 1) as first
                where not walk.is_wrapped and first.key <= queue.from_key
            )
            limit 1
        ) as head
        cross join lateral (
            -- the key that began the round ends it, too
            select head.key, head.is_wrapped, case
    when queue.is_weighted then coalesce((
        select fair_weight.weight
        from fair_weight
        where fair_weight.lambda = split_part(queue.lambda, '@', 1) and fair_weight.fair_key = head.key
    ), 1)
    else 1
end as most,
                case when head.key = queue.from_key then walk.first_taken else 0 end as passed
            -- else Postgres would write the weight's subquery into each place that uses it
            offset 0
        ) as entry
        cross join lateral (
            select case
                when head.next_trigger_at > moment.now then '{}'
                when entry.most = 1 and entry.passed = 0 and (head.expires_at is null or head.expires_at > moment.now) then array[head.task_id]
                else array(select assoc.task_id
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
    and assoc.fair_key >= entry.key and assoc.fair_key <= entry.key
    and assoc.next_trigger_at <= moment.now
    and (assoc.expires_at is null or assoc.expires_at > moment.now)
order by assoc.fair_key, assoc.next_trigger_at
limit entry.most offset entry.passed)
            end as ids
            -- else of_key would be written twice, too
            offset 0
        ) as taken
        where walk.total < queue.size + queue.skip and walk.probes < 64 + 2 * (queue.size + queue.skip)
    ), round as (
        select max(total) as total, count(*) as keys, greatest(sum(weight) filter (where probes > 0 and cardinality(ids) > 0), 1) as weights,
            case
                when max(total) < queue.size + queue.skip and max(probes) >= 64 + 2 * (queue.size + queue.skip)
                    then (array_agg(key order by probes desc))[1]
            end as end_key
        from walk
    ), further as (
        -- of each key its part twice: that is enough unless many keys have little
        select walk.probes, walk.key, walk.weight, walk.passed, of_each.most, one.task_id, one.place
        from round
        join walk on round.total < queue.size + queue.skip and walk.probes > 0 and cardinality(walk.ids) = walk.weight
        cross join lateral (
            select least(2 * walk.weight * ceil(queue.reach / round.weights), queue.reach)::int4 as most offset 0
        ) as of_each
        cross join lateral (
            select of_key.task_id, walk.weight + row_number() over () as place
            from (select walk.key, walk.passed + walk.weight as passed, of_each.most) as entry
            cross join lateral (select assoc.task_id
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
    and assoc.fair_key >= entry.key and assoc.fair_key <= entry.key
    and assoc.next_trigger_at <= moment.now
    and (assoc.expires_at is null or assoc.expires_at > moment.now)
order by assoc.fair_key, assoc.next_trigger_at
limit entry.most offset entry.passed) as of_key
        ) as one
    )
    select taken.task_id, coalesce(round.end_key, taken.key) as key,
        case when round.end_key is null then taken.used else 0 end as used, round.end_key
    from round left join (
        select 0 as number, walk.probes, one.place, walk.key, walk.used_before + one.place as used, one.task_id
        from walk cross join lateral unnest(walk.ids) with ordinality as one (task_id, place)
        union all
        select (one.place - 1) / one.weight, one.probes, one.place, one.key, 1 + (one.place - 1) %% one.weight, one.task_id
        from (
            select further.probes, further.key, further.weight, further.place, further.task_id
            from further
            union all
            select further.probes, further.key, further.weight, deeper.place, deeper.task_id
            from round
            join further on round.total + (select count(*) from further) < queue.size + queue.skip
                and further.place = further.weight + further.most
            cross join lateral (
                select of_key.task_id, further.place + row_number() over () as place
                from (
                    select further.key, further.passed + further.place as passed,
                        least(1000 / round.keys, queue.reach)::int4 - further.most as most
                    where least(1000 / round.keys, queue.reach) > further.most
                ) as entry
                cross join lateral (select assoc.task_id
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
    and assoc.fair_key >= entry.key and assoc.fair_key <= entry.key
    and assoc.next_trigger_at <= moment.now
    and (assoc.expires_at is null or assoc.expires_at > moment.now)
order by assoc.fair_key, assoc.next_trigger_at
limit entry.most offset entry.passed) as of_key
            ) as deeper
        ) as one
    ) as taken on true
    order by taken.number, taken.probes, taken.place
    limit queue.size + queue.skip
) as listed) as turn
cross join lateral (
    select *
    from (
        select assoc.task_id, assoc.resources, listed.turn_key, listed.turn_used, listed.turn_place
        from unnest(turn.ids, turn.keys, turn.used) with ordinality as listed (task_id, turn_key, turn_used, turn_place)
        join task_assoc as assoc on assoc.task_id = any (array[listed.task_id])
        where assoc.lambda = queue.lambda and assoc.priority = queue.priority
            and assoc.status::text in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= (select now from clock)
            and (assoc.expires_at is null or assoc.expires_at > (select now from clock))
        order by listed.turn_place
        for update of assoc skip locked
    ) as of_turns
    union all
    select *
    from (
        select assoc.task_id, assoc.resources, turn.end_key, 0, 1000000
        from task_assoc as assoc
        where assoc.lambda = queue.lambda and assoc.priority = queue.priority
            and assoc.status in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= (select now from clock)
            and (assoc.expires_at is null or assoc.expires_at > (select now from clock))
            and assoc.task_id <> all (turn.ids)
        order by assoc.next_trigger_at
        limit queue.size + queue.skip
        for update skip locked
    ) as rest
) as found
limit queue.size offset queue.skip) as picked
    limit %(most)b
), parked as materialized (
    select parked.task_id, parked.taken
    from (
        select array_agg(task_id) as task_ids, array_agg(resources) as needs
        from (
            -- two picks of a queue find one task twice if it is given back between them
            select distinct on (task_id) task_id, resources from due where resources is not null
        ) as once
    ) as asked
    cross join lateral duly_admit(asked.task_ids, asked.needs) as parked (task_id, taken)
), placed as materialized (
    select task_id, resources, (row_number() over () - 1)::int4 as place
    from due
    where task_id not in (select task_id from parked where taken is null)
), claimed as (
    update task_assoc as assoc
    set status = 'claimed', fence = assoc.fence + 1, next_trigger_at = (select duly_now()) + %(claim_timeout)b,
        start_at = null, resources = placed.resources, taken = case
    when placed.resources is not null
        then coalesce((select parked.taken from parked where parked.task_id = placed.task_id), placed.resources)
end, claimed_at = (select duly_now()), holder = (%(holders)b::text[])[1 + placed.place %% %(callers)b::int4],
        token = encode((%(prefixes)b::bytea[])[1 + placed.place %% %(callers)b::int4]
            || int2send((placed.place / %(callers)b::int4)::int2), 'hex')::uuid
    from placed
    -- all are picked before the first is claimed: a later pick of a queue passes over those of an earlier one, and it would
    -- not see those that are claimed
    where (select count(*) from placed) > 0
        and assoc.task_id = any (array[placed.task_id]) and assoc.status::text in ('new', 'retriable_failure')
    returning assoc.task_id, assoc.token, assoc.lambda, assoc.priority, assoc.fence, assoc.failures, assoc.crashes,
    assoc.worker_crashes, assoc.due_at, assoc.edits, assoc.events
)
select answered.*, later.queue_lambda, later.queue_priority, later.due_in, turn.turn_lambda, turn.turn_priority, turn.turn_key, turn.turn_used
from (select claimed.task_id, claimed.token, claimed.lambda as lambda_name, claimed.priority, claimed.fence,
    claimed.failures, claimed.crashes, (extract(epoch from claimed.due_at) * 1000000)::int8 as due_at_us,
    entity.payload, entity.payload_encoding::int4 as encoding, coalesce(entity.max_runtime, coalesce(lambda.max_runtime, interval '0 days 3600 seconds')) as max_runtime,
    case when entity.time_table is not null then (extract(epoch from entity.scheduled_at) * 1000000)::int8 end as tick_at_us,
    entity.graph as graph_id,
    entity.checkpoint,
    case when claimed.events is not null then (
        select max(case event ->> 'kind'
            when 'put_off' then event ->> 'next'
            when 'unparked' then event ->> 'at'
            when 'ungated' then event ->> 'at'
            when 'rate_lifted' then event ->> 'at'
        end::int8)
        from jsonb_array_elements(claimed.events) as event
    ) end as startable_at_us,
    claimed.crashes = 1 and claimed.worker_crashes = 1 as crashed_with_worker,
    entity.attachments, entity.received,
    entity.edits + entity.checkpoint_count <> claimed.edits as is_stale
from claimed
left join lateral (
    select task.priority, task.payload, task.payload_encoding, task.time_table, task.scheduled_at, task.graph,
        task.max_runtime, task.checkpoint, task.attachments, task.received, task.checkpoint_count, task.edits
    from task
    where task.task_id = claimed.task_id and task.lambda = claimed.lambda 
    limit 1
) as entity on true
left join lambda on lambda.name = any (array[claimed.lambda])
where coalesce(entity.priority, 0) > 0) as answered
full join (
    select queue.lambda as queue_lambda, queue.priority as queue_priority, (
    select assoc.next_trigger_at
    from task_assoc as assoc
    where assoc.lambda = queue.lambda and assoc.priority = queue.priority
        and assoc.status in ('new', 'retriable_failure')
        and assoc.next_trigger_at > (select now from clock)
        and assoc.next_trigger_at <= (select now from clock) + %(within)b::interval
        and (assoc.expires_at is null or assoc.expires_at > (select now from clock))
    order by assoc.next_trigger_at
    limit 1
) - (select duly_now()) as due_in
    from queue
    where queue.skip = 0 and (select count(*) from due) < %(most)b and not exists (select from parked where taken is null)
) as later on false
full join (
    select distinct on (due.lambda, due.priority) due.lambda as turn_lambda, due.priority as turn_priority, due.turn_key, due.turn_used
    from due
    where due.turn_key is not null
    order by due.lambda, due.priority, due.turn_place desc
) as turn on false;

-- name: enqueue_gated_fair
with clock as materialized (
    select duly_now() as now
), quotas as materialized (
    select jsonb_object_agg(name, needs) as by_name
    from (
        select name, jsonb_build_array(jsonb_build_object('name', name, 'key', '', 'weight', 1)) as needs
        from resource
        where name like 'lambda:%%' or name like 'namespace:%%' or name like 'domain:%%'
        union all
        select 'needs:' || name, needs::jsonb from lambda where needs is not null
    ) as known
), queue as (
    select *, 0 as skip, case
    when (select by_name from quotas) is not null then nullif(
        coalesce((select by_name from quotas) -> concat('lambda:', split_part(queue.lambda, '@', 1)), '[]')
            || coalesce((select by_name from quotas) -> concat(
                'namespace:', case when strpos(queue.lambda, '/') > 0 then split_part(queue.lambda, '/', 1) else 'default' end
            ), '[]')
            || coalesce((select by_name from quotas) -> concat('domain:', split_part(split_part(queue.lambda, ':', 1), '~', 2)), '[]')
            || coalesce((select by_name from quotas) -> concat('needs:', split_part(queue.lambda, '@', 1)), '[]'),
        '[]'
    )
end as quota
    from unnest(%(lambdas)b::text[], %(priorities)b::int2[], %(room)b::int4[], %(takes_turns)b::bool[], %(from_keys)b::text[], %(from_used)b::int4[], %(is_weighted)b::bool[], %(reaches)b::int4[]) as queue (lambda, priority, size, takes_turns, from_key, from_used, is_weighted, reach)
), due as (
    select picked.task_id, case
    when queue.quota is null or picked.resources @> queue.quota then picked.resources
    when picked.resources is null then queue.quota
    else (
        -- both may name one: then the larger weight counts
        select jsonb_agg(jsonb_build_object('name', merged.name, 'key', merged.key, 'weight', merged.weight))
        from (
            select need.name, need.key, max(need.weight) as weight
            from jsonb_to_recordset(picked.resources || queue.quota) as need (name text, key text, weight int4)
            group by need.name, need.key
        ) as merged
    )
end as resources, queue.lambda, queue.priority, picked.turn_key, picked.turn_used, picked.turn_place
    from queue cross join lateral (select found.task_id, found.resources, found.turn_key, found.turn_used, found.turn_place
from (select (%(gate_ids)b::int8[])[part.first:part.last] as ids,
    (%(gate_priorities)b::int2[])[part.first:part.last] as priorities,
    (%(gate_collections)b::text[])[part.first:part.last] as collections,
    (%(gate_sessions)b::text[])[part.first:part.last] as sessions, coalesce(part.probes_until, 'infinity') as probes_until,
    queue.priority
from (
    select (%(set_firsts)b::int4[])[number] as first, (%(set_lasts)b::int4[])[number] as last,
        (%(set_probes_until)b::timestamptz[])[number] as probes_until
    from (
        select ((select jsonb_object(%(gated_lambdas)b::text[], %(gate_sets)b::text[])) ->> queue.lambda)::int4 as number
    ) as gate_set
    offset 0
) as part
offset 0) as gates
cross join lateral (select coalesce(array_agg(listed.task_id) filter (where listed.task_id is not null), '{}') as ids,
    array_agg(listed.key) as keys, array_agg(listed.used) as used, (array_agg(listed.end_key))[1] as end_key
from (select (select now from clock) as now offset 0) as moment cross join lateral (
    with recursive walk as (
        -- what is left of the last turn
        select 0 as probes, start.key, false as is_wrapped, start.weight, queue.from_used as used_before,
            0 as passed, start.ids, cardinality(start.ids) as total, cardinality(start.ids) as first_taken
        from (
            select entry.key, entry.weight, array(select first.task_id
from (
    select assoc.task_id, assoc.next_trigger_at, assoc.collection, assoc.session, assoc.passed_gates
    from task_assoc as assoc
    where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
        and assoc.fair_key >= entry.key and assoc.fair_key <= entry.key
        and assoc.next_trigger_at <= least(moment.now, gates.probes_until)
        and (assoc.expires_at is null or assoc.expires_at > moment.now)
    order by assoc.fair_key, assoc.next_trigger_at
    limit case when entry.most > 0 then 64 + entry.passed + entry.most else 0 end
) as first
where not exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = first.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(first.session, strpos(first.session, '/') + 1))
        and gate.gate_id <> all (coalesce(first.passed_gates, array[]::int8[]))
)
limit entry.most offset entry.passed) as ids
            from (
                select queue.from_key collate "C" as key, weighed.weight, 0 as passed,
                    case when queue.from_used > 0 then greatest(weighed.weight - queue.from_used, 0) else 0 end as most
                from (select case
    when queue.is_weighted then coalesce((
        select fair_weight.weight
        from fair_weight
        where fair_weight.lambda = split_part(queue.lambda, '@', 1) and fair_weight.fair_key = queue.from_key
    ), 1)
    else 1
end as weight offset 0) as weighed
                offset 0
            ) as entry
            offset 0
        ) as start
        where queue.takes_turns
        union all
        select walk.probes + 1, entry.key, entry.is_wrapped, entry.most, 0, entry.passed, taken.ids,
            walk.total + cardinality(taken.ids), walk.first_taken
        from walk
        cross join lateral (
            (
                select later.*, walk.is_wrapped
                from (select assoc.fair_key as key, assoc.task_id, assoc.next_trigger_at, assoc.expires_at, assoc.collection, assoc.session,
    assoc.passed_gates
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
    and assoc.fair_key is not null and assoc.fair_key > walk.key
order by assoc.fair_key, assoc.next_trigger_at
limit 1) as later
                where not walk.is_wrapped or later.key <= queue.from_key
            )
            union all
            (
                select first.*, true
                from (select assoc.fair_key as key, assoc.task_id, assoc.next_trigger_at, assoc.expires_at, assoc.collection, assoc.session,
    assoc.passed_gates
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
    and assoc.fair_key is not null 
order by assoc.fair_key, assoc.next_trigger_at
limit 1) as first
                where not walk.is_wrapped and first.key <= queue.from_key
            )
            limit 1
        ) as head
        cross join lateral (
            -- the key that began the round ends it, too
            select head.key, head.is_wrapped, case
    when queue.is_weighted then coalesce((
        select fair_weight.weight
        from fair_weight
        where fair_weight.lambda = split_part(queue.lambda, '@', 1) and fair_weight.fair_key = head.key
    ), 1)
    else 1
end as most,
                case when head.key = queue.from_key then walk.first_taken else 0 end as passed
            -- else Postgres would write the weight's subquery into each place that uses it
            offset 0
        ) as entry
        cross join lateral (
            select case
                when head.next_trigger_at > moment.now then '{}'
                when entry.most = 1 and entry.passed = 0 and (
    (head.expires_at is null or head.expires_at > moment.now) and head.next_trigger_at <= gates.probes_until
    and not exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = head.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(head.session, strpos(head.session, '/') + 1))
        and gate.gate_id <> all (coalesce(head.passed_gates, array[]::int8[]))
)
) then array[head.task_id]
                else array(select first.task_id
from (
    select assoc.task_id, assoc.next_trigger_at, assoc.collection, assoc.session, assoc.passed_gates
    from task_assoc as assoc
    where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
        and assoc.fair_key >= entry.key and assoc.fair_key <= entry.key
        and assoc.next_trigger_at <= least(moment.now, gates.probes_until)
        and (assoc.expires_at is null or assoc.expires_at > moment.now)
    order by assoc.fair_key, assoc.next_trigger_at
    limit case when entry.most > 0 then 64 + entry.passed + entry.most else 0 end
) as first
where not exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = first.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(first.session, strpos(first.session, '/') + 1))
        and gate.gate_id <> all (coalesce(first.passed_gates, array[]::int8[]))
)
limit entry.most offset entry.passed)
            end as ids
            -- else of_key would be written twice, too
            offset 0
        ) as taken
        where walk.total < queue.size + queue.skip and walk.probes < 64 + 2 * (queue.size + queue.skip)
    ), round as (
        select max(total) as total, count(*) as keys, greatest(sum(weight) filter (where probes > 0 and cardinality(ids) > 0), 1) as weights,
            case
                when max(total) < queue.size + queue.skip and max(probes) >= 64 + 2 * (queue.size + queue.skip)
                    then (array_agg(key order by probes desc))[1]
            end as end_key
        from walk
    ), further as (
        -- of each key its part twice: that is enough unless many keys have little
        select walk.probes, walk.key, walk.weight, walk.passed, of_each.most, one.task_id, one.place
        from round
        join walk on round.total < queue.size + queue.skip and walk.probes > 0 and cardinality(walk.ids) = walk.weight
        cross join lateral (
            select least(2 * walk.weight * ceil(queue.reach / round.weights), queue.reach)::int4 as most offset 0
        ) as of_each
        cross join lateral (
            select of_key.task_id, walk.weight + row_number() over () as place
            from (select walk.key, walk.passed + walk.weight as passed, of_each.most) as entry
            cross join lateral (select first.task_id
from (
    select assoc.task_id, assoc.next_trigger_at, assoc.collection, assoc.session, assoc.passed_gates
    from task_assoc as assoc
    where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
        and assoc.fair_key >= entry.key and assoc.fair_key <= entry.key
        and assoc.next_trigger_at <= least(moment.now, gates.probes_until)
        and (assoc.expires_at is null or assoc.expires_at > moment.now)
    order by assoc.fair_key, assoc.next_trigger_at
    limit case when entry.most > 0 then 64 + entry.passed + entry.most else 0 end
) as first
where not exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = first.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(first.session, strpos(first.session, '/') + 1))
        and gate.gate_id <> all (coalesce(first.passed_gates, array[]::int8[]))
)
limit entry.most offset entry.passed) as of_key
        ) as one
    )
    select taken.task_id, coalesce(round.end_key, taken.key) as key,
        case when round.end_key is null then taken.used else 0 end as used, round.end_key
    from round left join (
        select 0 as number, walk.probes, one.place, walk.key, walk.used_before + one.place as used, one.task_id
        from walk cross join lateral unnest(walk.ids) with ordinality as one (task_id, place)
        union all
        select (one.place - 1) / one.weight, one.probes, one.place, one.key, 1 + (one.place - 1) %% one.weight, one.task_id
        from (
            select further.probes, further.key, further.weight, further.place, further.task_id
            from further
            union all
            select further.probes, further.key, further.weight, deeper.place, deeper.task_id
            from round
            join further on round.total + (select count(*) from further) < queue.size + queue.skip
                and further.place = further.weight + further.most
            cross join lateral (
                select of_key.task_id, further.place + row_number() over () as place
                from (
                    select further.key, further.passed + further.place as passed,
                        least(1000 / round.keys, queue.reach)::int4 - further.most as most
                    where least(1000 / round.keys, queue.reach) > further.most
                ) as entry
                cross join lateral (select first.task_id
from (
    select assoc.task_id, assoc.next_trigger_at, assoc.collection, assoc.session, assoc.passed_gates
    from task_assoc as assoc
    where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
        and assoc.fair_key >= entry.key and assoc.fair_key <= entry.key
        and assoc.next_trigger_at <= least(moment.now, gates.probes_until)
        and (assoc.expires_at is null or assoc.expires_at > moment.now)
    order by assoc.fair_key, assoc.next_trigger_at
    limit case when entry.most > 0 then 64 + entry.passed + entry.most else 0 end
) as first
where not exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = first.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(first.session, strpos(first.session, '/') + 1))
        and gate.gate_id <> all (coalesce(first.passed_gates, array[]::int8[]))
)
limit entry.most offset entry.passed) as of_key
            ) as deeper
        ) as one
    ) as taken on true
    order by taken.number, taken.probes, taken.place
    limit queue.size + queue.skip
) as listed) as turn
cross join lateral (
    select coalesce(array_agg(first.task_id order by first.next_trigger_at) filter (where not exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = first.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(first.session, strpos(first.session, '/') + 1))
        and gate.gate_id <> all (coalesce(first.passed_gates, array[]::int8[]))
)), '{}') as ids
    from (
        select assoc.task_id, assoc.next_trigger_at, assoc.collection, assoc.session, assoc.passed_gates
        from task_assoc as assoc
        where assoc.lambda = queue.lambda and assoc.priority = queue.priority
            and assoc.status in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= least((select now from clock), gates.probes_until)
        order by assoc.next_trigger_at
        limit %(window)b::int4
    ) as first
) as head
cross join lateral (
    select assoc.task_id, assoc.resources, listed.turn_key, listed.turn_used, listed.turn_place
    from (
        select * from unnest(turn.ids, turn.keys, turn.used) with ordinality as listed (task_id, turn_key, turn_used, turn_place)
        union all
        select rest.task_id, turn.end_key, 0, 1000000 + rest.place
        from unnest(head.ids || array(
            select behind.task_id
            from unnest(%(behind)b::uuid[], %(behind_lambdas)b::text[], %(behind_priorities)b::int2[])
                as behind (task_id, lambda, priority)
            where behind.lambda = queue.lambda and behind.priority = queue.priority and behind.task_id <> all (head.ids)
        )) with ordinality as rest (task_id, place)
        where rest.task_id <> all (turn.ids)
    ) as listed
    join task_assoc as assoc on assoc.task_id = any (array[listed.task_id])
    where assoc.lambda = queue.lambda and assoc.priority = queue.priority
        and assoc.status::text in ('new', 'retriable_failure')
        and assoc.next_trigger_at <= least((select now from clock), gates.probes_until)
        and (assoc.expires_at is null or assoc.expires_at > (select now from clock)) and not exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = assoc.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(assoc.session, strpos(assoc.session, '/') + 1))
        and gate.gate_id <> all (coalesce(assoc.passed_gates, array[]::int8[]))
)
    order by listed.turn_place
    limit queue.size + queue.skip
    for update of assoc skip locked
) as found
limit queue.size offset queue.skip) as picked
), parked as materialized (
    select parked.task_id, parked.taken
    from (
        select array_agg(task_id) as task_ids, array_agg(resources) as needs
        from (
            -- two picks of a queue find one task twice if it is given back between them
            select distinct on (task_id) task_id, resources from due where resources is not null
        ) as once
    ) as asked
    cross join lateral duly_admit(asked.task_ids, asked.needs) as parked (task_id, taken)
)
update task_assoc as assoc
set status = 'enqueued', next_trigger_at = (select duly_now()) + %(enqueue_timeout)b, start_at = null,
    enqueued_at = (select duly_now()), resources = due.resources, taken = case
    when due.resources is not null
        then coalesce((select parked.taken from parked where parked.task_id = due.task_id), due.resources)
end
from due
where assoc.task_id = any (array[due.task_id]) and assoc.status::text in ('new', 'retriable_failure')
    and due.task_id not in (select task_id from parked where taken is null)
returning assoc.task_id, assoc.lambda, assoc.priority, due.turn_key, due.turn_used, due.turn_place;

-- name: claim_work_gated_fair
with clock as materialized (
    select duly_now() as now
), quotas as materialized (
    select jsonb_object_agg(name, needs) as by_name
    from (
        select name, jsonb_build_array(jsonb_build_object('name', name, 'key', '', 'weight', 1)) as needs
        from resource
        where name like 'lambda:%%' or name like 'namespace:%%' or name like 'domain:%%'
        union all
        select 'needs:' || name, needs::jsonb from lambda where needs is not null
    ) as known
), queue as (
    select *, case
    when (select by_name from quotas) is not null then nullif(
        coalesce((select by_name from quotas) -> concat('lambda:', split_part(queue.lambda, '@', 1)), '[]')
            || coalesce((select by_name from quotas) -> concat(
                'namespace:', case when strpos(queue.lambda, '/') > 0 then split_part(queue.lambda, '/', 1) else 'default' end
            ), '[]')
            || coalesce((select by_name from quotas) -> concat('domain:', split_part(split_part(queue.lambda, ':', 1), '~', 2)), '[]')
            || coalesce((select by_name from quotas) -> concat('needs:', split_part(queue.lambda, '@', 1)), '[]'),
        '[]'
    )
end as quota
    from unnest(%(lambdas)b::text[], %(priorities)b::int2[], %(sizes)b::int4[], %(skips)b::int4[], %(takes_turns)b::bool[], %(from_keys)b::text[], %(from_used)b::int4[], %(is_weighted)b::bool[], %(reaches)b::int4[])
        as queue (lambda, priority, size, skip, takes_turns, from_key, from_used, is_weighted, reach)
), due as (
    select picked.task_id, case
    when queue.quota is null or picked.resources @> queue.quota then picked.resources
    when picked.resources is null then queue.quota
    else (
        -- both may name one: then the larger weight counts
        select jsonb_agg(jsonb_build_object('name', merged.name, 'key', merged.key, 'weight', merged.weight))
        from (
            select need.name, need.key, max(need.weight) as weight
            from jsonb_to_recordset(picked.resources || queue.quota) as need (name text, key text, weight int4)
            group by need.name, need.key
        ) as merged
    )
end as resources, queue.lambda, queue.priority, picked.turn_key, picked.turn_used, picked.turn_place
    from queue cross join lateral (select found.task_id, found.resources, found.turn_key, found.turn_used, found.turn_place
from (select (%(gate_ids)b::int8[])[part.first:part.last] as ids,
    (%(gate_priorities)b::int2[])[part.first:part.last] as priorities,
    (%(gate_collections)b::text[])[part.first:part.last] as collections,
    (%(gate_sessions)b::text[])[part.first:part.last] as sessions, coalesce(part.probes_until, 'infinity') as probes_until,
    queue.priority
from (
    select (%(set_firsts)b::int4[])[number] as first, (%(set_lasts)b::int4[])[number] as last,
        (%(set_probes_until)b::timestamptz[])[number] as probes_until
    from (
        select ((select jsonb_object(%(gated_lambdas)b::text[], %(gate_sets)b::text[])) ->> queue.lambda)::int4 as number
    ) as gate_set
    offset 0
) as part
offset 0) as gates
cross join lateral (select coalesce(array_agg(listed.task_id) filter (where listed.task_id is not null), '{}') as ids,
    array_agg(listed.key) as keys, array_agg(listed.used) as used, (array_agg(listed.end_key))[1] as end_key
from (select (select now from clock) as now offset 0) as moment cross join lateral (
    with recursive walk as (
        -- what is left of the last turn
        select 0 as probes, start.key, false as is_wrapped, start.weight, queue.from_used as used_before,
            0 as passed, start.ids, cardinality(start.ids) as total, cardinality(start.ids) as first_taken
        from (
            select entry.key, entry.weight, array(select first.task_id
from (
    select assoc.task_id, assoc.next_trigger_at, assoc.collection, assoc.session, assoc.passed_gates
    from task_assoc as assoc
    where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
        and assoc.fair_key >= entry.key and assoc.fair_key <= entry.key
        and assoc.next_trigger_at <= least(moment.now, gates.probes_until)
        and (assoc.expires_at is null or assoc.expires_at > moment.now)
    order by assoc.fair_key, assoc.next_trigger_at
    limit case when entry.most > 0 then 64 + entry.passed + entry.most else 0 end
) as first
where not exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = first.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(first.session, strpos(first.session, '/') + 1))
        and gate.gate_id <> all (coalesce(first.passed_gates, array[]::int8[]))
)
limit entry.most offset entry.passed) as ids
            from (
                select queue.from_key collate "C" as key, weighed.weight, 0 as passed,
                    case when queue.from_used > 0 then greatest(weighed.weight - queue.from_used, 0) else 0 end as most
                from (select case
    when queue.is_weighted then coalesce((
        select fair_weight.weight
        from fair_weight
        where fair_weight.lambda = split_part(queue.lambda, '@', 1) and fair_weight.fair_key = queue.from_key
    ), 1)
    else 1
end as weight offset 0) as weighed
                offset 0
            ) as entry
            offset 0
        ) as start
        where queue.takes_turns
        union all
        select walk.probes + 1, entry.key, entry.is_wrapped, entry.most, 0, entry.passed, taken.ids,
            walk.total + cardinality(taken.ids), walk.first_taken
        from walk
        cross join lateral (
            (
                select later.*, walk.is_wrapped
                from (select assoc.fair_key as key, assoc.task_id, assoc.next_trigger_at, assoc.expires_at, assoc.collection, assoc.session,
    assoc.passed_gates
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
    and assoc.fair_key is not null and assoc.fair_key > walk.key
order by assoc.fair_key, assoc.next_trigger_at
limit 1) as later
                where not walk.is_wrapped or later.key <= queue.from_key
            )
            union all
            (
                select first.*, true
                from (select assoc.fair_key as key, assoc.task_id, assoc.next_trigger_at, assoc.expires_at, assoc.collection, assoc.session,
    assoc.passed_gates
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
    and assoc.fair_key is not null 
order by assoc.fair_key, assoc.next_trigger_at
limit 1) as first
                where not walk.is_wrapped and first.key <= queue.from_key
            )
            limit 1
        ) as head
        cross join lateral (
            -- the key that began the round ends it, too
            select head.key, head.is_wrapped, case
    when queue.is_weighted then coalesce((
        select fair_weight.weight
        from fair_weight
        where fair_weight.lambda = split_part(queue.lambda, '@', 1) and fair_weight.fair_key = head.key
    ), 1)
    else 1
end as most,
                case when head.key = queue.from_key then walk.first_taken else 0 end as passed
            -- else Postgres would write the weight's subquery into each place that uses it
            offset 0
        ) as entry
        cross join lateral (
            select case
                when head.next_trigger_at > moment.now then '{}'
                when entry.most = 1 and entry.passed = 0 and (
    (head.expires_at is null or head.expires_at > moment.now) and head.next_trigger_at <= gates.probes_until
    and not exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = head.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(head.session, strpos(head.session, '/') + 1))
        and gate.gate_id <> all (coalesce(head.passed_gates, array[]::int8[]))
)
) then array[head.task_id]
                else array(select first.task_id
from (
    select assoc.task_id, assoc.next_trigger_at, assoc.collection, assoc.session, assoc.passed_gates
    from task_assoc as assoc
    where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
        and assoc.fair_key >= entry.key and assoc.fair_key <= entry.key
        and assoc.next_trigger_at <= least(moment.now, gates.probes_until)
        and (assoc.expires_at is null or assoc.expires_at > moment.now)
    order by assoc.fair_key, assoc.next_trigger_at
    limit case when entry.most > 0 then 64 + entry.passed + entry.most else 0 end
) as first
where not exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = first.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(first.session, strpos(first.session, '/') + 1))
        and gate.gate_id <> all (coalesce(first.passed_gates, array[]::int8[]))
)
limit entry.most offset entry.passed)
            end as ids
            -- else of_key would be written twice, too
            offset 0
        ) as taken
        where walk.total < queue.size + queue.skip and walk.probes < 64 + 2 * (queue.size + queue.skip)
    ), round as (
        select max(total) as total, count(*) as keys, greatest(sum(weight) filter (where probes > 0 and cardinality(ids) > 0), 1) as weights,
            case
                when max(total) < queue.size + queue.skip and max(probes) >= 64 + 2 * (queue.size + queue.skip)
                    then (array_agg(key order by probes desc))[1]
            end as end_key
        from walk
    ), further as (
        -- of each key its part twice: that is enough unless many keys have little
        select walk.probes, walk.key, walk.weight, walk.passed, of_each.most, one.task_id, one.place
        from round
        join walk on round.total < queue.size + queue.skip and walk.probes > 0 and cardinality(walk.ids) = walk.weight
        cross join lateral (
            select least(2 * walk.weight * ceil(queue.reach / round.weights), queue.reach)::int4 as most offset 0
        ) as of_each
        cross join lateral (
            select of_key.task_id, walk.weight + row_number() over () as place
            from (select walk.key, walk.passed + walk.weight as passed, of_each.most) as entry
            cross join lateral (select first.task_id
from (
    select assoc.task_id, assoc.next_trigger_at, assoc.collection, assoc.session, assoc.passed_gates
    from task_assoc as assoc
    where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
        and assoc.fair_key >= entry.key and assoc.fair_key <= entry.key
        and assoc.next_trigger_at <= least(moment.now, gates.probes_until)
        and (assoc.expires_at is null or assoc.expires_at > moment.now)
    order by assoc.fair_key, assoc.next_trigger_at
    limit case when entry.most > 0 then 64 + entry.passed + entry.most else 0 end
) as first
where not exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = first.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(first.session, strpos(first.session, '/') + 1))
        and gate.gate_id <> all (coalesce(first.passed_gates, array[]::int8[]))
)
limit entry.most offset entry.passed) as of_key
        ) as one
    )
    select taken.task_id, coalesce(round.end_key, taken.key) as key,
        case when round.end_key is null then taken.used else 0 end as used, round.end_key
    from round left join (
        select 0 as number, walk.probes, one.place, walk.key, walk.used_before + one.place as used, one.task_id
        from walk cross join lateral unnest(walk.ids) with ordinality as one (task_id, place)
        union all
        select (one.place - 1) / one.weight, one.probes, one.place, one.key, 1 + (one.place - 1) %% one.weight, one.task_id
        from (
            select further.probes, further.key, further.weight, further.place, further.task_id
            from further
            union all
            select further.probes, further.key, further.weight, deeper.place, deeper.task_id
            from round
            join further on round.total + (select count(*) from further) < queue.size + queue.skip
                and further.place = further.weight + further.most
            cross join lateral (
                select of_key.task_id, further.place + row_number() over () as place
                from (
                    select further.key, further.passed + further.place as passed,
                        least(1000 / round.keys, queue.reach)::int4 - further.most as most
                    where least(1000 / round.keys, queue.reach) > further.most
                ) as entry
                cross join lateral (select first.task_id
from (
    select assoc.task_id, assoc.next_trigger_at, assoc.collection, assoc.session, assoc.passed_gates
    from task_assoc as assoc
    where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
        and assoc.fair_key >= entry.key and assoc.fair_key <= entry.key
        and assoc.next_trigger_at <= least(moment.now, gates.probes_until)
        and (assoc.expires_at is null or assoc.expires_at > moment.now)
    order by assoc.fair_key, assoc.next_trigger_at
    limit case when entry.most > 0 then 64 + entry.passed + entry.most else 0 end
) as first
where not exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = first.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(first.session, strpos(first.session, '/') + 1))
        and gate.gate_id <> all (coalesce(first.passed_gates, array[]::int8[]))
)
limit entry.most offset entry.passed) as of_key
            ) as deeper
        ) as one
    ) as taken on true
    order by taken.number, taken.probes, taken.place
    limit queue.size + queue.skip
) as listed) as turn
cross join lateral (
    select coalesce(array_agg(first.task_id order by first.next_trigger_at) filter (where not exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = first.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(first.session, strpos(first.session, '/') + 1))
        and gate.gate_id <> all (coalesce(first.passed_gates, array[]::int8[]))
)), '{}') as ids
    from (
        select assoc.task_id, assoc.next_trigger_at, assoc.collection, assoc.session, assoc.passed_gates
        from task_assoc as assoc
        where assoc.lambda = queue.lambda and assoc.priority = queue.priority
            and assoc.status in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= least((select now from clock), gates.probes_until)
        order by assoc.next_trigger_at
        limit %(window)b::int4
    ) as first
) as head
cross join lateral (
    select assoc.task_id, assoc.resources, listed.turn_key, listed.turn_used, listed.turn_place
    from (
        select * from unnest(turn.ids, turn.keys, turn.used) with ordinality as listed (task_id, turn_key, turn_used, turn_place)
        union all
        select rest.task_id, turn.end_key, 0, 1000000 + rest.place
        from unnest(head.ids || array(
            select behind.task_id
            from unnest(%(behind)b::uuid[], %(behind_lambdas)b::text[], %(behind_priorities)b::int2[])
                as behind (task_id, lambda, priority)
            where behind.lambda = queue.lambda and behind.priority = queue.priority and behind.task_id <> all (head.ids)
        )) with ordinality as rest (task_id, place)
        where rest.task_id <> all (turn.ids)
    ) as listed
    join task_assoc as assoc on assoc.task_id = any (array[listed.task_id])
    where assoc.lambda = queue.lambda and assoc.priority = queue.priority
        and assoc.status::text in ('new', 'retriable_failure')
        and assoc.next_trigger_at <= least((select now from clock), gates.probes_until)
        and (assoc.expires_at is null or assoc.expires_at > (select now from clock)) and not exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = assoc.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(assoc.session, strpos(assoc.session, '/') + 1))
        and gate.gate_id <> all (coalesce(assoc.passed_gates, array[]::int8[]))
)
    order by listed.turn_place
    limit queue.size + queue.skip
    for update of assoc skip locked
) as found
limit queue.size offset queue.skip) as picked
    limit %(most)b
), parked as materialized (
    select parked.task_id, parked.taken
    from (
        select array_agg(task_id) as task_ids, array_agg(resources) as needs
        from (
            -- two picks of a queue find one task twice if it is given back between them
            select distinct on (task_id) task_id, resources from due where resources is not null
        ) as once
    ) as asked
    cross join lateral duly_admit(asked.task_ids, asked.needs) as parked (task_id, taken)
), placed as materialized (
    select task_id, resources, (row_number() over () - 1)::int4 as place
    from due
    where task_id not in (select task_id from parked where taken is null)
), claimed as (
    update task_assoc as assoc
    set status = 'claimed', fence = assoc.fence + 1, next_trigger_at = (select duly_now()) + %(claim_timeout)b,
        start_at = null, resources = placed.resources, taken = case
    when placed.resources is not null
        then coalesce((select parked.taken from parked where parked.task_id = placed.task_id), placed.resources)
end, claimed_at = (select duly_now()), holder = (%(holders)b::text[])[1 + placed.place %% %(callers)b::int4],
        token = encode((%(prefixes)b::bytea[])[1 + placed.place %% %(callers)b::int4]
            || int2send((placed.place / %(callers)b::int4)::int2), 'hex')::uuid
    from placed
    -- all are picked before the first is claimed: a later pick of a queue passes over those of an earlier one, and it would
    -- not see those that are claimed
    where (select count(*) from placed) > 0
        and assoc.task_id = any (array[placed.task_id]) and assoc.status::text in ('new', 'retriable_failure')
    returning assoc.task_id, assoc.token, assoc.lambda, assoc.priority, assoc.fence, assoc.failures, assoc.crashes,
    assoc.worker_crashes, assoc.due_at, assoc.edits, assoc.events
)
select answered.*, later.queue_lambda, later.queue_priority, later.due_in, turn.turn_lambda, turn.turn_priority, turn.turn_key, turn.turn_used
from (select claimed.task_id, claimed.token, claimed.lambda as lambda_name, claimed.priority, claimed.fence,
    claimed.failures, claimed.crashes, (extract(epoch from claimed.due_at) * 1000000)::int8 as due_at_us,
    entity.payload, entity.payload_encoding::int4 as encoding, coalesce(entity.max_runtime, coalesce(lambda.max_runtime, interval '0 days 3600 seconds')) as max_runtime,
    case when entity.time_table is not null then (extract(epoch from entity.scheduled_at) * 1000000)::int8 end as tick_at_us,
    entity.graph as graph_id,
    entity.checkpoint,
    case when claimed.events is not null then (
        select max(case event ->> 'kind'
            when 'put_off' then event ->> 'next'
            when 'unparked' then event ->> 'at'
            when 'ungated' then event ->> 'at'
            when 'rate_lifted' then event ->> 'at'
        end::int8)
        from jsonb_array_elements(claimed.events) as event
    ) end as startable_at_us,
    claimed.crashes = 1 and claimed.worker_crashes = 1 as crashed_with_worker,
    entity.attachments, entity.received,
    entity.edits + entity.checkpoint_count <> claimed.edits as is_stale
from claimed
left join lateral (
    select task.priority, task.payload, task.payload_encoding, task.time_table, task.scheduled_at, task.graph,
        task.max_runtime, task.checkpoint, task.attachments, task.received, task.checkpoint_count, task.edits
    from task
    where task.task_id = claimed.task_id and task.lambda = claimed.lambda 
    limit 1
) as entity on true
left join lambda on lambda.name = any (array[claimed.lambda])
where coalesce(entity.priority, 0) > 0) as answered
full join (
    select queue.lambda as queue_lambda, queue.priority as queue_priority, (
    select assoc.next_trigger_at
    from task_assoc as assoc
    where assoc.lambda = queue.lambda and assoc.priority = queue.priority
        and assoc.status in ('new', 'retriable_failure')
        and assoc.next_trigger_at > (select now from clock)
        and assoc.next_trigger_at <= (select now from clock) + %(within)b::interval
        and (assoc.expires_at is null or assoc.expires_at > (select now from clock))
    order by assoc.next_trigger_at
    limit 1
) - (select duly_now()) as due_in
    from queue
    where queue.skip = 0 and (select count(*) from due) < %(most)b and not exists (select from parked where taken is null)
) as later on false
full join (
    select distinct on (due.lambda, due.priority) due.lambda as turn_lambda, due.priority as turn_priority, due.turn_key, due.turn_used
    from due
    where due.turn_key is not null
    order by due.lambda, due.priority, due.turn_place desc
) as turn on false;

-- name: finish_unwatched
with asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(tokens)b::uuid[], %(results)b::bytea[], %(encodings)b::int2[],
        %(started_at)b::timestamptz[]
    ) as asked (task_id, token, result, encoding, started_at)
), ended as (
    delete from task_assoc as assoc
    using asked
    where assoc.task_id = any (array[asked.task_id]) and assoc.token = asked.token and assoc.status::text in ('claimed', 'processing')
    returning assoc.task_id, 'success'::task_status as status, (select duly_now()) as ended_at, asked.started_at, assoc.fence,
        assoc.failures, assoc.crashes, asked.token as last_token, asked.result, asked.encoding as result_encoding,
        assoc.enqueued_at, assoc.claimed_at, assoc.holder, assoc.lambda, assoc.session, assoc.session_policy, assoc.graph, assoc.doom, assoc.resources, assoc.taken, assoc.events, null::int2 as failure_kind, null::text as failure_message
), entity as (
    insert into task (
        task_id, status, finished_at, started_at, fence, failures, crashes, last_token, result, result_encoding,
        failure_kind, failure_message, failed_at, events, enqueued_at, claimed_at, holder
    )
    select task_id, status::task_status, ended_at, started_at, fence, failures, crashes, last_token, result,
        result_encoding, failure_kind, failure_message, case when failure_kind is not null then ended_at end, events,
        case when status = 'success' then enqueued_at end, case when status = 'success' then claimed_at end,
        -- not of the first run: a plain task's row must not outgrow the free half of its page (decision 0043)
        case when status = 'success' and fence > 1 then holder end
    from ended
    where true
    on conflict (task_id) do update
    set status = excluded.status, finished_at = excluded.finished_at,
        started_at = coalesce(excluded.started_at, task.started_at),
        fence = excluded.fence, failures = excluded.failures, crashes = excluded.crashes,
        last_token = excluded.last_token, result = excluded.result, result_encoding = excluded.result_encoding,
        failure_kind = coalesce(excluded.failure_kind, task.failure_kind),
        failure_message = case
            when excluded.failure_kind is null then task.failure_message
            when excluded.failure_kind = 7 and task.failure_message is not null
                then left('expires_at passed before it could run again; the last failure: ' || task.failure_message, 1024)
            else excluded.failure_message
        end,
        failed_at = coalesce(excluded.failed_at, task.failed_at),
        checkpoint = case when excluded.status::text <> 'success' then task.checkpoint end,
        enqueued_at = excluded.enqueued_at, claimed_at = excluded.claimed_at, holder = excluded.holder,
        events = case
            when excluded.events is null then task.events
            when task.events is null then excluded.events
            else duly_bound_events(task.events || excluded.events)
        end
    where task.status is null
), released as (
    select released.lambda, released.due_in
    from (
        select array_agg(session) as sessions, array_agg(session_policy) as policies, array_agg(graph) as graphs,
            array_agg(task_id) as task_ids, array_agg(doom) as dooms,
            -- the only end that keeps this kind is a timeout that is final
            array_agg(
                case when status::text = 'fatal_failure' and failure_kind = 3 then 'timed_out' else status::text end
            ) as statuses,
            array_agg(resources) as resources, array_agg(taken) as taken
        from ended
        where session is not null or graph is not null or resources is not null
    ) as linked cross join lateral duly_release(
        linked.sessions, linked.policies, linked.graphs, linked.task_ids, linked.statuses, linked.dooms, linked.resources,
        linked.taken
    ) as released
)
select ended.task_id, ended.last_token as token, released.lambda, released.due_in from ended full join released on false;

-- name: finish_one_unwatched
with asked as (
    select %(task_id)b::uuid as task_id, %(token)b::uuid as token, %(result)b::bytea as result, %(encoding)b::int2 as encoding,
        %(started_at)b::timestamptz as started_at
), ended as (
    delete from task_assoc as assoc
    using asked
    where assoc.task_id = any (array[asked.task_id]) and assoc.token = asked.token and assoc.status::text in ('claimed', 'processing')
    returning assoc.task_id, 'success'::task_status as status, (select duly_now()) as ended_at, asked.started_at, assoc.fence,
        assoc.failures, assoc.crashes, asked.token as last_token, asked.result, asked.encoding as result_encoding,
        assoc.enqueued_at, assoc.claimed_at, assoc.holder, assoc.lambda, assoc.session, assoc.session_policy, assoc.graph, assoc.doom, assoc.resources, assoc.taken, assoc.events, null::int2 as failure_kind, null::text as failure_message
), entity as (
    insert into task (
        task_id, status, finished_at, started_at, fence, failures, crashes, last_token, result, result_encoding,
        failure_kind, failure_message, failed_at, events, enqueued_at, claimed_at, holder
    )
    select task_id, status::task_status, ended_at, started_at, fence, failures, crashes, last_token, result,
        result_encoding, failure_kind, failure_message, case when failure_kind is not null then ended_at end, events,
        case when status = 'success' then enqueued_at end, case when status = 'success' then claimed_at end,
        -- not of the first run: a plain task's row must not outgrow the free half of its page (decision 0043)
        case when status = 'success' and fence > 1 then holder end
    from ended
    where true
    on conflict (task_id) do update
    set status = excluded.status, finished_at = excluded.finished_at,
        started_at = coalesce(excluded.started_at, task.started_at),
        fence = excluded.fence, failures = excluded.failures, crashes = excluded.crashes,
        last_token = excluded.last_token, result = excluded.result, result_encoding = excluded.result_encoding,
        failure_kind = coalesce(excluded.failure_kind, task.failure_kind),
        failure_message = case
            when excluded.failure_kind is null then task.failure_message
            when excluded.failure_kind = 7 and task.failure_message is not null
                then left('expires_at passed before it could run again; the last failure: ' || task.failure_message, 1024)
            else excluded.failure_message
        end,
        failed_at = coalesce(excluded.failed_at, task.failed_at),
        checkpoint = case when excluded.status::text <> 'success' then task.checkpoint end,
        enqueued_at = excluded.enqueued_at, claimed_at = excluded.claimed_at, holder = excluded.holder,
        events = case
            when excluded.events is null then task.events
            when task.events is null then excluded.events
            else duly_bound_events(task.events || excluded.events)
        end
    where task.status is null
), released as (
    select released.lambda, released.due_in
    from (
        select array_agg(session) as sessions, array_agg(session_policy) as policies, array_agg(graph) as graphs,
            array_agg(task_id) as task_ids, array_agg(doom) as dooms,
            -- the only end that keeps this kind is a timeout that is final
            array_agg(
                case when status::text = 'fatal_failure' and failure_kind = 3 then 'timed_out' else status::text end
            ) as statuses,
            array_agg(resources) as resources, array_agg(taken) as taken
        from ended
        where session is not null or graph is not null or resources is not null
    ) as linked cross join lateral duly_release(
        linked.sessions, linked.policies, linked.graphs, linked.task_ids, linked.statuses, linked.dooms, linked.resources,
        linked.taken
    ) as released
)
select ended.task_id, ended.last_token as token, released.lambda, released.due_in from ended full join released on false;
