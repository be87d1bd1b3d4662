-- Text that several statements share: `{{NAME}}` stands for a fragment, `{{NAME: TEXT}}` for one with TEXT in place of
-- its `{{}}`. Names with a dot are constants (constants.sql): `{{kind.crash}}` is one of FailureKind,
-- `{{policy.max_crashes}}` is that of the row of `lambda`, or LambdaPolicy's default.

-- fragment: within_asked
-- Bounds for a read by ids: Postgres then looks at those partitions alone (decision 0017).
between (%(task_ids)b::uuid[])[1] and (%(task_ids)b::uuid[])[cardinality(%(task_ids)b::uuid[])]

-- fragment: eligible
-- Whatever decides whether a task may run now stands here, for both ways to a host: enqueue and claim_work.
-- Yields the tasks of one `queue` (lambda, priority, size, skip) that may run at `clock`, oldest first, and locks them;
-- rows that somebody else works on are skipped. Statements of GATED (statements.py) have `eligible_gated` in its place.
select assoc.task_id, assoc.resources
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority
    and assoc.status in ('new', 'retriable_failure')
    and assoc.next_trigger_at <= (select now from clock)
    and (assoc.expires_at is null or assoc.expires_at > (select now from clock))
order by assoc.next_trigger_at
limit queue.size offset queue.skip
for update skip locked

-- fragment: eligible_gated
-- As `eligible`, of a queue some of whose tasks gates hold. Reads the first `window` rows of the queue, and `behind`: tasks that
-- an earlier read (behind_gated) found behind those that gates hold. So what is held in front costs no more than `window` rows.
select assoc.task_id, assoc.resources
from ({{gates_of: queue}}) as gates
cross join lateral (
    select coalesce(array_agg(first.task_id order by first.next_trigger_at) filter (where not {{held: first}}), '{}') as ids
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
    and (assoc.expires_at is null or assoc.expires_at > (select now from clock)) and not {{held: assoc}}
order by found.place
limit queue.size offset queue.skip
for update of assoc skip locked

-- fragment: gates_of
-- The gates that hold some tasks of the lambda of the row that TEXT names (lambda, priority), of those in the parameters: one
-- row; without ids if it has none. Each lambda has a set of gates by number, each set a part of the arrays of gates. Of a lambda
-- whose breaker lets probes through, none is due after `probes_until`: so no read goes through what waits behind them.
-- Without `offset 0` Postgres would look the set up and cut its part out again for each row that is judged.
select (%(gate_ids)b::int8[])[part.first:part.last] as ids,
    (%(gate_priorities)b::int2[])[part.first:part.last] as priorities,
    (%(gate_collections)b::text[])[part.first:part.last] as collections,
    (%(gate_sessions)b::text[])[part.first:part.last] as sessions, coalesce(part.probes_until, 'infinity') as probes_until,
    {{}}.priority
from (
    select (%(set_firsts)b::int4[])[number] as first, (%(set_lasts)b::int4[])[number] as last,
        (%(set_probes_until)b::timestamptz[])[number] as probes_until
    from (
        select ((select jsonb_object(%(gated_lambdas)b::text[], %(gate_sets)b::text[])) ->> {{}}.lambda)::int4 as number
    ) as gate_set
    offset 0
) as part
offset 0

-- fragment: held
-- Whether one of `gates` (gates_of) holds the row that TEXT names. What is null holds any.
exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = {{}}.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = {{session_key: {{}}}})
        and gate.gate_id <> all (coalesce({{}}.passed_gates, array[]::int8[]))
)

-- fragment: gated
-- Whether a gate holds `assoc`.
exists (select from ({{gates_of: assoc}}) as gates where {{held: assoc}})

-- fragment: session_of
-- What the store calls the session of a row (lambda, session) that TEXT names, of which only the key is known: SessionId in
-- session_id.py. Its namespace is that of its lambda, so no session has tasks of two namespaces. This is the one place that says so.
left({{}}.lambda, greatest(strpos({{}}.lambda, '/') - 1, 0)) || '/' || {{}}.session

-- fragment: session_key
-- The key in the session of the row that TEXT names.
substr({{}}.session, strpos({{}}.session, '/') + 1)

-- fragment: gate_columns
-- What a Gate is made of.
gate.gate_id, gate.name, gate.kind, gate.lambda, gate.collection, gate.priority::int4, gate.session, gate.delay, gate.owner,
    gate.reason, gate.created_at, gate.expires_at, gate.probes_until

-- fragment: breaker_of_asked
-- Joins the breaker of the lambda of each task that is `asked`. Runs of all versions of a lambda count for its breaker.
cross join lateral (
    select task.lambda
    from task
    where task.task_id = any (array[asked.task_id]) and task.task_id {{within_asked}}
    limit 1
) as entity
join breaker on breaker.lambda = any (array[entity.lambda, split_part(entity.lambda, '@', 1)])

-- fragment: add_to_counts
-- Adds what `ended` (lambda, ended, failed) has to the counts of this second. Ordered by lambda: no two statements deadlock.
insert into breaker_count as known (lambda, second, ended, failed)
select lambda, date_trunc('second', (select duly_now())), ended, failed from ended order by lambda
on conflict (lambda, second) do update set ended = known.ended + excluded.ended, failed = known.failed + excluded.failed
returning lambda

-- fragment: gate_in_force
-- The gate of a sweep, locked so that it is not removed meanwhile: whoever removes it then sees what it parked.
gate as materialized (
    select gate_id, name, reason, delay, created_at
    from gate
    where gate_id = %(gate_id)b::int8 and (expires_at is null or expires_at > (select duly_now()))
    for share
)

-- fragment: hit_by_gate
-- The due tasks that the gate of a sweep hits, from a due time on, and TEXT.
picked as (
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
            and (%(session)b::text is null or {{session_key: assoc}} = %(session)b::text)
            {{}}
        order by assoc.next_trigger_at
        limit %(limit)b
        for update skip locked
    ) as picked
    limit %(limit)b
)

-- fragment: eligible_in
-- How long until a `queue` has a task that is eligible, of those that were not at `clock`; null: it has none.
(
    select assoc.next_trigger_at
    from task_assoc as assoc
    where assoc.lambda = queue.lambda and assoc.priority = queue.priority
        and assoc.status in ('new', 'retriable_failure')
        and assoc.next_trigger_at > (select now from clock)
        and (assoc.expires_at is null or assoc.expires_at > (select now from clock))
    order by assoc.next_trigger_at
    limit 1
) - (select duly_now())

-- fragment: claim_columns
-- What `claimed_tasks` needs of an assoc that was claimed.
assoc.task_id, assoc.token, assoc.lambda, assoc.priority, assoc.fence, assoc.failures, assoc.crashes, assoc.due_at,
    assoc.edits

-- fragment: claimed_tasks
-- The answer to every claim: reads the entities of `claimed`, whose columns are `claim_columns`. The names of the columns
-- are the fields of ClaimedTask. TEXT bounds the read; a claim whose entity is missing is not answered. The entity is as
-- the statement's snapshot has it: if it was changed since (update_pending, keep_checkpoints) it is stale, and is read again.
select claimed.task_id, claimed.token, claimed.lambda as lambda_name, claimed.priority, claimed.fence,
    claimed.failures, claimed.crashes, (extract(epoch from claimed.due_at) * 1000000)::int8 as due_at_us,
    entity.payload, entity.payload_encoding::int4 as encoding, coalesce(entity.max_runtime, {{policy.max_runtime}}) as max_runtime,
    case when entity.time_table is not null then (extract(epoch from entity.scheduled_at) * 1000000)::int8 end as tick_at_us,
    entity.graph as graph_id,
    entity.checkpoint, entity.edits + entity.checkpoint_count <> claimed.edits as is_stale
from claimed
left join lateral (
    select task.priority, task.payload, task.payload_encoding, task.time_table, task.scheduled_at, task.graph,
        task.max_runtime, task.checkpoint, task.checkpoint_count, task.edits
    from task
    where task.task_id = claimed.task_id and task.lambda = claimed.lambda {{}}
    limit 1
) as entity on true
left join lambda on lambda.name = any (array[claimed.lambda])
where coalesce(entity.priority, 0) > 0

-- fragment: let_go
-- Nobody holds the task any more; TEXT is the token that a repeated report may still name, or null.
last_token = {{}}, token = null, holder = null, progress = null, progress_note = null

-- fragment: is_silent
-- The holder of `assoc` did not renew its claim in time. "as_of" is the instant at which the store was last seen to be
-- itself and its clock right: a step since then makes no lease look expired.
assoc.next_trigger_at <= (select least(%(as_of)b::timestamptz, duly_now()))

-- fragment: lease
-- The end of a lease that is renewed for %(TEXT)b from now. It is never earlier than before: operators change the timeouts,
-- and a worker may know only of the longer one. Capped: after the clock was set back, a lease still ends within longest_lease.
least(greatest(assoc.next_trigger_at, (select duly_now()) + %({{}})b), (select duly_now()) + %(longest_lease)b)

-- fragment: recent_crashes
-- The crashes of `assoc` that count at the instant TEXT, oldest first.
duly_recent(assoc.crashed_at, {{}} - {{policy.crash_window}})

-- fragment: crashed_too_often
-- Whether one more crash of `assoc` is the last that its lambda allows. All crashes are compared before the recent ones:
-- that costs nothing, and of thousands that are silent few are left for the function to look at.
(
    assoc.crashes + 1 >= {{policy.max_crashes}}
    and cardinality({{recent_crashes: (select duly_now())}}) + 1 >= {{policy.max_crashes}}
)

-- fragment: silent_attempt
-- Columns for `record_attempt` of the attempt of `assoc`, whose holder was not heard of in time. It counts as a crash.
assoc.holder, {{run_times}}, 'silent' as outcome, assoc.failures + assoc.crashes + 1 as attempt, null::timestamptz as started_at,
    {{kind.crash}} as attempt_kind, 'its holder fell silent: ' || assoc.holder as attempt_message,
    null::text as traceback

-- fragment: run_times
-- When the reference of `assoc` was sent, and when it was claimed: columns for `record_attempt` and `end_task`.
assoc.enqueued_at, assoc.claimed_at

-- fragment: no_run
-- The columns of `end_task` about a run that succeeded, where none did.
null::timestamptz as enqueued_at, null::timestamptz as claimed_at, null::text as holder

-- fragment: record_attempt
-- The one way to write the history: one row for each attempt in the CTE that TEXT names, which did not succeed. It has
-- task_id, fence, attempt, outcome, holder, run_times, started_at, ended_at, attempt_kind (null: not charged),
-- attempt_message, traceback, next_at.
recorded as (
    insert into attempt (
        task_id, fence, attempt, outcome, holder, enqueued_at, claimed_at, started_at, ended_at, failure_kind, failure_message,
        traceback, next_trigger_at
    )
    select task_id, fence, attempt, outcome::attempt_outcome, holder, enqueued_at, claimed_at, started_at, ended_at,
        attempt_kind, left(attempt_message, 1024), traceback, next_at
    from {{}}
    on conflict do nothing
)

-- fragment: note_failure
-- Keeps what an attempt failed of in the entity of a task that runs again. The CTE that TEXT names has task_id,
-- started_at, ended_at, failure_kind, failure_message.
noted as (
    insert into task (task_id, started_at, failure_kind, failure_message, failed_at)
    select task_id, started_at, failure_kind, failure_message, ended_at from {{}}
    on conflict (task_id) do update
    set started_at = coalesce(excluded.started_at, task.started_at), failure_kind = excluded.failure_kind,
        failure_message = excluded.failure_message, failed_at = excluded.failed_at
    where task.status is null
)

-- fragment: no_result
null::bytea as result, null::int2 as result_encoding

-- fragment: no_failure
null::int2 as failure_kind, null::text as failure_message

-- fragment: links
-- What `end_task` needs of an assoc to release the tasks that wait for its end, or for what it holds.
assoc.session, assoc.session_policy, assoc.graph, assoc.doom, assoc.resources, assoc.taken, assoc.events

-- fragment: links_cancelled
-- As `links`, of a task that is cancelled.
assoc.session, assoc.session_policy, assoc.graph, assoc.doom, assoc.resources, assoc.taken,
    duly_note(assoc.events, 'cancelled', (select duly_now()), null, null, %(by)b::text) as events

-- fragment: no_links
-- As `links`, of a task that stops and does not end: only what it took (TEXT) is released.
null::text as session, null::int2 as session_policy, null::uuid as graph, null::int2 as doom, assoc.resources,
    {{}} as taken, null::jsonb as events

-- fragment: released
-- To the rows of an ending statement, which have so many columns (TEXT: "null, " for each but two), adds what its ends
-- released: the lambda, and how far ahead the first of its tasks is due. The ids of these rows are null.
union all select null, {{}}released.lambda, released.due_in from released

-- fragment: park
-- Of what the CTE `due` picked, gives units to those tasks that need resources, and parks those for which there are too
-- few. All are picked before the first is looked at. `due` has task_id and resources, quotas among them:
-- the statement writes them to what it takes, with what that took (`taken_by`). `parked` has what was parked, with `taken` null.
parked as materialized (
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

-- fragment: taken_by
-- What a row of the CTE that TEXT names, which `parked` lets go, took of resources.
case
    when {{}}.resources is not null
        then coalesce((select parked.taken from parked where parked.task_id = {{}}.task_id), {{}}.resources)
end

-- fragment: quotas
-- What a task needs by each quota of a lambda or a namespace, by the name of the quota; null: there are no quotas.
quotas as materialized (
    select jsonb_object_agg(
        name, jsonb_build_array(jsonb_build_object('name', name, 'key', '', 'weight', 1))
    ) as by_name
    from resource
    where name like 'lambda:%%' or name like 'namespace:%%'
)

-- fragment: quota_of
-- What a task of the lambda that TEXT names needs by the quotas of this lambda and of its namespace; null: nothing. The queue
-- of a version (NAME@VERSION) has those of its lambda.
case
    when (select by_name from quotas) is not null then nullif(
        coalesce((select by_name from quotas) -> concat('lambda:', split_part({{}}, '@', 1)), '[]')
            || coalesce((select by_name from quotas) -> concat(
                'namespace:', case when strpos({{}}, '/') > 0 then split_part({{}}, '/', 1) else 'default' end
            ), '[]'),
        '[]'
    )
end

-- fragment: needs
-- What `picked`, of `queue`, needs of resources: those that it names, and its quotas (`queue.quota`). An earlier pick may have
-- written those that were declared then.
case
    when queue.quota is null or picked.resources @> queue.quota then picked.resources
    when picked.resources is null then queue.quota
    else picked.resources || (
        select coalesce(jsonb_agg(need), '[]')
        from jsonb_array_elements(queue.quota) as need
        where not picked.resources @> jsonb_build_array(need)
    )
end

-- fragment: free
-- Frees what the tasks of the CTE that TEXT names took of resources: they stopped, or will not run. It has resources and
-- taken. The statement selects from `freed`. A statement that ends tasks has `end_task` instead.
freed as (
    select freed.lambda, freed.due_in
    from (
        select array_agg(resources) as resources, array_agg(taken) as taken from {{}} where resources is not null
    ) as stopped
    cross join lateral duly_free(stopped.resources, stopped.taken) as freed
)

-- fragment: lock_resources
-- Locks what the tasks of the CTE that TEXT names use, in the order of resource and key. It has `resources`.
locked_resources as materialized (
    select use.resource
    from (
        select distinct need.name, need.key
        from {{}} as waiting cross join lateral jsonb_to_recordset(waiting.resources) as need (name text, key text)
    ) as named
    join resource_use as use on use.resource = any (array[named.name]) and use.key = named.key
    order by use.resource, use.key
    for update of use
)

-- fragment: edges
-- What a node waits for, and the conditions: its part of the arrays of all edges, which are in the order of the nodes.
(%(edges_from)b::uuid[])[first_edge : first_edge + waits_for - 1],
    (%(conditions)b::int2[])[first_edge : first_edge + waits_for - 1]

-- fragment: end_task
-- The one way to end a task: what waits for an end hangs on this (decision 0028). A CTE `ended` deletes the assoc and
-- has task_id, status, ended_at, started_at, fence, failures, crashes, last_token, result, result_encoding, failure_kind,
-- failure_message, enqueued_at, claimed_at, holder, and `links`. The CTE that TEXT names has the same tasks, or also others that stopped, with `no_links`.
-- The statement ends with `released`, without which nothing is released. Without a start or a failure of its own the
-- entity keeps those of the attempts before. An expiry names the failure before it. Nothing is written over another end.
entity as (
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
    on conflict (task_id) do update
    set status = excluded.status, finished_at = excluded.finished_at,
        started_at = coalesce(excluded.started_at, task.started_at),
        fence = excluded.fence, failures = excluded.failures, crashes = excluded.crashes,
        last_token = excluded.last_token, result = excluded.result, result_encoding = excluded.result_encoding,
        failure_kind = coalesce(excluded.failure_kind, task.failure_kind),
        failure_message = case
            when excluded.failure_kind is null then task.failure_message
            when excluded.failure_kind = {{kind.expired}} and task.failure_message is not null
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
            array_agg(task_id) as task_ids, array_agg(status::text) as statuses, array_agg(doom) as dooms,
            array_agg(resources) as resources, array_agg(taken) as taken
        from {{}}
        where session is not null or graph is not null or resources is not null
    ) as linked cross join lateral duly_release(
        linked.sessions, linked.policies, linked.graphs, linked.task_ids, linked.statuses, linked.dooms, linked.resources,
        linked.taken
    ) as released
)

-- fragment: join_sessions
-- Writes the assocs of the tasks in the CTE that TEXT names, which all have a session, in their order. It has task_id,
-- lambda, collection, priority, due_at, expires_at, fence, last_token, session, session_order, session_policy,
-- resources. The first
-- task of a new session is its head, and so is the one that blocked its session until now; the others wait.
-- The statement selects from `joined` and `ordered`, which is last.
numbered as (
    select asked.*, row_number() over () as number,
        case when session_order = 2 then due_at else '-infinity' end as rank
    from {{}} as asked
), line as (
    insert into session (key, head, length, last_seq)
    select session, (array_agg(task_id order by rank, number))[1], count(*), max(number)
    from numbered
    group by session
    order by session collate "C"
    on conflict (key) do update
    set length = session.length + excluded.length, last_seq = session.last_seq + excluded.last_seq,
        head = case when session.blocked_by in (select task_id from numbered) then session.blocked_by else session.head end,
        blocked_by = case when session.blocked_by not in (select task_id from numbered) then session.blocked_by end,
        blocked_at = case when session.blocked_by not in (select task_id from numbered) then session.blocked_at end
    returning key, head, last_seq
), placed as (
    -- sorted together, for a join of two CTEs would compare each row with each
    select *, first_value(head) over same_session as session_head,
        first_value(last_seq) over same_session - max(number) over (partition by session) + number as seq
    from (
        select *, null::uuid as head, null::int8 as last_seq from numbered
        union all
        select null, null, null, null, null, null, null, null, key, null, null, null, null, null, head, last_seq from line
    ) as both_kinds
    window same_session as (partition by session order by last_seq nulls last)
), joined as (
    insert into task_assoc (
        task_id, lambda, collection, priority, status, next_trigger_at, due_at, expires_at, fence, last_token,
        session, session_rank, session_seq, session_policy, resources
    )
    select task_id, lambda, collection, priority,
        (case when task_id = session_head then 'new' else 'waiting' end)::task_status,
        case when task_id = session_head then due_at else coalesce(expires_at, 'infinity') end,
        due_at, expires_at, fence, last_token, session, rank, seq, session_policy, resources
    from placed
    where task_id is not null
    returning task_id, status, due_at, session, session_rank
), ordered as (
    select duly_put_earlier_first(array_agg(distinct session)) as done
    from joined
    where session_rank > '-infinity'
)

-- fragment: asked_changes
asked as (
    select *
    from unnest(
        %(task_ids)b::uuid[], %(payloads)b::bytea[], %(encodings)b::int2[], %(priorities)b::int2[],
        %(scheduled_at)b::timestamptz[], %(delays)b::interval[]
    ) as asked (task_id, payload, encoding, priority, scheduled_at, delay)
)

-- fragment: what_changed
-- What a change in `found` changes, in words.
concat_ws(', ',
    case when found.payload is not null then 'payload' end,
    case when found.priority is not null then 'priority' end,
    case when found.is_moved then 'due time' end
)

-- fragment: change_entity
-- Changes the entities of the tasks in `changed`, with the assocs. The first change of payload or priority keeps a digest
-- of what was scheduled. A proposed result_encoding says that the payload is new; a time of the epoch stays. An update would
-- choose partitions of `task` at run time: Postgres 18 crashes if the statement compared a row again before (decision 0017).
entity as (
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

-- fragment: time_table_columns
-- The fields of TableRow, but for the payload.
name, lambda as lambda_name, collection, priority::int4, payload_encoding::int4, cron, every, every_offset, zone,
    catch_up::int4, catch_up_window, overlap::int4, jitter, declared, revision, created_at, updated_at, paused_at,
    pause_note, next_tick_at, next_fire_at, buffered_tick_at, last_tick_at, last_task_id, problem,
    octet_length(payload) as payload_bytes, (select duly_now()) as read_at
