-- Statements that read the runs of a task.

-- name: runs_of_task
select fence, attempt, outcome::text as outcome, holder, enqueued_at, claimed_at, started_at, ended_at, failure_kind,
    failure_message, next_trigger_at
from attempt
where task_id = %(task_id)s
order by fence desc
limit 100
