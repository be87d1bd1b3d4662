-- Written by `make sql` from core/duly_core/tasks/entities.sql. Edit that.

-- name: purge
with gone as (
    delete from task
    using unnest(%(task_ids)b::uuid[]) as asked (task_id)
    where task.task_id = any (array[asked.task_id]) and task.status::text = any (%(statuses)b::text[])
        and task.finished_at <= %(as_of)b::timestamptz
        and (task.graph is null or not exists (
            select from graph where graph.graph_id = any (array[task.graph]) and graph.open > 0
        ))
    returning task.task_id
), keys as (
    delete from idempotency_key as key using gone where key.task_id = any (array[gone.task_id])
), attempts as (
    delete from attempt using gone where attempt.task_id = any (array[gone.task_id])
), uses as (
    delete from attachment_use as used using gone where used.task_id = any (array[gone.task_id])
), found_no_more as (
    delete from dead_letter using gone where dead_letter.task_id = any (array[gone.task_id])
)
select task_id from gone;

-- name: keep_checkpoints
with asked as (
    select *
    from unnest(%(task_ids)b::uuid[], %(tokens)b::uuid[], %(checkpoints)b::bytea[]) as asked (task_id, token, checkpoint)
), held as (
    update task_assoc as assoc
    set edits = assoc.edits + 1
    from asked
    where assoc.task_id = any (array[asked.task_id]) and assoc.token = asked.token
        and assoc.status::text in ('claimed', 'processing')
    returning asked.task_id, asked.checkpoint
)
insert into task (task_id, checkpoint)
select task_id, checkpoint from held
on conflict (task_id) do update
set checkpoint = excluded.checkpoint, checkpoint_count = task.checkpoint_count + 1
where task.status is null
returning task_id;

-- name: note_overdue
update task_assoc as assoc
set overdue_since_at = (select duly_now()) - asked.overdue_for, overdue_neighbours = asked.neighbours
from unnest(
    %(task_ids)b::uuid[], %(tokens)b::uuid[], %(overdue_for)b::interval[], %(neighbours)b::int4[]
) as asked (task_id, token, overdue_for, neighbours)
where assoc.task_id = any (array[asked.task_id]) and assoc.token = asked.token
    and assoc.status::text in ('claimed', 'processing')
    and (assoc.overdue_since_at is null or assoc.overdue_neighbours is distinct from asked.neighbours)
returning assoc.task_id;

-- name: lock_child_sessions
with held as materialized (
    select assoc.task_id, assoc.session
    from unnest(%(task_ids)b::uuid[], %(tokens)b::uuid[]) as asked (task_id, token)
    join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.token = asked.token and assoc.status::text in ('claimed', 'processing')
    for update of assoc
), wanted as (
    select held.session as key, held.task_id
    from held
    where held.session is not null and exists (select from session where session.key = any (array[held.session]))
    union all
    select left(asked.lambda, greatest(strpos(asked.lambda, '/') - 1, 0)) || '/' || asked.session, asked.task_id
    from unnest(%(parents)b::uuid[], %(lambdas)b::text[], %(sessions)b::text[]) as asked (task_id, lambda, session)
    where (asked.task_id in (select held.task_id from held)) is true
)
insert into session (key, head, length, last_seq)
select key, (array_agg(task_id))[1], 0, 0
from wanted
group by key
order by key collate "C"
on conflict (key) do update set length = session.length
returning key;

-- name: give_turns
with seen as materialized (
    select queue.lambda, queue.priority, due.task_id, due.next_trigger_at, due.fair_key
    from unnest(%(lambdas)b::text[], %(priorities)b::int2[], %(since)b::timestamptz[], %(most)b::int4[])
        as queue (lambda, priority, since, most)
    cross join lateral (
        select assoc.task_id, assoc.next_trigger_at, assoc.fair_key
        from task_assoc as assoc
        where assoc.lambda = queue.lambda and assoc.priority = queue.priority
            and assoc.status in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= (select duly_now())
            and assoc.next_trigger_at >= coalesce(queue.since, '-infinity')
        order by assoc.next_trigger_at
        limit queue.most
    ) as due
), keyless as materialized (
    -- what others have locked is being picked: it needs no turn
    select assoc.task_id
    from (select task_id from seen where fair_key is null order by task_id) as first
    join task_assoc as assoc on assoc.task_id = any (array[first.task_id])
    where assoc.status::text in ('new', 'retriable_failure') and assoc.fair_key is null
    for update of assoc skip locked
), given as (
    update task_assoc as assoc
    set fair_key = ''
    from keyless
    where assoc.task_id = any (array[keyless.task_id]) and assoc.status::text in ('new', 'retriable_failure')
        and assoc.fair_key is null
    returning assoc.task_id
)
select seen.lambda, seen.priority, count(*)::int4 as rows, max(seen.next_trigger_at) as last_at,
    (select count(*) from given)::int4 as given, (select duly_now()) as now
from seen
group by seen.lambda, seen.priority;

-- name: keep_attributes
insert into task_attribute (name, value, task_id)
select asked.name, asked.value, asked.task_id
from unnest(%(names)b::text[], %(attribute_values)b::text[], %(task_ids)b::uuid[]) as asked (name, value, task_id)
on conflict do nothing
returning task_id;
