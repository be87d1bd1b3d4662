-- Who has which unique key (decision 0094). A writer of `unique_key` has locked the keys before anything else, in the order of
-- (lambda, key) by code points. Then it locks what schedule, update_pending or update_waiting lock, and only one of these kinds.

-- name: look_at_keys
-- What there is of tasks that are to be written, and who has their keys. A holder without a status has ended, or is about to end
-- without a run; one whose entity is gone is none.
-- Planned anew, as existing is.
select asked.place::int4 - 1 as place, there.task_id is not null as is_there, merged.holder as merged_into,
    case when entity.task_id is not null then taken.task_id end as holder, taken.taken_at,
    duly_now() - taken.taken_at as held_for,
    live.status, live.parked_on, coalesce(live.is_due, false) as is_due
from unnest(%(task_ids)b::uuid[], %(lambdas)b::text[], %(unique_keys)b::text[], %(keys)b::text[]) with ordinality
    as asked (task_id, lambda, unique_key, key, place)
left join lateral (
    select merged_task.holder from merged_task where merged_task.task_id = asked.task_id limit 1
) as merged on true
left join lateral (
    select key.task_id from idempotency_key as key where key.lambda = asked.lambda and key.key = asked.key limit 1
) as keyed on true
left join lateral (
    select task.task_id from task where task.task_id = coalesce(keyed.task_id, asked.task_id) limit 1
) as there on true
left join lateral (
    select unique_key.task_id, unique_key.taken_at
    from unique_key
    where unique_key.lambda = asked.lambda and unique_key.key = asked.unique_key
    limit 1
) as taken on true
left join lateral (
    select task.task_id from task where task.task_id = taken.task_id limit 1
) as entity on true
left join lateral (
    select assoc.status::text as status, assoc.parked_on, assoc.due_at <= duly_now() as is_due
    from task_assoc as assoc
    where assoc.task_id = taken.task_id and assoc.doom is null
        and (assoc.expires_at is null or assoc.expires_at > duly_now() or assoc.status::text in ('claimed', 'processing'))
    limit 1
) as live on true

-- name: dead_with_keys
-- Those of these dead letters that have a unique key.
-- Planned anew, as existing is.
select dead.task_id, dead.lambda, dead.unique_key
from unnest(%(task_ids)b::uuid[]) as asked (task_id)
cross join lateral (
    select task.task_id, task.lambda, task.unique_key
    from task
    where task.task_id = asked.task_id and task.status::text = 'fatal_failure' and task.unique_key is not null
    limit 1
) as dead

-- name: lock_keys
-- Locks keys until the transaction ends. A key that has no row gets one, of the task that asks for it.
insert into unique_key (lambda, key, task_id, taken_at)
select asked.lambda, asked.key, asked.task_id, duly_now()
from unnest(%(lambdas)b::text[], %(unique_keys)b::text[], %(task_ids)b::uuid[]) as asked (lambda, key, task_id)
order by asked.lambda collate "C", asked.key collate "C"
on conflict (lambda, key) do update set task_id = excluded.task_id where false
returning unique_key.key

-- name: take_keys
-- Gives locked keys to these tasks.
update unique_key
set task_id = asked.task_id, taken_at = duly_now()
from unnest(%(lambdas)b::text[], %(unique_keys)b::text[], %(task_ids)b::uuid[]) as asked (lambda, key, task_id)
where unique_key.lambda = any (array[asked.lambda]) and unique_key.key = asked.key
returning unique_key.key

-- name: let_keys_go
-- Removes the rows of locked keys that these tasks have, which were not written.
delete from unique_key
using unnest(%(lambdas)b::text[], %(unique_keys)b::text[], %(task_ids)b::uuid[]) as asked (lambda, key, task_id)
where unique_key.lambda = any (array[asked.lambda]) and unique_key.key = asked.key and unique_key.task_id = asked.task_id
returning unique_key.key

-- name: note_merged
-- Notes whose payload other tasks got, for repeats of the requests.
insert into merged_task (task_id, holder)
select asked.task_id, asked.holder from unnest(%(task_ids)b::uuid[], %(holders)b::uuid[]) as asked (task_id, holder)
order by asked.task_id
on conflict (task_id) do nothing
returning task_id
