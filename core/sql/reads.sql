-- Written by `make sql` from core/duly_core/tasks/reads.sql. Edit that.

-- name: existing
select asked.place, task.task_id,
    task.lambda is not distinct from asked.lambda and task.collection is not distinct from asked.collection and task.session is not distinct from left(asked.lambda, greatest(strpos(asked.lambda, '/') - 1, 0)) || '/' || asked.session and task.resources is not distinct from asked.resources::jsonb and task.fair_key is not distinct from asked.fair_key and task.attachments is not distinct from asked.attachments::jsonb and task.unique_key is not distinct from asked.unique_key and task.attributes is not distinct from asked.attributes::jsonb and case
            -- of one that was changed since, what it was scheduled with counts (update_pending)
        when task.scheduled_as is not null
            then task.scheduled_as = sha256(asked.payload || int2send(asked.encoding) || int2send(asked.priority))
        when task.payload_encoding <> asked.encoding or task.priority <> asked.priority then false
        when asked.encoding <> 3 then task.payload = asked.payload
            -- the head names the key: two that are encrypted with different keys cannot be compared
        else task.payload = asked.payload or substr(task.payload, 1, 3 + get_byte(task.payload, 2))
            <> substr(asked.payload, 1, 3 + get_byte(asked.payload, 2))
    end as same
from unnest(%(task_ids)b::uuid[], %(lambdas)b::text[], %(collections)b::text[], %(priorities)b::int2[], %(encodings)b::int2[], %(payloads)b::bytea[], %(scheduled_at)b::timestamptz[], %(delays)b::interval[], %(expires_at)b::timestamptz[], %(keys)b::text[], %(sessions)b::text[], %(session_orders)b::int2[], %(session_policies)b::int2[], %(resources)b::text[], %(scheduled_by)b::text[], %(fair_keys)b::text[], %(attachments)b::text[], %(unique_keys)b::text[], %(attribute_sets)b::text[]) with ordinality as asked (task_id, lambda, collection, priority, encoding, payload, scheduled_at, delay, expires_at, key, session, session_order, session_policy, resources, scheduled_by, fair_key, attachments, unique_key, attributes, place)
left join lateral (
    select key.task_id from idempotency_key as key where key.lambda = asked.lambda and key.key = asked.key limit 1
) as taken on true
cross join lateral (
    select task.task_id, task.priority, task.payload_encoding, task.payload, task.scheduled_as, task.lambda, task.collection, task.session, task.resources, task.fair_key, task.attachments, task.unique_key, task.attributes
    from task
    where task.task_id = coalesce(taken.task_id, asked.task_id)
    limit 1
) as task;

-- name: claimed_before
with claimed as (
    select assoc.task_id, assoc.token, assoc.lambda, assoc.priority, assoc.fence, assoc.failures, assoc.crashes,
    assoc.worker_crashes, assoc.due_at, assoc.edits, assoc.events
    from unnest(%(task_ids)b::uuid[], %(tokens)b::uuid[]) as asked (task_id, token)
    join task_assoc as assoc on assoc.task_id = any (array[asked.task_id]) and assoc.token = asked.token
    where assoc.status::text in ('claimed', 'processing')
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

-- name: applied_before
select asked.token
from unnest(%(task_ids)b::uuid[], %(tokens)b::uuid[]) as asked (task_id, token)
join task on task.task_id = any (array[asked.task_id])
left join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
where coalesce(assoc.last_token, task.last_token) = asked.token;

-- name: completed_before
select asked.place::int4 - 1 as place, coalesce(assoc.status, task.status)::text as status,
    coalesce(assoc.status::text = 'waiting' and assoc.parked_on = 'completion:' and assoc.parked_key = asked.hash, false) as is_waiting,
    known.is_last,
    -- each later end of a run replaces the last token: so the last line is that of the attempt that was handed over
    known.is_last and coalesce((
        select attempt.failure_kind = 16
        from attempt
        where attempt.task_id = any (array[asked.task_id]) and attempt.task_id between (%(task_ids)b::uuid[])[1] and (%(task_ids)b::uuid[])[cardinality(%(task_ids)b::uuid[])]
        order by attempt.fence desc
        limit 1
    ), false) as is_late,
    coalesce(task.result = asked.result and task.result_encoding = asked.encoding, false) as is_same
from unnest(%(task_ids)b::uuid[], %(hashes)b::text[], %(results)b::bytea[], %(encodings)b::int2[]) with ordinality
    as asked (task_id, hash, result, encoding, place)
join task on task.task_id = any (array[asked.task_id])
left join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
cross join lateral (
    select coalesce(coalesce(assoc.last_token, task.last_token) = left(asked.hash, 32)::uuid, false) as is_last
) as known;

-- name: claimed_under
select task_id, token
from task_assoc
where status in ('claimed', 'processing') and substring(uuid_send(token) from 1 for 14) = any (%(prefixes)b::bytea[]);

-- name: next_triggers
select queue.lambda, queue.priority, (
    select assoc.next_trigger_at
    from task_assoc as assoc
    where assoc.lambda = queue.lambda and assoc.priority = queue.priority
        and assoc.status in ('new', 'retriable_failure')
        and assoc.next_trigger_at <= (select duly_now()) + %(within)b::interval
        and (assoc.expires_at is null or assoc.expires_at > (select duly_now()))
    order by assoc.next_trigger_at
    limit 1
) - (select duly_now()) as due_in
from unnest(%(lambdas)b::text[], %(priorities)b::int2[]) as queue (lambda, priority);

-- name: enqueued_gated
select assoc.task_id
from task_assoc as assoc
where assoc.status = 'enqueued' and exists (select from (select (%(gate_ids)b::int8[])[part.first:part.last] as ids,
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
order by assoc.next_trigger_at
limit %(limit)b;

-- name: behind_gated
select queue.lambda, queue.priority, seen.rows, seen.last_at,
    coalesce(seen.last_at < (select duly_now()) - interval '1 second', false) as is_settled, seen.task_ids
from unnest(%(lambdas)b::text[], %(priorities)b::int2[], %(since)b::timestamptz[], %(most)b::int4[])
    as queue (lambda, priority, since, most)
cross join lateral (select (%(gate_ids)b::int8[])[part.first:part.last] as ids,
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
    select count(*)::int4 as rows, max(due.next_trigger_at) as last_at,
        coalesce(array_agg(due.task_id order by due.next_trigger_at) filter (where not exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = due.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = substr(due.session, strpos(due.session, '/') + 1))
        and gate.gate_id <> all (coalesce(due.passed_gates, array[]::int8[]))
)), '{}') as task_ids
    from (
        select assoc.task_id, assoc.next_trigger_at, assoc.collection, assoc.session, assoc.passed_gates
        from task_assoc as assoc
        where assoc.lambda = queue.lambda and assoc.priority = queue.priority
            and assoc.status in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= least((select duly_now()), gates.probes_until)
            and assoc.next_trigger_at >= coalesce(queue.since, '-infinity')
        order by assoc.next_trigger_at
        limit queue.most
    ) as due
) as seen;

-- name: queues_of
select named.name
from (select lambda.name from lambda union select deleted.name from deleted_lambda as deleted union select %(name)b::text) as named
where named.name ~ %(pattern)b::text;

-- name: live_by_status
with read as (
    (
        select 'ready' as part, found.*
        from unnest(%(lambdas)b::text[]) as asked (lambda) cross join unnest(%(priorities)b::int2[]) as queue (priority)
        cross join lateral (
            select assoc.lambda, assoc.priority, assoc.status, assoc.collection, assoc.session
            from task_assoc as assoc
            where assoc.lambda = asked.lambda and assoc.priority = queue.priority
                and assoc.status in ('new', 'retriable_failure')
            order by assoc.next_trigger_at
            limit %(most)b::int8
        ) as found
        limit %(most)b::int8
    ) union all (
        select 'taken', assoc.lambda, assoc.priority, assoc.status, assoc.collection, assoc.session
        from task_assoc as assoc
        where assoc.status in ('enqueued', 'claimed', 'processing')
        order by assoc.next_trigger_at
        limit %(most)b::int8
    ) union all (
        select 'waiting', assoc.lambda, assoc.priority, assoc.status, assoc.collection, assoc.session
        from task_assoc as assoc
        where assoc.status = 'waiting' and assoc.doom is null
        order by assoc.session, assoc.session_rank, assoc.session_seq
        limit %(most)b::int8
    )
)
select read.part, read.status::text, count(*) filter (
        where read.lambda = any (%(lambdas)b::text[]) and read.priority = any (%(priorities)b::int2[])
            and (%(collection)b::text is null or read.collection = %(collection)b::text)
            and (%(session)b::text is null or substr(read.session, strpos(read.session, '/') + 1) = %(session)b::text)
    ) as hits, count(*) as rows
from read
group by read.part, read.status;

-- name: parked_on_gates
with recursive named as (
    (
        select assoc.parked_on
        from task_assoc as assoc
        where assoc.parked_on is not null and assoc.status = 'waiting'
        order by assoc.parked_on
        limit 1
    )
    union all
    select following.parked_on
    from named cross join lateral (
        select assoc.parked_on
        from task_assoc as assoc
        where assoc.parked_on > named.parked_on and assoc.status = 'waiting'
        order by assoc.parked_on
        limit 1
    ) as following
), found as (
    select named.parked_on, first.parked_key
    from named cross join lateral (
        select assoc.parked_key
        from task_assoc as assoc
        where assoc.parked_on = named.parked_on and assoc.status = 'waiting'
        order by assoc.parked_key
        limit 1
    ) as first
    where starts_with(named.parked_on, 'gate:')
    union all
    select found.parked_on, following.parked_key
    from found cross join lateral (
        select assoc.parked_key
        from task_assoc as assoc
        where assoc.parked_on = found.parked_on and assoc.parked_key > found.parked_key and assoc.status = 'waiting'
        order by assoc.parked_key
        limit 1
    ) as following
)
select found.parked_on, found.parked_key
from found
where not exists (
    select from gate
    where gate.gate_id = any (array[found.parked_key::int8]) and (gate.expires_at is null or gate.expires_at > (select duly_now()))
);

-- name: next_timeout
select least(
    (
        select next_trigger_at from task_assoc
        where status in ('enqueued', 'claimed', 'processing')
        order by next_trigger_at
        limit 1
    ), (
        select expires_at from task_assoc
        where status in ('new', 'retriable_failure', 'enqueued') and expires_at is not null
        order by expires_at
        limit 1
    ), (
        select next_trigger_at from task_assoc
        where status = 'waiting' and next_trigger_at < 'infinity'
        order by next_trigger_at
        limit 1
    ), (
        select skipped_at from resource_use
        where skipped_at is not null
        order by skipped_at
        limit 1
    )
) - (select duly_now());

-- name: live
select assoc.task_id
from task_assoc as assoc
where assoc.task_id = any(%(task_ids)b::uuid[]);

-- name: attempts
select attempt.*
from unnest(%(task_ids)b::uuid[]) as asked (task_id) cross join lateral (
    select task_id, fence, attempt, outcome::text, holder, started_at, ended_at, failure_kind::int4, failure_message,
        case when row_number() over (order by attempt.fence desc) <= %(tracebacks)b::int4 then traceback end as traceback
    from attempt
    where attempt.task_id = any (array[asked.task_id]) and attempt.task_id between (%(task_ids)b::uuid[])[1] and (%(task_ids)b::uuid[])[cardinality(%(task_ids)b::uuid[])]
    order by attempt.fence desc
    limit 100
) as attempt
order by attempt.task_id, attempt.fence;

-- name: sessions
select session.key, session.length, session.head, head.status::text as head_status, session.blocked_by,
    session.blocked_at, session.doomed, waiting.task_ids
from unnest(%(keys)b::text[]) as asked (key)
join session on session.key = any (array[asked.key])
left join lateral (
    select assoc.status from task_assoc as assoc where assoc.task_id = session.head limit 1
) as head on true
cross join lateral (
    select coalesce(array_agg(first.task_id), '{}') as task_ids
    from (
        select assoc.task_id
        from task_assoc as assoc
        where assoc.session = session.key and assoc.status = 'waiting' and assoc.doom is null
            and assoc.parked_on is null
        order by assoc.session, assoc.session_rank, assoc.session_seq
        limit %(tasks)b
    ) as first
) as waiting;

-- name: session_keys
(
    select session.key from session
    where session.key > %(after)b::text and session.key < %(before)b::text and not %(blocked)b
    order by session.key
    limit %(limit)b
) union all (
    select session.key from session
    where session.key > %(after)b::text and session.key < %(before)b::text and session.blocked_at is not null and %(blocked)b
    order by session.key
    limit %(limit)b
);

-- name: former_blockers
select asked.key
from unnest(%(keys)b::text[], %(task_ids)b::uuid[]) as asked (key, task_id)
cross join lateral (
    select task.session
    from task
    where task.task_id = asked.task_id and (task.status::text = 'fatal_failure' or task.redrives > 0)
    limit 1
) as named
where named.session = asked.key;

-- name: blocked_sessions
select count(*) from (
    select from session where session.blocked_at is not null and session.doomed = 0 limit %(limit)b
) as blocked;

-- name: registered
select lambda.name from unnest(%(names)b::text[]) as asked (name) join lambda on lambda.name = any (array[asked.name]);

-- name: tasks_by_key
select asked.place::int4 - 1 as place, found.task_id
from unnest(%(lambdas)b::text[], %(keys)b::text[]) with ordinality as asked (lambda, key, place)
cross join lateral (
    select known.task_id
    from idempotency_key as known
    where known.lambda = asked.lambda and known.key = asked.key
    limit 1
) as found;

-- name: graph_digest
select digest from graph where graph_id = %(graph_id)b;

-- name: live_nodes
select assoc.task_id
from graph_node as node join task_assoc as assoc on assoc.task_id = any (array[node.task_id])
where node.graph_id = %(graph_id)b and assoc.doom is null;

-- name: graph_places
select node.task_id, node.label as own_label, before.label, before.from_task,
    coalesce(assoc.status, ended.status)::text as status,
    case
        when sum(ended.bytes) over (partition by node.task_id order by before.label) <= %(most_bytes)b::int8 then ended.result
    end as result,
    ended.result_encoding::int4 as encoding, ended.result is not null as has_result,
    case
        when sum(ended.bytes) over (partition by node.task_id order by before.label) <= %(most_bytes)b::int8 then ended.uses
    end as uses
from unnest(%(task_ids)b::uuid[]) as asked (task_id)
cross join lateral (
    select node.task_id, node.label, node.waits_for from graph_node as node where node.task_id = asked.task_id limit 1
) as node
left join lateral (
    select source.label, source.lambda, edge.from_task, edge.from_task as task_id
    from unnest(node.waits_for[1 : %(most)b::int4]) as edge (from_task)
    cross join lateral (
        select source.label, source.lambda from graph_node as source where source.task_id = edge.from_task limit 1
    ) as source
) as before on true
left join lateral (
    select found.status, found.result, found.result_encoding, found.uses,
        coalesce(octet_length(found.result), 0) + coalesce(octet_length(found.uses::text), 0) as bytes
    from (
        select task.status, task.result, task.result_encoding,
            case when task.status::text = 'success' then (
    select json_agg(json_build_object(
        'hash', encode(used.hash, 'hex'), 'size_bytes', used.size_bytes, 'name', used.name, 'media_type', used.media_type, 'role', used.role
    ) order by used.position)
    from attachment_use as used
    where used.task_id = before.task_id and used.by_run and used.role = 2 and used.namespace = left(before.lambda, greatest(strpos(before.lambda, '/') - 1, 0))
) end as uses
        from task
        where task.task_id = before.from_task and task.lambda = before.lambda
        limit 1
    ) as found
) as ended on true
left join lateral (
    select assoc.status from task_assoc as assoc where ended.status is null and assoc.task_id = before.from_task limit 1
) as assoc on true
order by node.task_id, before.label;

-- name: growing_graph
select graph.graph_id, graph.total, graph.takes_none, found.label, found.task_id, found.ignore_failure, found.handled,
    case
        when found.doom > 0 then 'dropped'
        when (found.is_live and found.is_redriven or found.ended = 'fatal_failure') and found.failure_kind = 3 then 'timed_out'
        when found.is_live and found.is_redriven then 'fatal_failure'
        else found.ended
    end as status,
    found.is_live, found.lambda, found.task_id = any (own.waits_for) as is_given
from (
    select node.graph_id, node.waits_for from graph_node as node where node.task_id = %(task_id)b::uuid limit 1
) as own
cross join lateral (
    select graph.graph_id, graph.total, graph.cancel_requested or graph.fail_fast and graph.unhandled > 0 as takes_none
    from graph
    where graph.graph_id = own.graph_id
    limit 1
) as graph
left join lateral (
    select node.label, node.lambda, node.task_id, node.ignore_failure, node.handled, assoc.doom, assoc.task_id is not null as is_live,
        assoc.graph is null as is_redriven, task.status::text as ended, task.failure_kind
    from unnest(%(labels)b::text[]) as asked (label)
    cross join lateral (
        select node.*
        from graph_node as node
        where node.graph_id = graph.graph_id and node.label = asked.label
        limit 1
    ) as node
    left join task_assoc as assoc on assoc.task_id = any (array[node.task_id])
    left join lateral (
        select task.status, task.failure_kind from task where task.task_id = node.task_id limit 1
    ) as task on true
) as found on true;

-- name: redriven_nodes
select assoc.task_id
from unnest(%(task_ids)b::uuid[]) as asked (task_id)
join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
where assoc.graph is null;

-- name: running_graphs
select graph.graph_id from graph where graph.graph_id = any (%(graph_ids)b::uuid[]) and graph.open > 0;

-- name: resources
select resource.name, resource.capacity, resource.per_key, resource.note, resource.changed_at,
    resource.rate, resource.period, resource.burst, resource.declared_by, resource.declared_version, resource.set_by,
    (select coalesce(sum(used), 0) from resource_use as use where use.resource = resource.name)::int8 as used,
    (
        select count(*) from task_assoc as assoc
        where assoc.parked_on = resource.name and assoc.status = 'waiting'
    ) as parked, (
        select max(starts_until) from resource_use as use
        where use.resource = resource.name and use.starts_until > duly_now()
    ) as starts_until
from (
    select * from resource where name > %(after)b::text order by name limit %(limit)b offset %(skipped)b::int8
) as resource
order by resource.name;

-- name: resource_keys
select use.key, use.used, parked.count
from resource_use as use
cross join lateral (
    select count(*) from task_assoc as assoc
    where assoc.parked_on = use.resource and assoc.parked_key = use.key and assoc.status = 'waiting'
) as parked
where use.resource = %(resource)b::text and use.key > %(after)b::text
    and (use.used > 0 or parked.count > 0 or use.starts_until > duly_now())
order by use.key
limit %(limit)b;

-- name: backlog
select lambda.name, ready.count, ready.since, coalesce(held.enqueued, 0), coalesce(held.running, 0), coalesce(parked.count, 0)
from lambda
cross join lateral (
    select sum(one.count)::int8 as count, min(one.since) as since
    from unnest(%(priorities)b::int2[]) as asked (priority)
    cross join lateral (
        select count(*) as count, min(first.next_trigger_at) as since
        from (
            select assoc.next_trigger_at
            from task_assoc as assoc
            where assoc.lambda = lambda.name and assoc.priority = asked.priority
                and assoc.status in ('new', 'retriable_failure') and assoc.next_trigger_at <= (select duly_now())
            order by assoc.next_trigger_at
            limit %(most)b
        ) as first
    ) as one
) as ready
left join (
    select taken.lambda, count(*) filter (where taken.status = 'enqueued') as enqueued,
        count(*) filter (where taken.status <> 'enqueued') as running
    from (
        select assoc.lambda, assoc.status
        from task_assoc as assoc
        where assoc.status in ('enqueued', 'claimed', 'processing')
            and (%(names)b::text[] is null or assoc.lambda = any (%(names)b::text[]))
        limit 10 * %(most)b
    ) as taken
    group by taken.lambda
) as held on held.lambda = lambda.name
left join (
    select waiting.lambda, count(*) as count
    from (
        select assoc.lambda
        from task_assoc as assoc
        where assoc.status = 'waiting' and assoc.parked_on is not null and assoc.parked_on not in ('completion:', 'event:', 'session:')
            and (%(names)b::text[] is null or assoc.lambda = any (%(names)b::text[]))
        limit 10 * %(most)b
    ) as waiting
    group by waiting.lambda
) as parked on parked.lambda = lambda.name
where %(names)b::text[] is null or lambda.name = any (%(names)b::text[])
order by lambda.name;

-- name: scheduling_quotas
select name, per_key, rate, period, burst
from resource
where name like 'schedule:%%' or name like 'schedule-namespace:%%'
order by name;

-- name: resource_kinds
select resource.name, resource.per_key
from unnest(%(names)b::text[]) as asked (name)
join resource on resource.name = any (array[asked.name]);

-- name: resources_as_declared
select resource.name, resource.capacity, resource.per_key, resource.note, resource.rate, resource.period, resource.burst,
    resource.declared_by, resource.declared_version, resource.set_by
from unnest(%(names)b::text[]) as asked (name)
join resource on resource.name = any (array[asked.name]);

-- name: received_much
select task.task_id
from unnest(%(task_ids)b::uuid[]) as asked (task_id)
cross join lateral (
    select task.task_id, task.received
    from task
    where task.task_id = asked.task_id and task.task_id between (%(task_ids)b::uuid[])[1] and (%(task_ids)b::uuid[])[cardinality(%(task_ids)b::uuid[])]
    limit 1
) as task
cross join lateral (
    select count(*) as count, coalesce(sum(pg_column_size(event)), 0) as bytes
    from jsonb_array_elements(task.received) as event
    where cardinality(%(refused_task_ids)b::uuid[]) > 0 and not event ? 'refused' and exists (
        select from unnest(%(refused_task_ids)b::uuid[], %(waits)b::text[], %(keys)b::text[]) as named (task_id, wait, key)
        where named.task_id = task.task_id and named.wait = event ->> 'wait' and named.key = event ->> 'key'
    )
) as aside
where (
        jsonb_array_length(task.received) >= %(most)b::int4
        and jsonb_array_length(jsonb_path_query_array(task.received, '$[*] ? (!exists (@.refused))')) - aside.count >= %(most)b::int4
    )
    or pg_column_size(task.received) - aside.bytes >= %(most_bytes)b::int4;

-- name: failures_of_dead_letters
select task.task_id, task.lambda, coalesce(task.failure_kind, 0), left(task.failure_message, 2000)
from task
where task.task_id = any (%(task_ids)b::uuid[])
    and task.task_id between (%(task_ids)b::uuid[])[1] and (%(task_ids)b::uuid[])[cardinality(%(task_ids)b::uuid[])];
