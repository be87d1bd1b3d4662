-- Statements on events that move no task.

-- name: lock_event_keys
-- Locks keys, in the order of code points, and makes those that are not there. A sender, or a task that is about to wait, holds them.
insert into event_key (key)
select asked.key from (select distinct key from unnest(%(keys)b::text[]) as asked (key)) as asked order by asked.key collate "C"
on conflict (key) do update set events = event_key.events
returning key

-- name: lock_waited_keys
-- As lock_event_keys, of the keys for which callbacks are about to wait. A key belongs to the namespace of the lambda.
insert into event_key (key)
select wanted.key
from (
    select distinct {{event_key: assoc.lambda}} as key
    from unnest(%(key_task_ids)b::uuid[], %(key_tokens)b::uuid[], %(keys)b::text[]) as named (task_id, token, key)
    join task_assoc as assoc on assoc.task_id = any (array[named.task_id])
    where assoc.token = named.token and assoc.status::text in ('claimed', 'processing')
) as wanted
order by wanted.key collate "C"
on conflict (key) do update set events = event_key.events
returning key

-- name: send_events
-- Stores events of keys that the caller's transaction has locked: a row for each that is new. One whose id was sent before is not
-- new, and one of a key that has as many as may be kept is not stored.
with asked as (
    select *
    from unnest(
        %(keys)b::text[], %(event_ids)b::text[], %(encodings)b::int2[], %(values)b::bytea[], %(sent_by)b::text[]
    ) with ordinality as asked (key, event_id, encoding, value, sent_by, place)
), fitting as (
    select asked.*
    from (
        select asked.*, row_number() over (partition by asked.key order by asked.place) as number
        from asked
        where not exists (select from event where event.key = asked.key and event.event_id = asked.event_id)
    ) as asked
    join event_key on event_key.key = any (array[asked.key])
    where event_key.events + asked.number <= %(most)b::int4
), stored as (
    insert into event (key, event_id, encoding, value, sent_by, sent_at, expires_at)
    select key, event_id, encoding, value, sent_by, (select duly_now()), (select duly_now()) + %(kept_for)b::interval
    from fitting
    order by place
    on conflict (key, event_id) do nothing
    returning key, event_id, seq
), counted as (
    update event_key
    set events = event_key.events + new.number
    from (select key, count(*)::int4 as number from stored group by key) as new
    where event_key.key = any (array[new.key])
)
select key, event_id, seq from stored

-- name: sent_before
-- Which of these ids were sent.
select asked.place - 1
from unnest(%(keys)b::text[], %(event_ids)b::text[]) with ordinality as asked (key, event_id, place)
where exists (select from event where event.key = asked.key and event.event_id = asked.event_id)

-- name: events_of_keys
-- What is kept of these keys, oldest first.
select event.key, event.seq, event.event_id, event.encoding::int4, event.value, event.sent_by, event.sent_at, event.expires_at
from unnest(%(keys)b::text[]) as asked (key)
cross join lateral (
    select * from event where event.key = asked.key order by event.key, event.seq desc limit %(limit)b
) as event
order by event.key, event.seq

-- name: waits_of_keys
-- The tasks that wait for these keys.
select waiting.key, waiting.task_id, assoc.lambda, task.scheduled_by, waiting.needs_all, assoc.next_trigger_at
from unnest(%(keys)b::text[]) as asked (key)
cross join lateral (
    select * from event_wait where event_wait.key = asked.key order by event_wait.key, event_wait.task_id limit %(limit)b
) as waiting
join task_assoc as assoc on assoc.task_id = any (array[waiting.task_id])
left join lateral (select task.scheduled_by from task where task.task_id = waiting.task_id limit 1) as task on true
where {{waits_for_event}} and assoc.fence = waiting.fence
order by waiting.key, waiting.task_id

-- name: event_keys
-- The keys of a namespace of which events are kept, or for which a task may wait, from behind one on.
select event_key.key, event_key.events
from event_key
where event_key.key > %(after)b::text and event_key.key < %(before)b::text
    and (event_key.events > 0 or exists (select from event_wait where event_wait.key = event_key.key))
order by event_key.key
limit %(limit)b
