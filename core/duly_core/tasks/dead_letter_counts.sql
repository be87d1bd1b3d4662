-- Statements that read the newest dead letters.

-- name: newest_dead_letter
select duly_now() - %(settled)b::interval,
    (select dead.finished_at from dead_letter as dead order by dead.finished_at desc limit 1)

-- name: dead_letters_since
with ended as materialized (
    select least(
        %(until)b::timestamptz,
        (
            select dead.finished_at
            from dead_letter as dead
            where dead.finished_at > %(after)b::timestamptz
            order by dead.finished_at
            offset %(most)b::int8 - 1
            limit 1
        )
    ) as last
)
select ended.last, dead.task_id, dead.lambda
from ended left join dead_letter as dead on dead.finished_at > %(after)b::timestamptz and dead.finished_at <= ended.last
order by dead.task_id

-- name: failure_kinds
select task.task_id, task.failure_kind
from task
where task.task_id = any (%(task_ids)b::uuid[])
    and task.task_id between (%(task_ids)b::uuid[])[1] and (%(task_ids)b::uuid[])[cardinality(%(task_ids)b::uuid[])]
