-- Text that several statements share: `{{NAME}}` stands for a fragment, `{{NAME: TEXT}}` for one with TEXT in place of
-- its `{{}}`. Names with a dot are numbers that Python defines (statements.py): `{{kind.crash}}` is one of FailureKind,
-- `{{policy.max_crashes}}` is that of the row of `lambda`, or LambdaPolicy's default.

-- fragment: within_asked
-- Bounds for a read by ids: Postgres then looks at those partitions alone (decision 0017).
between (%(task_ids)b::uuid[])[1] and (%(task_ids)b::uuid[])[cardinality(%(task_ids)b::uuid[])]

-- fragment: eligible
-- Whatever decides whether a task may run now stands here, for both ways to a host: enqueue and claim_work.
-- Yields the tasks of one `queue` (lambda, priority, size, skip) that may run at `clock`, oldest first, and locks them;
-- rows that somebody else works on are skipped.
select assoc.task_id
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority
    and assoc.status in ('new', 'retriable_failure')
    and assoc.next_trigger_at <= (select now from clock)
    and (assoc.expires_at is null or assoc.expires_at > (select now from clock))
order by assoc.next_trigger_at
limit queue.size offset queue.skip
for update skip locked

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
-- the statement's snapshot has it: if it was changed since (update_pending) it is stale, and is read again.
select claimed.task_id, claimed.token, claimed.lambda as lambda_name, claimed.priority, claimed.fence,
    claimed.failures, claimed.crashes, (extract(epoch from claimed.due_at) * 1000000)::int8 as due_at_us,
    entity.payload, entity.payload_encoding::int4 as encoding, {{policy.max_runtime}} as max_runtime,
    entity.checkpoint, entity.edits <> claimed.edits as is_stale
from claimed
left join lateral (
    select task.priority, task.payload, task.payload_encoding, task.checkpoint, task.edits
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
assoc.holder, 'silent' as outcome, assoc.failures + assoc.crashes + 1 as attempt, null::timestamptz as started_at,
    {{kind.crash}} as attempt_kind, 'its holder fell silent: ' || assoc.holder as attempt_message,
    null::text as traceback

-- fragment: record_attempt
-- The one way to write the history: one row for each attempt in the CTE that TEXT names, which did not succeed. It has
-- task_id, fence, attempt, outcome, holder, started_at, ended_at, attempt_kind (null: not charged), attempt_message,
-- traceback.
recorded as (
    insert into attempt (
        task_id, fence, attempt, outcome, holder, started_at, ended_at, failure_kind, failure_message, traceback
    )
    select task_id, fence, attempt, outcome::attempt_outcome, holder, started_at, ended_at, attempt_kind,
        left(attempt_message, 1024), traceback
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

-- fragment: end_task
-- The one way to end a task: what waits for an end hangs on this (decision 0028). A CTE `ended` deletes the assoc and
-- has task_id, status, ended_at, started_at, fence, failures, crashes, last_token, result, result_encoding, failure_kind,
-- failure_message. Without a start or a failure of its own the entity keeps those of the attempts before. An expiry names
-- the failure before it. Nothing is written over another end.
entity as (
    insert into task (
        task_id, status, finished_at, started_at, fence, failures, crashes, last_token, result, result_encoding,
        failure_kind, failure_message, failed_at
    )
    select task_id, status::task_status, ended_at, started_at, fence, failures, crashes, last_token, result,
        result_encoding, failure_kind, failure_message, case when failure_kind is not null then ended_at end
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
        checkpoint = case when excluded.status::text <> 'success' then task.checkpoint end
    where task.status is null
)
