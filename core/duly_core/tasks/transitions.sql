-- Every statement that changes a task's state. Each is named, says its move ("before -> after", held
-- against tests/fixtures/moves.py by a test) and takes many tasks. Each is a compare-and-set: it repeats what it
-- expects in its own predicate, and a row that it does not touch is an ordinary answer.
-- Time is duly_now() alone; "(select duly_now())" is asked once a statement, after the request came.
-- Callers pass task ids in ascending order, so that statements lock rows in one order.
-- Where rows are found by their ids the status is compared as text: a plan made while the table was small
-- would else walk a partial index that the enum comparison implies, for ever (measured: 883 us a claim, not 12). Ids are
-- compared with "= any (array[...])": a plan is made once, and this leaves it no way but a look by key (decision 0021).
-- An array on a later column of an index may be left out of the search before Postgres 17. So where an index of two
-- columns fits, rows are read with "=" in a lateral with "limit 1", which cannot be merge joined (decision 0021).
-- `task` has many partitions, and a plan must not look at all of them (decision 0017). So the assoc decides, and the end
-- is written into the entity by "insert ... on conflict do update", which finds the partition of each row by itself; what
-- reads entities says between which ids they are, in the ON of a left join, which also keeps the order of the join.
-- A statement that answers with rows of two kinds has them in a `full join ... on false`: the columns of the other kind are null.
-- What statements share is in fragments.sql. Each that ends a task does so by `end_task`, and nothing else writes an end.

-- name: schedule
-- move: -> new
-- Writes entity and assoc together, for lambdas that are registered and keys that are not taken. May tell Store
-- Consumers at once that something is due; as it commits that takes a lock of the whole server, so it is for few tasks.
with asked as (
    select * from unnest({{fields.arrays}}) as asked ({{fields.asked}})
), known as (
    select asked.*, duly_now() as asked_at
    from asked join lambda on lambda.name = any (array[asked.lambda])
), keyed as (
    insert into idempotency_key (lambda, key, task_id, created_at)
    select lambda, key, task_id, asked_at from known where key is not null
    on conflict do nothing
    returning task_id
), entity as (
    insert into task ({{fields.columns}}, created_at, scheduled_at)
    select {{fields.values}}, asked.asked_at, {{due_from: asked.asked_at}}
    from known as asked
    where asked.key is null or asked.task_id in (select task_id from keyed)
    on conflict (task_id) do nothing
    returning {{fields.assoc_columns}}, created_at, scheduled_at
), assoc as (
    insert into task_assoc ({{fields.assoc_columns}}, status, next_trigger_at, due_at)
    select {{fields.assoc_columns}}, 'new', scheduled_at, scheduled_at from entity
)
{{answer_and_tell}}

-- name: schedule_plain
-- move: -> new
-- As schedule, for tasks that have no key and none of the fields that few tasks have. It looks at nothing before it writes: if an id is
-- taken it fails as a whole (unique_violation), and if a lambda is not registered it writes nothing. Then the caller runs `schedule`.
with clock as materialized (
    select duly_now() as now
    where not exists (
        select from unnest(%(names)b::text[]) as asked (name)
        where not exists (select from lambda where lambda.name = any (array[asked.name]))
    )
), asked as (
    select * from unnest({{fields.plain_arrays}}) as asked ({{fields.plain_asked}})
), {{write_plain}}

-- name: schedule_one
-- move: -> new
-- As schedule_plain, for one task: without arrays it costs less, here and at its caller.
with clock as materialized (
    select duly_now() as now
    where exists (select from lambda where lambda.name = %(lambda_name)b)
), asked as (
    select {{fields.plain_scalars}}
), {{write_plain}}

-- name: tick
-- move: -> new
-- Writes the tasks of time tables' ticks, in the transaction that decides about the ticks. A tick whose key is taken has
-- its task. Its scheduled_at is the tick, which may be long past; it is due at once. "is true" keeps the planner from a join, which
-- would compare each tick with each.
with asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(tables)b::text[], %(instants)b::timestamptz[], %(due_at)b::timestamptz[], %(keys)b::text[]
    ) as asked (task_id, name, tick_at, due_at, key)
), known as (
    select asked.*, {{fields.of_time_table}}, (select duly_now()) as asked_at
    from asked join time_table as table_ on table_.name = any (array[asked.name])
), keyed as (
    insert into idempotency_key (lambda, key, task_id, created_at)
    select lambda, key, task_id, asked_at from known
    on conflict do nothing
    returning task_id
), entity as (
    insert into task ({{fields.columns}}, created_at, scheduled_at, time_table)
    select {{fields.tick_values}}, asked_at, tick_at, name
    from known as asked
    where (task_id in (select task_id from keyed)) is true
    returning task_id, lambda
), assoc as (
    insert into task_assoc ({{fields.assoc_columns}}, status, next_trigger_at, due_at)
    select {{fields.tick_assoc_values}}, 'new', asked_at, due_at
    from known as asked
    where (task_id in (select task_id from keyed)) is true
)
select task_id, lambda from entity

-- name: tick_in_sessions
-- move: -> new|waiting
-- As tick, of time tables whose tasks have a session: each goes to the end of it, in the order of the request. The transaction has
-- ended no task, so it holds neither a session nor a resource before.
with asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(tables)b::text[], %(instants)b::timestamptz[], %(due_at)b::timestamptz[], %(keys)b::text[]
    ) with ordinality as asked (task_id, name, tick_at, due_at, key, place)
), known as (
    select asked.*, {{fields.of_time_table}}, (select duly_now()) as asked_at
    from asked join time_table as table_ on table_.name = any (array[asked.name])
), keyed as (
    insert into idempotency_key (lambda, key, task_id, created_at)
    select lambda, key, task_id, asked_at from known order by lambda collate "C", key collate "C"
    on conflict do nothing
    returning task_id
), entity as (
    insert into task ({{fields.columns}}, created_at, scheduled_at, time_table)
    select {{fields.tick_values}}, asked_at, tick_at, name
    from known as asked
    where (task_id in (select task_id from keyed)) is true
), ticked as (
    select {{fields.tick_assoc_values}}, asked.due_at, 0 as fence, null::uuid as last_token, {{session_of: asked}} as session,
        asked.session_order, asked.session_policy
    from known as asked
    where (task_id in (select task_id from keyed)) is true
    order by asked.place
), {{join_sessions: ticked}}
select known.task_id, known.lambda
from known, (select count(done) from ordered) as once
where (known.task_id in (select task_id from joined)) is true

-- name: schedule_in_sessions
-- move: -> new|waiting
-- As schedule, for tasks that have a session: the first of a session may run, the others wait for the end of the one
-- before. They are in the order of the request, not in that of their ids. Keys are taken in the order of `_lock_order`, which
-- sorts by code points, as the collation "C" does.
with asked as (
    select * from unnest({{fields.arrays}}) with ordinality as asked ({{fields.asked}}, place)
), known as (
    select asked.*, duly_now() as asked_at
    from asked join lambda on lambda.name = any (array[asked.lambda])
), keyed as (
    insert into idempotency_key (lambda, key, task_id, created_at)
    select lambda, key, task_id, asked_at from known where key is not null order by lambda collate "C", key collate "C"
    on conflict do nothing
    returning task_id
), entity as (
    insert into task ({{fields.columns}}, created_at, scheduled_at)
    select {{fields.values}}, asked.asked_at, {{due_from: asked.asked_at}}
    from known as asked
    where asked.key is null or asked.task_id in (select task_id from keyed)
    order by asked.place
    on conflict (task_id) do nothing
    returning {{fields.assoc_columns}}, scheduled_at as due_at, 0 as fence, null::uuid as last_token, session, session_order,
        session_policy
), {{join_sessions: entity}}
select joined.task_id,
    case when joined.status = 'new' or joined.session_rank > '-infinity'
        then greatest(0, (extract(epoch from joined.due_at - (select duly_now())) * 1000000)::int8) end as due_in_us
from joined, (select count(done) from ordered) as once

-- name: schedule_graph
-- move: -> new|waiting
-- Writes a graph, its nodes and its edges, all or nothing: the caller takes it back unless each task is answered. A node
-- that waits for no other is scheduled, or is to enter its session (enter_nodes); the others wait for the ends of those before them. Writes nothing if the graph is
-- there already: the row without a task tells how many graphs were made.
with asked as (
    select *
    from unnest(
        {{fields.arrays}},
        %(max_runtimes)b::interval[], %(labels)b::text[], %(waits_for)b::int4[], %(first_edges)b::int4[],
        %(any_of)b::bool[], %(ignore_failure)b::bool[], %(timeouts_final)b::bool[], %(handled)b::int2[]
    ) with ordinality as asked (
        {{fields.asked}},
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
    insert into task ({{fields.columns}}, created_at, scheduled_at, graph, max_runtime)
    select {{fields.values}}, asked.created_at, {{due_from: asked.created_at}}, asked.graph_id, asked.max_runtime
    from known as asked
    order by asked.task_id
    on conflict (task_id) do nothing
    returning task_id, scheduled_at - created_at as ahead
), assoc as (
    insert into task_assoc (
        {{fields.assoc_columns}}, status, next_trigger_at, due_at, graph, open_edges, any_of, timeout_is_final, {{node_session_columns}}
    )
    select {{fields.assoc_values}},
        case when asked.waits_for = 0 and asked.session is null then 'new' else 'waiting' end::task_status,
        case
            when asked.waits_for > 0 then coalesce(asked.expires_at, 'infinity')
            when asked.session is null then {{due_from: asked.created_at}}
            else asked.created_at
        end,
        {{due_from: asked.created_at}}, asked.graph_id, asked.waits_for, asked.any_of, nullif(asked.timeout_is_final, false),
        {{node_session: asked.waits_for = 0}}
    from known as asked
    where (select count(*) from entity) = (select count(*) from known)
    order by asked.task_id
), node as (
    insert into graph_node (
        graph_id, label, task_id, lambda, place, any_of, ignore_failure, timeout_is_final, handled, waits_for, conditions
    )
    select graph_id, label, task_id, lambda, place - 1, any_of, ignore_failure, timeout_is_final, handled, {{edges}}
    from known
    order by label
), edge as (
    insert into graph_edge (from_task, to_task, fires_on)
    select edge.* from made cross join unnest(
        %(edges_from)b::uuid[], %(edges_to)b::uuid[], %(fires_on)b::int2[]
    ) as edge (from_task, to_task, fires_on)
)
select entity.task_id, (extract(epoch from entity.ahead) * 1000000)::int8 as due_in_us, graphs.made
from entity full join (select count(*) as made from made) as graphs on false

-- name: grow_graph
-- move: -> new|waiting
-- Adds nodes to a graph that the caller's transaction has locked: `runs`, `skipped` and `open_edges` say how each stands
-- (graph_growth.py). The caller takes all back unless each task is answered.
with asked as (
    select *
    from unnest(
        {{fields.arrays}},
        %(max_runtimes)b::interval[], %(labels)b::text[], %(open_edges)b::int4[], %(waits_for)b::int4[],
        %(first_edges)b::int4[], %(any_of)b::bool[], %(ignore_failure)b::bool[], %(timeouts_final)b::bool[],
        %(handled)b::int2[], %(runs)b::bool[], %(skipped)b::bool[]
    ) with ordinality as asked (
        {{fields.asked}},
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
    where event.xid >= pg_current_xact_id() and event.kind = {{watched.graph}} and event.graph = %(graph_id)b::uuid
), known as (
    select asked.*, grown.graph_id, grown.before, grown.now, {{due_from: grown.now}} as due_at
    from grown cross join asked join lambda on lambda.name = any (array[asked.lambda])
), entity as (
    insert into task ({{fields.columns}}, created_at, scheduled_at, graph, max_runtime)
    select {{fields.values}}, asked.now, asked.due_at, asked.graph_id, asked.max_runtime
    from known as asked
    order by asked.task_id
    on conflict (task_id) do nothing
    returning task_id, scheduled_at - created_at as ahead
), assoc as (
    insert into task_assoc (
        {{fields.assoc_columns}}, status, next_trigger_at, due_at, graph, open_edges, any_of, timeout_is_final, doom,
        {{node_session_columns}}
    )
    select {{fields.assoc_values}},
        case when asked.runs and asked.session is null then 'new' else 'waiting' end::task_status,
        case
            when asked.skipped or asked.runs and asked.session is not null then asked.now
            when asked.runs then asked.due_at
            else coalesce(asked.expires_at, 'infinity')
        end,
        asked.due_at, asked.graph_id, asked.open_edges, asked.any_of, nullif(asked.timeout_is_final, false), case when asked.skipped then {{kind.graph_skipped}} end,
        {{node_session: asked.runs}}
    from known as asked
    where (select count(*) from entity) = (select count(*) from known)
    order by asked.task_id
), node as (
    insert into graph_node (
        graph_id, label, task_id, lambda, place, any_of, ignore_failure, timeout_is_final, handled, waits_for, conditions
    )
    select graph_id, label, task_id, lambda, before + place - 1, any_of, ignore_failure, timeout_is_final, handled, {{edges}}
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
select entity.task_id, (extract(epoch from entity.ahead) * 1000000)::int8 as due_in_us from entity

-- name: enter_nodes
-- move: waiting -> new|waiting
-- Nodes of graphs that may run enter their sessions: the first of a session may run, the others wait for the end of the one before.
select lambda, due_in from duly_enter_nodes(%(limit)b::int4)

-- name: enqueue
-- move: new|retriable_failure -> enqueued|waiting
-- Takes what is due, up to each queue's room, oldest first; another Store Consumer's rows are skipped. It parks what
-- names a resource that has too little left (duly_admit).
with clock as materialized (
    select duly_now() as now
), {{quotas}}, queue as (
    select *, 0 as skip, {{quota_of: queue.lambda}} as quota
    from unnest(%(lambdas)b::text[], %(priorities)b::int2[], %(room)b::int4[]{{turn_arrays}}) as queue (lambda, priority, size{{turn_names}})
), due as (
    select picked.task_id, {{needs}} as resources{{turn_of_picked}}
    from queue cross join lateral ({{eligible}}) as picked
), {{park}}
update task_assoc as assoc
set status = 'enqueued', next_trigger_at = (select duly_now()) + %(enqueue_timeout)b, start_at = null,
    enqueued_at = (select duly_now()), resources = due.resources, taken = {{taken_by: due}}
from due
where assoc.task_id = any (array[due.task_id]) and assoc.status::text in ('new', 'retriable_failure')
    and due.task_id not in (select task_id from parked where taken is null)
returning assoc.task_id, assoc.lambda, assoc.priority{{turn_of_due}}

-- name: claim_work
-- move: new|retriable_failure -> claimed|waiting
-- Where there is no queue beside the store: picks what may run of these queues, in their order, and claims it. The
-- picks go to those who ask in turn: the n-th of `prefixes` and `holders` are one caller's, and the token of a
-- caller's n-th claim is its prefix and n, so that a lost reply can be asked for again (claim_again).
-- Also tells, with no task, how long until each queue has something to run that it had not; not when as many as wanted
-- were found, nor when some of them were parked: then there may be more.
with clock as materialized (
    select duly_now() as now
), {{quotas}}, queue as (
    select *, {{quota_of: queue.lambda}} as quota
    from unnest(%(lambdas)b::text[], %(priorities)b::int2[], %(sizes)b::int4[], %(skips)b::int4[]{{turn_arrays}})
        as queue (lambda, priority, size, skip{{turn_names}})
), due as (
    select picked.task_id, {{needs}} as resources{{turn_of_picked}}
    from queue cross join lateral ({{eligible}}) as picked
    limit %(most)b
), {{park}}, placed as materialized (
    select task_id, resources, (row_number() over () - 1)::int4 as place
    from due
    where task_id not in (select task_id from parked where taken is null)
), claimed as (
    update task_assoc as assoc
    set status = 'claimed', fence = assoc.fence + 1, next_trigger_at = (select duly_now()) + %(claim_timeout)b,
        start_at = null, resources = placed.resources, taken = {{taken_by: placed}}, claimed_at = (select duly_now()), holder = (%(holders)b::text[])[1 + placed.place %% %(callers)b::int4],
        token = encode((%(prefixes)b::bytea[])[1 + placed.place %% %(callers)b::int4]
            || int2send((placed.place / %(callers)b::int4)::int2), 'hex')::uuid
    from placed
    -- all are picked before the first is claimed: a later pick of a queue passes over those of an earlier one, and it would
    -- not see those that are claimed
    where (select count(*) from placed) > 0
        and assoc.task_id = any (array[placed.task_id]) and assoc.status::text in ('new', 'retriable_failure')
    returning {{claim_columns}}
)
select answered.*, later.queue_lambda, later.queue_priority, later.due_in{{turn_columns}}
from ({{claimed_tasks}}) as answered
full join (
    select queue.lambda as queue_lambda, queue.priority as queue_priority, {{eligible_in}} as due_in
    from queue
    where queue.skip = 0 and (select count(*) from due) < %(most)b and not exists (select from parked where taken is null)
) as later on false
{{and_turns}}

-- name: enqueue_again
-- move: enqueued -> enqueued
-- The message is lost, or waits too long: `send` says to send another (a duplicate dies at the claim). Where the
-- queue has no room the message surely still waits in it: the row is looked at again later, and blocks nobody.
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
returning assoc.task_id, assoc.lambda, assoc.priority, silent.send

-- name: dequeue_gated
-- move: enqueued -> new
-- A gate came while these were in a queue: they wait in the store. Their messages are refused at the claim.
with sent as (
    select assoc.task_id, assoc.taken
    from unnest(%(task_ids)b::uuid[]) as asked (task_id)
    join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.status::text = 'enqueued' and {{gated}}
    for update of assoc
), back as (
    update task_assoc as assoc
    set status = 'new', next_trigger_at = (select duly_now()), taken = null,
        events = duly_note(assoc.events, 'dequeued_gated', (select duly_now()), (select duly_now()))
    from sent
    where assoc.task_id = any (array[sent.task_id]) and assoc.status::text = 'enqueued'
    returning assoc.task_id, assoc.resources, sent.taken
), {{free: back}}
select back.task_id, freed.lambda from back full join freed on false

-- name: put_back
-- move: enqueued -> new
-- The message could not be sent: the task waits for its queue like any other that is due, spread out a little.
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
), {{free: back}}
select back.task_id, freed.lambda from back full join freed on false

-- name: dequeue
-- move: enqueued -> new
-- There is no queue beside the store any more: what was sent to one is due again when its enqueue_timeout is over.
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
), {{free: back}}
select back.task_id, freed.lambda from back full join freed on false

-- name: reclaim
-- move: claimed|processing -> enqueued|retriable_failure
-- The holder fell silent: its token is void from here on, and a crash is counted.
-- With a queue beside the store ("enqueued") the reference is sent at once; without one the task is due at once. What is
-- enqueued keeps its units of resources.
with silent as (
    select assoc.task_id, {{silent_attempt}}, {{recent_crashes: (select duly_now())}} as crashed_at, assoc.taken
    from task_assoc as assoc left join lambda on lambda.name = any (array[assoc.lambda])
    where assoc.status in ('claimed', 'processing') and {{is_silent}}
        and not assoc.cancel_requested and not {{crashed_too_often}}
    order by assoc.next_trigger_at
    limit %(limit)b
    for update of assoc skip locked
), reclaimed as (
    update task_assoc as assoc
    set status = %(status)b::text::task_status, next_trigger_at = (select duly_now()) + %(trigger_in)b::interval,
        crashes = assoc.crashes + 1, worker_crashes = assoc.worker_crashes + 1,
        crashed_at = silent.crashed_at || (select duly_now()), {{let_go: null}},
        taken = case when %(status)b::text = 'enqueued' then assoc.taken end,
        enqueued_at = case when %(status)b::text = 'enqueued' then (select duly_now()) else assoc.enqueued_at end
    from silent
    where assoc.task_id = any (array[silent.task_id]) and assoc.status::text in ('claimed', 'processing')
        and {{is_silent}}
    returning silent.*, assoc.lambda, assoc.priority, assoc.fence,
        -- one instant: the history tells by it that the reference was sent at once
        case when assoc.status = 'enqueued' then assoc.enqueued_at else (select duly_now()) end as ended_at,
        assoc.next_trigger_at as next_at,
        silent.attempt_kind as failure_kind, silent.attempt_message as failure_message,
        case when assoc.status::text <> 'enqueued' then assoc.resources end as resources
), {{record_attempt: reclaimed}}, {{note_failure: reclaimed}}, {{free: reclaimed}}
select reclaimed.task_id, coalesce(reclaimed.lambda, freed.lambda) as lambda, reclaimed.priority
from reclaimed full join freed on false

-- name: quarantine_silent
-- move: claimed|processing -> fatal_failure
-- The holder fell silent once too often for this task.
with silent as (
    select assoc.task_id, {{silent_attempt}}, {{policy.crash_window}} as crash_window,
        cardinality({{recent_crashes: (select duly_now())}}) + 1 as recent
    from task_assoc as assoc left join lambda on lambda.name = any (array[assoc.lambda])
    where assoc.status in ('claimed', 'processing') and {{is_silent}}
        and not assoc.cancel_requested and {{crashed_too_often}}
    order by assoc.next_trigger_at
    limit %(limit)b
    for update of assoc skip locked
), ended as (
    delete from task_assoc as assoc
    using silent
    where assoc.task_id = any (array[silent.task_id]) and assoc.status::text in ('claimed', 'processing')
        and {{is_silent}}
    returning silent.*, null::timestamptz as next_at, 'fatal_failure'::task_status as status, (select duly_now()) as ended_at, assoc.fence, assoc.failures,
        assoc.crashes + 1 as crashes, null::uuid as last_token, {{links}}, {{no_result}}, {{kind.quarantined}} as failure_kind,
        'crashed or fell silent ' || silent.recent || ' times within ' || silent.crash_window
            || '; the last: ' || silent.attempt_message as failure_message
), {{record_attempt: ended}}, {{end_task: ended}}
select ended.task_id, released.lambda, released.due_in from ended {{and_released}}

-- name: cancel_silent
-- move: claimed|processing -> cancelled
-- The holder fell silent after a cancel was asked for: nobody is left to ask.
with silent as (
    select assoc.task_id, {{silent_attempt}}
    from task_assoc as assoc
    where assoc.status in ('claimed', 'processing') and {{is_silent}} and assoc.cancel_requested
    order by assoc.next_trigger_at
    limit %(limit)b
    for update skip locked
), ended as (
    delete from task_assoc as assoc
    using silent
    where assoc.task_id = any (array[silent.task_id]) and assoc.status::text in ('claimed', 'processing')
        and {{is_silent}}
    returning silent.*, null::timestamptz as next_at, 'cancelled'::task_status as status, (select duly_now()) as ended_at, assoc.fence, assoc.failures,
        assoc.crashes + 1 as crashes, null::uuid as last_token, {{links}}, {{no_result}}, {{no_failure}}
), {{record_attempt: ended}}, {{end_task: ended}}
select ended.task_id, released.lambda, released.due_in from ended {{and_released}}

-- name: expire
-- move: new|retriable_failure|enqueued -> fatal_failure
-- Its expires_at passed before it could start; found by that time, whether it was due or not.
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
        null::timestamptz as started_at, assoc.fence, assoc.failures, assoc.crashes, assoc.last_token, {{links}}, {{no_run}},
        {{no_result}}, {{kind.expired}} as failure_kind, 'expires_at passed before it could start' as failure_message
), {{end_task: ended}}
select ended.task_id, released.lambda, released.due_in from ended {{and_released}}

-- name: drop_gated
-- move: new|retriable_failure -> dropped
-- Ends due tasks that a drop gate hits. To what waits for them it is a cancel: the skip of a node would let its graph succeed.
with {{gate_in_force}}, {{hit_by_gate: }}, ended as (
    delete from task_assoc as assoc
    using picked, gate
    where assoc.task_id = any (array[picked.task_id]) and assoc.status::text in ('new', 'retriable_failure')
    returning assoc.task_id, 'dropped'::task_status as status, (select duly_now()) as ended_at, null::timestamptz as started_at,
        assoc.fence, assoc.failures, assoc.crashes, assoc.last_token, {{links}}, {{no_run}}, {{no_result}},
        {{kind.gate_dropped}} as failure_kind,
        left('dropped by the gate ' || gate.name || coalesce(': ' || nullif(gate.reason, ''), ''), 1024) as failure_message
), cancelled as (
    select task_id, 'cancelled' as status, failure_kind, session, session_policy, graph, doom, resources, taken from ended
), {{end_task: cancelled}}
select ended.task_id, released.lambda, released.due_in from ended {{and_released}}

-- name: delay_gated
-- move: new|retriable_failure -> new
-- Moves the due time of due tasks that a delay gate hits, once for each task, from when the gate was set at the earliest.
with {{gate_in_force}}, {{hit_by_gate: and %(gate_id)b::int8 <> all (coalesce(assoc.passed_gates, array[]::int8[]))}}, delayed as (
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
select lambda, count(*), min(next_trigger_at) - (select duly_now()) as due_in from delayed group by lambda

-- name: park_gated
-- move: new|retriable_failure -> waiting
-- Parks due tasks that a pause gate holds, so that nobody reads them again while it does.
with {{gate_in_force}}, {{hit_by_gate: }}, parked as (
    update task_assoc as assoc
    set status = 'waiting', next_trigger_at = coalesce(assoc.expires_at, 'infinity'),
        parked_on = 'gate:' || gate.name, parked_key = gate.gate_id::text,
        events = duly_note(assoc.events, 'gated', (select duly_now()), assoc.expires_at, gate.name)
    from picked, gate
    where assoc.task_id = any (array[picked.task_id]) and assoc.status::text in ('new', 'retriable_failure')
    returning assoc.lambda
)
select lambda, count(*) from parked group by lambda

-- name: probe_gated
-- move: new|retriable_failure -> new
-- Lets the tasks of a lambda that are due first pass the gate of its breaker, so many at most.
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
returning assoc.lambda, assoc.next_trigger_at

-- name: release_gated
-- move: waiting -> new
-- Releases tasks that are parked on a gate which is not in force any more, some at a time. No gate gets its id again.
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
select lambda, count(*) from released group by lambda

-- name: unpark_gated
-- move: waiting -> new
-- Takes these tasks from the gates that they are parked on, to be changed; a gate that still holds them parks them again.
update task_assoc as assoc
set status = 'new', parked_on = null, parked_key = null, next_trigger_at = greatest(assoc.due_at, (select duly_now())),
    events = duly_note(
        assoc.events, 'ungated', (select duly_now()), greatest(assoc.due_at, (select duly_now())), substr(assoc.parked_on, 6)
    )
from unnest(%(task_ids)b::uuid[]) as asked (task_id)
where assoc.task_id = any (array[asked.task_id]) and assoc.status::text = 'waiting' and starts_with(assoc.parked_on, 'gate:')
returning assoc.task_id

-- name: unpark_replaced
-- move: waiting -> new
-- Takes these tasks from the gates and resources that they are parked on, to be changed; what still holds them parks them again.
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
returning assoc.task_id

-- name: end_waiting
-- move: waiting -> fatal_failure|dropped
-- It expired before its turn came, or what it waited for can never happen. The caller's transaction has locked what these
-- wait for (lock_over).
with ended as (
    delete from task_assoc as assoc
    using unnest(%(task_ids)b::uuid[]) as asked (task_id)
    where assoc.task_id = any (array[asked.task_id]) and assoc.status::text = 'waiting'
        and assoc.next_trigger_at <= (select duly_now()) and coalesce(assoc.parked_on, '') not in ('completion:', 'event:', 'session:')
        and {{session_as_locked}}
    returning assoc.task_id,
        case when abs(assoc.doom) in ({{kind.graph_skipped}}, {{kind.graph_failed}}) then 'dropped' else 'fatal_failure' end::task_status
            as status,
        (select duly_now()) as ended_at,
        null::timestamptz as started_at, assoc.fence, assoc.failures, assoc.crashes, assoc.last_token, {{links}}, {{no_run}},
        {{no_result}}, coalesce(abs(assoc.doom), {{kind.expired}}) as failure_kind,
        case coalesce(abs(assoc.doom), {{kind.expired}})
            when {{kind.expired}} then 'expires_at passed before it could start'
            when {{kind.graph_skipped}} then 'what it waits for in its graph did not happen'
            when {{kind.graph_failed}} then 'another node of its graph failed, and the graph fails fast'
            else 'a task before it in its session failed for good'
        end as failure_message
), {{end_task: ended}}
select ended.task_id, released.lambda, released.due_in from ended {{and_released}}

-- name: claim
-- move: enqueued -> claimed
-- Gives the exclusive right to run: the token is the Controller's own, so that a lost reply can be asked for again.
-- A token whose claim has ended claims no more: its proposal was sent twice, and came late.
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
    returning {{claim_columns}}
)
{{claimed_tasks: and task.task_id {{within_asked}}}}

-- name: claim_repeated
-- move: claimed|processing -> claimed|processing
-- The reply to claim was lost, and these very tokens hold their tasks. The lease starts again, because the answer names the
-- timeout of now, which may be longer than that of the first call.
with claimed as (
    update task_assoc as assoc
    set next_trigger_at = {{lease: claim_timeout}}
    from unnest(%(task_ids)b::uuid[], %(tokens)b::uuid[]) as asked (task_id, token)
    where assoc.task_id = any (array[asked.task_id]) and assoc.token = asked.token
        and assoc.status::text in ('claimed', 'processing')
    returning {{claim_columns}}
)
{{claimed_tasks: and task.task_id {{within_asked}}}}

-- name: claim_again
-- move: claimed -> claimed
-- The reply to claim_work was lost: its caller gets the claims under another prefix of tokens. Whoever still hands them
-- back under the old one, as an HSC does whose caller hung up, is refused: a task never runs while it is released.
-- Reads all that is held, for it is rare. The order is that of the ids, in a form that no index has: one walk of the
-- primary key would read all that waits, too.
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
    returning {{claim_columns}}
)
{{claimed_tasks}}

-- name: heartbeat
-- move: claimed|processing -> processing
-- Renews the lease of those whose token is current; the others have lost their claim.
update task_assoc as assoc
set status = 'processing', next_trigger_at = {{lease: heartbeat_timeout}},
    progress = coalesce(beat.progress, assoc.progress), progress_note = coalesce(beat.note, assoc.progress_note)
from unnest(
    %(task_ids)b::uuid[], %(tokens)b::uuid[], %(progress)b::float4[], %(notes)b::text[]
) as beat (task_id, token, progress, note)
where assoc.task_id = any (array[beat.task_id]) and assoc.token = beat.token and assoc.status::text in ('claimed', 'processing')
returning assoc.token, assoc.cancel_requested, assoc.kill_requested{{judged_by}}

-- name: finish
-- move: claimed|processing -> success
-- Ends the task: the assoc goes, the entity gets the final status and the result.
with asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(tokens)b::uuid[], %(results)b::bytea[], %(encodings)b::int2[],
        %(started_at)b::timestamptz[]
    ) as asked (task_id, token, result, encoding, started_at)
), {{succeed}}

-- name: finish_one
-- move: claimed|processing -> success
-- As finish, for one task: without arrays it costs less, here and at its caller.
with asked as (
    select %(task_id)b::uuid as task_id, %(token)b::uuid as token, %(result)b::bytea as result, %(encoding)b::int2 as encoding,
        %(started_at)b::timestamptz as started_at
), {{succeed}}

-- name: fail
-- move: claimed|processing -> retriable_failure|fatal_failure|cancelled|dropped
-- An attempt that did not succeed. Whether another follows is decided once a row, from its counts, locked, and one look
-- at its lambda's policy (the defaults, if the lambda is gone). None follows what is to be cancelled. What runs again
-- does so after the backoff, or the time that the callback asked for; later, if its lambda is to be held back. An outcome
-- "crashed_with_worker" is a crash that is counted as one of a whole worker, too. After an outcome "skipped" the task is dropped: a node
-- for whose event nobody came, and whose followers are to be told that it was skipped.
with clock as materialized (
    select duly_now() as now
), asked as (
    select task_id, token, case outcome when 'crashed_with_worker' then 'crashed' when 'skipped' then 'fatal_failure' else outcome end as outcome,
        outcome = 'crashed_with_worker' as with_worker, outcome = 'skipped' as skips, retry_after, failure_message, started_at, traceback,
        coalesce(
            failure_kind, case when outcome in ('crashed', 'crashed_with_worker') then {{kind.crash}} else {{kind.callback}} end
        ) as failure_kind
    from unnest(
        %(task_ids)b::uuid[], %(tokens)b::uuid[], %(outcomes)b::text[], %(retry_after)b::interval[],
        %(failure_kinds)b::int2[], %(failure_messages)b::text[], %(started_at)b::timestamptz[],
        %(tracebacks)b::text[]
    ) as asked (task_id, token, outcome, retry_after, failure_kind, failure_message, started_at, traceback)
), held_back as (
    select * from unnest(%(held_back)b::text[], %(hold_back)b::interval[]) as held_back (lambda, delay)
), held as (
    select asked.*, clock.now, assoc.lambda, assoc.holder, {{run_times}}, assoc.fence, assoc.failures, assoc.crashes,
        assoc.cancel_requested, assoc.taken as took, asked.outcome = 'crashed' as crashed,
        coalesce(assoc.timeout_is_final and asked.failure_kind = {{kind.max_runtime}}, false) as timed_out,
        {{recent_crashes: clock.now}} as crashed_at, {{policy.crash_window}} as crash_window,
        {{policy.max_crashes}} as max_crashes, {{policy.max_attempts}} as max_attempts,
        greatest(
            coalesce(asked.retry_after, duly_backoff(
                {{policy.backoff_initial}}, {{policy.backoff_factor}}, {{policy.backoff_max}},
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
        crashes + crashed::int as crashes, {{no_result}},
        -- what stopped as it was asked to has not failed
        case when outcome <> 'cancelled' then failure_kind end as attempt_kind, failure_message as attempt_message,
        traceback,
        case
            when outcome = 'cancelled' then null
            when status <> 'fatal_failure' or outcome = status or timed_out then failure_kind
            when crashed then {{kind.quarantined}}
            else {{kind.attempts_exhausted}}
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
        taken = null, {{let_go: planned.token}}
    from planned
    where assoc.task_id = any (array[planned.task_id]) and assoc.token = planned.token
        and assoc.status::text in ('claimed', 'processing') and planned.status = 'retriable_failure'
    returning planned.*, {{no_links: planned.took}}
), ended as (
    delete from task_assoc as assoc
    using planned
    where assoc.task_id = any (array[planned.task_id]) and assoc.token = planned.token
        and assoc.status::text in ('claimed', 'processing') and planned.status <> 'retriable_failure'
    returning planned.*, {{links}}
), done as (
    select * from retried union all select * from ended
), {{record_attempt: done}}, {{note_failure: retried}}, {{end_task: done}}
select done.task_id, done.token, coalesce(done.lambda, released.lambda) as lambda,
    case
        when done.task_id is null then released.due_in
        when done.status = 'retriable_failure' then done.ended_at + done.wait - (select duly_now())
    end as due_in
from done {{and_released}}

-- name: snooze
-- move: claimed|processing -> new
-- Not now: due again after the time that the callback asked for; nothing is charged.
with asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(tokens)b::uuid[], %(retry_after)b::interval[],
        %(failure_messages)b::text[], %(started_at)b::timestamptz[]
    ) as asked (task_id, token, retry_after, message, started_at)
), held as (
    select asked.*, assoc.holder, {{run_times}}, assoc.taken
    from asked join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.token = asked.token and assoc.status::text in ('claimed', 'processing')
    for update of assoc
), snoozed as (
    update task_assoc as assoc
    set status = 'new', next_trigger_at = (select duly_now()) + held.retry_after,
        due_at = (select duly_now()) + held.retry_after, taken = null, {{let_go: held.token}}
    from held
    where assoc.task_id = any (array[held.task_id]) and assoc.token = held.token and assoc.status::text in ('claimed', 'processing')
    returning held.*, assoc.fence, assoc.failures + assoc.crashes + 1 as attempt, 'snoozed' as outcome, assoc.next_trigger_at as next_at,
        (select duly_now()) as ended_at, null::int2 as attempt_kind, held.message as attempt_message,
        null::text as traceback, assoc.resources
), {{record_attempt: snoozed}}, {{free: snoozed}}
select snoozed.task_id, snoozed.token, coalesce(snoozed.retry_after, freed.due_in) as due_in, freed.lambda
from snoozed full join freed on false

-- name: hand_over
-- move: claimed|processing -> waiting
-- The callback gave a completion token to somebody who completes the task later; all that is kept of it is its SHA-256. What it
-- took is free, as after a snooze. The attempt goes on: nothing is charged yet, and expires_at does not end it.
with asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(tokens)b::uuid[], %(hashes)b::text[], %(complete_within)b::interval[], %(started_at)b::timestamptz[]
    ) as asked (task_id, token, hash, complete_within, started_at)
), held as (
    select asked.*, assoc.holder, {{run_times}}, assoc.taken
    from asked join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.token = asked.token and assoc.status::text in ('claimed', 'processing')
    for update of assoc
), handed_over as (
    update task_assoc as assoc
    set status = 'waiting', next_trigger_at = (select duly_now()) + held.complete_within,
        parked_on = 'completion:', parked_key = held.hash, taken = null, {{let_go: held.token}},
        events = duly_note(assoc.events, 'handed_over', (select duly_now()), (select duly_now()) + held.complete_within)
    from held
    where assoc.task_id = any (array[held.task_id]) and assoc.token = held.token and assoc.status::text in ('claimed', 'processing')
    returning held.*, assoc.fence, assoc.failures + assoc.crashes + 1 as attempt, 'handed_over' as outcome,
        assoc.next_trigger_at as next_at, (select duly_now()) as ended_at, null::int2 as attempt_kind,
        null::text as attempt_message, null::text as traceback, assoc.resources, assoc.cancel_requested
), {{record_attempt: handed_over}}, noted as (
    insert into task (task_id, started_at)
    select task_id, started_at from handed_over where started_at is not null
    on conflict (task_id) do update set started_at = excluded.started_at where task.status is null
), {{free: handed_over}}
select handed_over.task_id, handed_over.token, handed_over.cancel_requested, freed.lambda, freed.due_in
from handed_over full join freed on false

-- name: wait_for_event
-- move: claimed|processing -> new|waiting
-- The callback waits for events: nothing is charged, and what the task took is free, as after a snooze. An event counts if it was sent after
-- the task was scheduled, and if the task has not received it. One that is there is received at once, and then the task is due.
-- A wait that goes on says until when (`until_at`).
-- The caller's transaction has locked the keys (lock_waited_keys): none is sent between the look and the wait.
with asked as (
    select asked.task_id, asked.token, asked.started_at, asked.wait, asked.needs_all,
        coalesce(asked.until_at, (select duly_now()) + asked.timeout) as until_at
    from unnest(
        %(task_ids)b::uuid[], %(tokens)b::uuid[], %(started_at)b::timestamptz[], %(waits)b::text[], %(needs_all)b::bool[],
        %(timeouts)b::interval[], %(until_at)b::timestamptz[]
    ) as asked (task_id, token, started_at, wait, needs_all, timeout, until_at)
), held as (
    select asked.*, assoc.holder, {{run_times}}, assoc.taken, assoc.lambda
    from asked join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.token = asked.token and assoc.status::text in ('claimed', 'processing')
    for update of assoc
), wanted as materialized (
    select held.task_id, held.wait, held.needs_all, named.key as name, {{event_key: held.lambda}} as key, entity.created_at,
        entity.received, held.until_at
    from unnest(%(key_task_ids)b::uuid[], %(keys)b::text[]) as named (task_id, key)
    join held on held.task_id = named.task_id
    left join lateral (
        select task.created_at, task.received
        from task
        where task.task_id = held.task_id and task.task_id {{within_asked}}
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
        jsonb_agg({{received_event: found}} order by seq) filter (where seq is not null and (needs_all or place = 1)) as received
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
        edits = assoc.edits + (judged.received is not null)::int, taken = null, {{let_go: held.token}},
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
), {{keep_received: waited}}, {{record_attempt: waited}}, {{free: waited}}
select waited.task_id, waited.token, waited.is_over, waited.cancel_requested, coalesce(waited.lambda, freed.lambda) as lambda,
    freed.due_in
from waited full join freed on false

-- name: end_event_waits
-- move: waiting -> new|waiting
-- Gives events that were sent to tasks that wait for them: a task whose wait is over is due; one that needs others, too, goes on
-- waiting. The caller's transaction has locked keys, and then these tasks (lock_event_waits). Each gets the first event of a key that it
-- does not have, as wait_for_event says. `seqs` has that event, of keys of which all tasks have what was sent before.
with held as materialized (
    select assoc.task_id, assoc.fence, assoc.next_trigger_at as until_at
    from unnest(%(task_ids)b::uuid[]) as asked (task_id)
    join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where {{waits_for_event}}
), waiting as materialized (
    select held.task_id, wait.key, {{event_name: wait.key}} as name, wait.wait, wait.needs_all, event.seq, event.encoding,
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
                        where each ->> 'key' = {{event_name: wait.key}}
                    ),
                    (select max(old.seq) from event as old where old.key = wait.key and old.sent_at < task.created_at)
                )
                from task
                where task.task_id = held.task_id and task.task_id {{within_asked}}
                limit 1
            ), 0)
        order by event.key, event.seq
        limit 1
    ) as event
), judged as (
    select task_id, bool_and(not needs_all or there = needed) as is_over, null::timestamptz as started_at,
        array_agg(key) as keys, string_agg(name, ', ' order by seq) filter (where needs_all or place = 1) as names,
        (array_agg(sent_by order by seq))[1] as sent_by,
        jsonb_agg({{received_event: waiting}} order by seq) filter (where needs_all or place = 1) as received
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
    where assoc.task_id = any (array[judged.task_id]) and {{waits_for_event}}
    returning judged.*, assoc.lambda
), over as (
    delete from event_wait as wait
    using moved
    where wait.task_id = any (array[moved.task_id]) and (moved.is_over or wait.key = any (moved.keys))
), {{keep_received: moved}}
select waiting.seq, moved.task_id, moved.lambda, moved.is_over
from moved join waiting on waiting.task_id = moved.task_id
where waiting.needs_all or waiting.place = 1

-- name: time_out_event_waits
-- move: waiting -> new
-- The time of these waits is over, or expires_at of the task came: it is due, and its callback is told. What somebody gives it at this
-- moment it receives.
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
    where assoc.task_id = any (array[late.task_id]) and {{waits_for_event}}
    returning assoc.task_id, late.fence, assoc.lambda
), told as (
    select timed_out.task_id, null::timestamptz as started_at,
        jsonb_build_array(jsonb_build_object('wait', wait.wait, 'timed_out', true)) as received
    from timed_out left join lateral (
        select wait.wait from event_wait as wait where wait.task_id = timed_out.task_id and wait.fence = timed_out.fence limit 1
    ) as wait on true
), over as (
    delete from event_wait as wait using timed_out where wait.task_id = any (array[timed_out.task_id])
), {{keep_received: told}}
select lambda, count(*) from timed_out group by lambda

-- name: complete
-- move: waiting -> success
-- Whoever has the completion token says that the work is done. The caller's transaction has locked what the tasks wait in (lock_waiting).
with asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(hashes)b::text[], %(results)b::bytea[], %(encodings)b::int2[], %(by)b::text[]
    ) as asked (task_id, hash, result, encoding, by)
), ended as (
    delete from task_assoc as assoc
    using asked
    where assoc.task_id = any (array[asked.task_id]) and {{waits_for_completion: asked.hash}}
    returning assoc.task_id, 'success'::task_status as status, (select duly_now()) as ended_at, null::timestamptz as started_at,
        assoc.fence, assoc.failures, assoc.crashes, {{completion_as_token: asked.hash}} as last_token, asked.result,
        asked.encoding as result_encoding, {{run_times}}, null::text as holder, assoc.lambda, assoc.session, assoc.session_policy, assoc.graph,
        assoc.doom, assoc.resources, assoc.taken,
        duly_note(assoc.events, 'completed', (select duly_now()), null, null, asked.by) as events, asked.hash, {{no_failure}}
), {{end_task: ended}}
select ended.hash, released.lambda, released.due_in from ended {{and_released}}

-- name: fail_handed_over
-- move: waiting -> retriable_failure|fatal_failure
-- As `fail`, of attempts that were handed over: whoever has the completion token says that the work failed, or nobody said anything in
-- time (the failure kind tells). The caller's transaction has locked what the tasks wait in (lock_waiting).
with clock as materialized (
    select duly_now() as now
), asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(hashes)b::text[], %(outcomes)b::text[], %(retry_after)b::interval[], %(failure_kinds)b::int2[],
        %(failure_messages)b::text[]
    ) as asked (task_id, hash, outcome, retry_after, failure_kind, failure_message)
), held as (
    select asked.*, clock.now, assoc.lambda, {{run_times}}, assoc.fence, assoc.failures, assoc.crashes,
        asked.outcome = 'fatal_failure' or assoc.failures + 1 >= {{policy.max_attempts}} as is_last,
        coalesce(asked.retry_after, duly_backoff(
            {{policy.backoff_initial}}, {{policy.backoff_factor}}, {{policy.backoff_max}}, assoc.failures + assoc.crashes
        )) as wait
    from clock cross join asked
    join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    left join lambda on lambda.name = any (array[assoc.lambda])
    where {{waits_for_completion: asked.hash}}
        and (asked.failure_kind <> {{kind.completion_timeout}} or assoc.next_trigger_at <= clock.now)
    for update of assoc
), planned as (
    select task_id, hash, {{completion_as_token: hash}} as last_token,
        case when is_last then 'fatal_failure' else 'retriable_failure' end as status, now as ended_at, wait,
        null::timestamptz as started_at, fence, null::text as holder, enqueued_at, claimed_at,
        case when not is_last then now + wait end as next_at, outcome, failures + crashes + 1 as attempt,
        failures + 1 as failures, crashes, {{no_result}}, failure_kind as attempt_kind, failure_message as attempt_message,
        case when is_last and outcome <> 'fatal_failure' then {{kind.attempts_exhausted}} else failure_kind end as failure_kind,
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
    where assoc.task_id = any (array[planned.task_id]) and {{waits_for_completion: planned.hash}}
        and planned.status = 'retriable_failure'
    returning planned.*, {{no_links: null::jsonb}}
), ended as (
    delete from task_assoc as assoc
    using planned
    where assoc.task_id = any (array[planned.task_id]) and {{waits_for_completion: planned.hash}}
        and planned.status = 'fatal_failure'
    returning planned.*, {{links}}
), done as (
    select * from retried union all select * from ended
), {{rewrite_attempt: done}}, {{note_failure: retried}}, {{end_task: done}}
select done.hash, done.status, coalesce(done.lambda, released.lambda) as lambda,
    case when done.task_id is null then released.due_in else done.next_at - (select duly_now()) end as due_in
from done {{and_released}}

-- name: release
-- move: claimed|processing -> new
-- Handed back unstarted or unfinished: due at once, nothing is charged, lateness still counts from when it was due.
-- What had started says so in the history, and why it was stopped.
with asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(tokens)b::uuid[], %(started_at)b::timestamptz[], %(reasons)b::text[]
    ) as asked (task_id, token, started_at, reason)
), held as (
    select asked.*, assoc.holder, {{run_times}}, assoc.taken
    from asked join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.token = asked.token and assoc.status::text in ('claimed', 'processing')
    for update of assoc
), released as (
    update task_assoc as assoc
    set status = 'new', next_trigger_at = (select duly_now()), taken = null, {{let_go: held.token}}
    from held
    where assoc.task_id = any (array[held.task_id]) and assoc.token = held.token and assoc.status::text in ('claimed', 'processing')
    returning held.*, assoc.fence, assoc.failures + assoc.crashes + 1 as attempt, 'released' as outcome, assoc.next_trigger_at as next_at,
        (select duly_now()) as ended_at, null::int2 as attempt_kind, held.reason as attempt_message,
        null::text as traceback, assoc.resources
), {{record_attempt: released}}, {{free: released}}
select released.task_id, released.token from released full join freed on false

-- name: cancel
-- move: new|retriable_failure|enqueued -> cancelled
-- Nobody runs it, so it ends at once; its message, if any, is refused at the claim.
with ended as (
    delete from task_assoc as assoc
    using unnest(%(task_ids)b::uuid[]) as asked (task_id)
    where assoc.task_id = any (array[asked.task_id]) and assoc.status::text in ('new', 'retriable_failure', 'enqueued')
        and (assoc.cancel_requested or not %(only_if_requested)b)
    returning assoc.task_id, 'cancelled'::task_status as status, (select duly_now()) as ended_at, null::timestamptz as started_at,
        assoc.fence, assoc.failures, assoc.crashes, assoc.last_token, {{links_cancelled}}, {{no_run}}, {{no_result}}, {{no_failure}}
), {{end_task: ended}}
select ended.task_id, released.lambda, released.due_in from ended {{and_released}}

-- name: cancel_waiting
-- move: waiting -> cancelled
-- As cancel. The caller's transaction has locked what these wait for (lock_waiting), so this sees all that was released.
with ended as (
    delete from task_assoc as assoc
    using unnest(%(task_ids)b::uuid[]) as asked (task_id)
    where assoc.task_id = any (array[asked.task_id]) and assoc.status::text = 'waiting'
        and (assoc.graph is null or assoc.doom is null) and {{session_as_locked}}
    returning assoc.task_id, 'cancelled'::task_status as status, (select duly_now()) as ended_at, null::timestamptz as started_at,
        assoc.fence, assoc.failures, assoc.crashes, {{last_token}}, {{links_cancelled}}, {{no_run}}, {{no_result}}, {{no_failure}}
), {{end_task: ended}}
select ended.task_id, released.lambda, released.due_in from ended {{and_released}}

-- name: cancel_graph
-- move: waiting -> cancelled
-- Nothing of the graph is released any more: what waits ends at once. What may run or runs is cancelled as any task is.
-- The caller's transaction has locked the graph before, and then what its nodes wait for (lock_nodes), so this sees all that was
-- released.
with ended as (
    delete from task_assoc as assoc
    using unnest(%(task_ids)b::uuid[]) as asked (task_id)
    where assoc.task_id = any (array[asked.task_id]) and assoc.status::text = 'waiting' and assoc.doom is null
        and assoc.session is null
    returning assoc.task_id, 'cancelled'::task_status as status, (select duly_now()) as ended_at, null::timestamptz as started_at,
        assoc.fence, assoc.failures, assoc.crashes, {{last_token}}, {{links_cancelled}}, {{no_run}}, {{no_result}}, {{no_failure}}
), {{end_task: ended}}
select ended.task_id, released.lambda, released.due_in from ended {{and_released}}

-- name: request_cancel
-- move: claimed|processing -> claimed|processing
-- Somebody runs it: the holder learns with its next heartbeat, also whether it is to kill the callback.
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
returning assoc.task_id, assoc.status::text

-- name: redrive
-- move: fatal_failure -> new|waiting
-- A dead letter runs again, with all its attempts before it: the counts begin anew, the fence goes on. The token of
-- its last claim moves with it, so that a repeated result is still told "already applied"; any other late write
-- finds a token that is not its own. An expiry that would end the task before its time to run is dropped.
-- One with a unique key runs again if it is among `keyed`: the caller's transaction has locked the keys of those, and looked.
-- Planned anew: task and dead_letter have other indexes that end with the id (see existing).
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
    returning {{fields.assoc_of_task}}, dead.due_at, dead.fence, dead.last_token, task.session, task.session_order,
        task.session_policy
), found_no_more as (
    delete from dead_letter using redriven where dead_letter.task_id = any (array[redriven.task_id])
), assoc as (
    insert into task_assoc ({{fields.assoc_columns}}, status, next_trigger_at, due_at, fence, last_token)
    select {{fields.assoc_columns}}, 'new', due_at, due_at, fence, last_token
    from redriven
    where session is null
), in_session as (
    select * from redriven where session is not null order by task_id
), {{join_sessions: in_session}}
select task_id, due_at - (select duly_now()) as due_in, 'new' as status from redriven where session is null
union all
select joined.task_id, joined.due_at - (select duly_now()), joined.status::text
from joined, (select count(done) from ordered) as once

-- name: unblock_sessions
-- move: waiting -> new
-- Ends the block of sessions, in the order of their keys: the next task of each runs.
select asked.key
from (select key from unnest(%(keys)b::text[]) as asked (key) order by key collate "C") as asked
where duly_unblock_session(asked.key, %(by)b::text)

-- name: update_pending
-- move: new|retriable_failure|enqueued -> new
-- Changes what nobody runs yet; what is null stays as it is. What was enqueued is due at once if no other time is said:
-- its message is refused at the claim, and its units are free: rows without a task tell of whom. `edits` counts on both rows, so that a claim with an older snapshot
-- notices. The first change of payload or priority keeps a digest of what was scheduled (see existing).
-- Locks no task that runs or waits: whoever ends the one holds the session of the other. The time of a task that is
-- ordered by it stays. A row without a status was not changed; it has what its task was when the statement began.
-- Planned anew, as redrive is.
with clock as materialized (
    select duly_now() as now
), {{asked_changes}}, found as (
    select asked.*, {{policy.payload_limit}} as payload_limit,
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
            end, {{what_changed}}, %(by)b::text
        )
    from found
    where assoc.task_id = any (array[found.task_id])
        and assoc.status::text in ('new', 'retriable_failure', 'enqueued')
        and coalesce(octet_length(found.payload), 0) <= found.payload_limit
        and not (found.is_moved and coalesce(assoc.session_rank, '-infinity') > '-infinity')
    returning found.*, assoc.status::text as status, assoc.next_trigger_at, assoc.priority as priority_now
), {{change_entity}}, {{free: changed}}
select asked.task_id, coalesce(assoc.lambda, freed.lambda) as lambda, assoc.status::text as was,
    {{policy.payload_limit}} as payload_limit, coalesce(assoc.session_rank, '-infinity') > '-infinity' as is_ordered_by_time,
    changed.status, coalesce(changed.next_trigger_at - (select now from clock), freed.due_in) as due_in
from asked join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
left join lambda on lambda.name = any (array[assoc.lambda])
left join changed on changed.task_id = any (array[asked.task_id])
full join freed on false

-- name: update_waiting
-- move: waiting -> waiting
-- As update_pending, for what waits in a session or a graph. The caller's transaction has locked that (lock_waiting), so nothing
-- releases it meanwhile. It goes on waiting; a time counts when it is released. What is to end without a run stays, and what is
-- parked.
-- Planned anew, as redrive is.
with clock as materialized (
    select duly_now() as now
), {{asked_changes}}, found as (
    select asked.*, {{policy.payload_limit}} as payload_limit,
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
            assoc.events, 'updated', (select now from clock), null, {{what_changed}}, %(by)b::text
        )
    from found
    where assoc.task_id = any (array[found.task_id]) and assoc.status::text = 'waiting' and assoc.doom is null
        and assoc.parked_on is null
        and coalesce(octet_length(found.payload), 0) <= found.payload_limit
        and not (found.is_moved and coalesce(assoc.session_rank, '-infinity') > '-infinity')
    returning found.*, assoc.status::text as status, assoc.priority as priority_now
), {{change_entity}}
select asked.task_id, assoc.lambda, assoc.status::text as was, {{policy.payload_limit}} as payload_limit,
    coalesce(assoc.session_rank, '-infinity') > '-infinity' as is_ordered_by_time, changed.status, coalesce(assoc.doom is not null or assoc.parked_on is not null, false) as is_fixed
from asked join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
left join lambda on lambda.name = any (array[assoc.lambda])
left join changed on changed.task_id = any (array[asked.task_id])
