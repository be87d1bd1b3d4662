-- Text that several statements share, and that no other room has.

-- fragment: within_asked
-- Bounds for a read by ids: Postgres then looks at those partitions alone (decision 0017).
between (%(task_ids)b::uuid[])[1] and (%(task_ids)b::uuid[])[cardinality(%(task_ids)b::uuid[])]

-- fragment: locked_over
-- Locks what the tasks of the CTE `over` wait in; `found` has them, but for those whose session or graph somebody else works on.
locked as materialized (
    select key from session where key = any (array(select session from over)) order by key for update skip locked
), locked_graphs as materialized (
    select graph_id
    from graph
    where (select count(*) from locked) >= 0 and graph_id = any (array(select graph from over))
    order by graph_id
    for update skip locked
), found as materialized (
    select *
    from over
    where (session is null or session in (select key from locked))
        and (graph is null or graph in (select graph_id from locked_graphs)) and (select count(*) from locked_graphs) >= 0
), {{lock_resources: found}}

-- fragment: due_from
-- When what is `asked` is due, of which TEXT is now.
greatest({{}}, coalesce(asked.scheduled_at, {{}} + asked.delay, {{}}))

-- fragment: write_plain
-- Writes what is `asked`, of tasks that are scheduled without a look, and answers.
entity as (
    insert into task ({{fields.plain_columns}}, created_at, scheduled_at)
    select {{fields.plain_values}}, clock.now, {{due_from: clock.now}}
    from clock cross join asked
    returning {{fields.plain_assoc_columns}}, created_at, scheduled_at
), assoc as (
    insert into task_assoc ({{fields.plain_assoc_columns}}, status, next_trigger_at, due_at)
    select {{fields.plain_assoc_columns}}, 'new', scheduled_at, scheduled_at from entity
)
{{answer_and_tell}}

-- fragment: answer_and_tell
-- What is told of the `entity` rows that were written; Store Consumers are told, too, if the caller asks for it.
select task_id, (extract(epoch from scheduled_at - created_at) * 1000000)::int8 as due_in_us, (
    select pg_notify(duly_channel('duly_due'), '0 ' || (select string_agg(distinct lambda, ',') from entity))
    where %(tell)b and exists (select from entity where scheduled_at <= created_at)
)
from entity

-- fragment: succeed
-- Ends the tasks of the claims that are `asked` as successes, and answers: a row for each, and rows without a task for what
-- their ends made due.
ended as (
    delete from task_assoc as assoc
    using asked
    where assoc.task_id = any (array[asked.task_id]) and assoc.token = asked.token and assoc.status::text in ('claimed', 'processing')
    returning assoc.task_id, 'success'::task_status as status, (select duly_now()) as ended_at, asked.started_at, assoc.fence,
        assoc.failures, assoc.crashes, asked.token as last_token, asked.result, asked.encoding as result_encoding,
        {{run_times}}, assoc.holder, {{links}}, {{no_failure}}
), {{end_task: ended}}
select ended.task_id, ended.last_token as token, released.lambda, released.due_in from ended {{and_released}}

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

-- fragment: judged_by
-- Further columns of a heartbeat's answer: none. Statements of GATED have `judged_by_gated` in its place.

-- fragment: eligible_in
-- How long until a `queue` has a task that is eligible, of those that were not at `clock`; null: it has none `within` that
-- time. What is due later costs nothing: without an upper bound the rest of its page of the index is read, and a row.
(
    select assoc.next_trigger_at
    from task_assoc as assoc
    where assoc.lambda = queue.lambda and assoc.priority = queue.priority
        and assoc.status in ('new', 'retriable_failure')
        and assoc.next_trigger_at > (select now from clock)
        and assoc.next_trigger_at <= (select now from clock) + %(within)b::interval
        and (assoc.expires_at is null or assoc.expires_at > (select now from clock))
    order by assoc.next_trigger_at
    limit 1
) - (select duly_now())

-- fragment: claim_columns
-- What `claimed_tasks` needs of an assoc that was claimed.
assoc.task_id, assoc.token, assoc.lambda, assoc.priority, assoc.fence, assoc.failures, assoc.crashes,
    assoc.worker_crashes, assoc.due_at, assoc.edits, assoc.events

-- fragment: claimed_tasks
-- The answer to every claim: reads the entities of `claimed`, whose columns are `claim_columns`. The names of the columns
-- are the fields of ClaimedTask. TEXT bounds the read; a claim whose entity is missing is not answered. The entity is as
-- the statement's snapshot has it: if it was changed since (update_pending, keep_checkpoints) it is stale, and is read again.
select claimed.task_id, claimed.token, claimed.lambda as lambda_name, claimed.priority, claimed.fence,
    claimed.failures, claimed.crashes, (extract(epoch from claimed.due_at) * 1000000)::int8 as due_at_us,
    entity.payload, entity.payload_encoding::int4 as encoding, coalesce(entity.max_runtime, {{policy.max_runtime}}) as max_runtime,
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
    where task.task_id = claimed.task_id and task.lambda = claimed.lambda {{}}
    limit 1
) as entity on true
left join lambda on lambda.name = any (array[claimed.lambda])
where coalesce(entity.priority, 0) > 0

-- fragment: let_go
-- Nobody holds the task any more; TEXT is the token that a repeated report may still name, or null.
last_token = {{}}, token = null, holder = null, progress = null, progress_note = null,
    overdue_since_at = null, overdue_neighbours = null

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
    where {{note_run}}
    on conflict do nothing
)

-- fragment: rewrite_attempt
-- In place of `record_attempt`, of an attempt that was handed over, and has a line that says so: it failed. The CTE that TEXT names
-- has task_id, fence, attempt, outcome, ended_at, attempt_kind, attempt_message, next_at.
rewritten as (
    insert into attempt (task_id, fence, attempt, outcome, holder, ended_at, failure_kind, failure_message, next_trigger_at)
    select task_id, fence, attempt, outcome::attempt_outcome, 'unknown', ended_at, attempt_kind, left(attempt_message, 1024), next_at
    from {{}}
    where {{note_run}}
    on conflict (task_id, fence) do update
    set outcome = excluded.outcome, ended_at = excluded.ended_at, failure_kind = excluded.failure_kind,
        failure_message = excluded.failure_message, next_trigger_at = excluded.next_trigger_at
)

-- fragment: waits_for_completion
-- `assoc` was handed over, and waits for the token whose SHA-256 TEXT is.
assoc.status::text = 'waiting' and assoc.parked_on = 'completion:' and assoc.parked_key = {{}}

-- fragment: completion_as_token
-- The SHA-256 of a completion token, TEXT, as the last token of a task: a repeated completion finds it.
left({{}}, 32)::uuid

-- fragment: last_token
-- The last token of `assoc`, which ends. If it was handed over it is that of its completion, so that whoever has this is told how it ended.
case when assoc.parked_on = 'completion:' then {{completion_as_token: assoc.parked_key}} else assoc.last_token end as last_token

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
-- What `end_task` needs of an assoc to release the tasks that wait for its end, or for what it holds, and to tell those who watch.
assoc.lambda, assoc.session, assoc.session_policy, assoc.graph, assoc.doom, assoc.resources, assoc.taken, assoc.events

-- fragment: links_cancelled
-- As `links`, of a task that is cancelled.
assoc.lambda, assoc.session, assoc.session_policy, assoc.graph, assoc.doom, assoc.resources, assoc.taken,
    duly_note(assoc.events, 'cancelled', (select duly_now()), null, null, %(by)b::text) as events

-- fragment: no_links
-- As `links`, of a task that stops and does not end: only what it took (TEXT) is released.
assoc.lambda, null::text as session, null::int2 as session_policy, null::uuid as graph, null::int2 as doom, assoc.resources,
    {{}} as taken, null::jsonb as events

-- fragment: and_released
-- To the rows of an ending statement adds what its ends released: the lambda, and how far ahead the first of its tasks is due.
-- The ids of these rows are null.
full join released on false

-- fragment: end_task
-- The one way to end a task: what waits for an end hangs on this (decision 0028). A CTE `ended` deletes the assoc and
-- has task_id, status, ended_at, started_at, fence, failures, crashes, last_token, result, result_encoding, failure_kind,
-- failure_message, enqueued_at, claimed_at, holder, and `links`. The CTE that TEXT names has the same tasks, or also others that stopped, with `no_links`.
-- The statement ends with `and_released`, without which nothing is released. Without a start or a failure of its own the
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
    where {{note_end}}
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
            array_agg(task_id) as task_ids, array_agg(doom) as dooms,
            -- the only end that keeps this kind is a timeout that is final
            array_agg(
                case when status::text = 'fatal_failure' and failure_kind = {{kind.max_runtime}} then 'timed_out' else status::text end
            ) as statuses,
            array_agg(resources) as resources, array_agg(taken) as taken
        from {{}}
        where session is not null or graph is not null or resources is not null
    ) as linked cross join lateral duly_release(
        linked.sessions, linked.policies, linked.graphs, linked.task_ids, linked.statuses, linked.dooms, linked.resources,
        linked.taken
    ) as released
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

-- fragment: task_summary
-- All that is told of a task but payload and result, for people.
task.task_id, task.lambda, {{fields.shown_of_task}},
    coalesce(task_assoc.status, task.status)::text as status,
    task.created_at, task.scheduled_at, task.expires_at, task.finished_at,
    case when task_assoc.status in ('claimed', 'processing') then task_assoc.claimed_at else task.started_at end
        as started_at,
    task.failure_kind, task.failure_message, task.failed_at,
    coalesce(task_assoc.fence, task.fence) as fence,
    coalesce(task_assoc.failures, task.failures) as failures,
    coalesce(task_assoc.crashes, task.crashes) as crashes,
    nullif(task_assoc.next_trigger_at, 'infinity') as next_trigger_at, task_assoc.holder, task_assoc.cancel_requested,
    task_assoc.progress, task_assoc.progress_note, task_assoc.overdue_since_at, task_assoc.overdue_neighbours, task.redrives, task.session, task.session_order, task.session_policy,
    task.time_table,
    task.resources, task.attributes, task_assoc.parked_on, task_assoc.parked_key, task.graph, task.edits,
    coalesce(task_assoc.events, task.events) is not null as has_events
