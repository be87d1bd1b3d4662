-- Written by `make sql` from core/duly_core/events/events.sql. Edit that.

-- name: lock_event_keys
insert into event_key (key)
select asked.key from (select distinct key from unnest(%(keys)b::text[]) as asked (key)) as asked order by asked.key collate "C"
on conflict (key) do update set events = event_key.events
returning key, given_to;

-- name: lock_waited_keys
insert into event_key (key)
select wanted.key
from (
    select distinct left(assoc.lambda, greatest(strpos(assoc.lambda, '/') - 1, 0)) || '/' || named.key as key
    from unnest(%(key_task_ids)b::uuid[], %(key_tokens)b::uuid[], %(keys)b::text[]) as named (task_id, token, key)
    join task_assoc as assoc on assoc.task_id = any (array[named.task_id])
    where assoc.token = named.token and assoc.status::text in ('claimed', 'processing')
) as wanted
order by wanted.key collate "C"
on conflict (key) do update set events = event_key.events
returning key;

-- name: send_events
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
select key, event_id, seq from stored;

-- name: put_events_aside
with asked as (
    select * from unnest(%(task_ids)b::uuid[], %(tokens)b::uuid[]) as asked (task_id, token)
), held as materialized (
    select assoc.task_id, assoc.token, assoc.lambda, assoc.fence, assoc.holder
    from asked join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.token = asked.token and assoc.status::text in ('claimed', 'processing')
    for update of assoc
), entity as materialized (
    select held.task_id, held.token, held.lambda, held.fence, held.holder, task.received
    from held cross join lateral (
        select task.received from task where task.task_id = held.task_id and task.task_id between (%(task_ids)b::uuid[])[1] and (%(task_ids)b::uuid[])[cardinality(%(task_ids)b::uuid[])] limit 1
    ) as task
), refused as materialized (
    select entity.task_id, entity.token, entity.lambda, entity.fence, entity.holder, named.wait, named.key, named.reason, found.event
    from unnest(
        %(refused_task_ids)b::uuid[], %(waits)b::text[], %(keys)b::text[], %(reasons)b::text[]
    ) as named (task_id, wait, key, reason)
    join entity on entity.task_id = named.task_id
    cross join lateral (
        select event
        from jsonb_array_elements(entity.received) as event
        where event ->> 'wait' = named.wait and event ->> 'key' = named.key
        order by (event ->> 'seq')::int8 desc
        limit 1
    ) as found
), left_of as (
    select refused.task_id, jsonb_agg(jsonb_build_object(
        'wait', '', 'key', refused.key, 'seq', refused.event -> 'seq', 'sent_at', refused.event -> 'sent_at', 'encoding', 1, 'value', '',
        'refused', true
    )) as received
    from refused
    group by refused.task_id
), kept as (
    update task
    set received = left_of.received || coalesce((
            select jsonb_agg(each.received order by each.place)
            from jsonb_array_elements(entity.received) with ordinality as each (received, place)
            where not exists (
                select from refused
                where refused.task_id = entity.task_id and refused.key = each.received ->> 'key'
                    and (refused.wait = each.received ->> 'wait' or each.received ? 'refused')
            )
        ), '[]'),
        checkpoint_count = task.checkpoint_count + 1
    from left_of join entity on entity.task_id = left_of.task_id
    where task.task_id = any (array[left_of.task_id]) and task.task_id between (%(task_ids)b::uuid[])[1] and (%(task_ids)b::uuid[])[cardinality(%(task_ids)b::uuid[])] and task.status is null
), noted as (
    update task_assoc as assoc
    set edits = assoc.edits + 1,
        events = duly_note(assoc.events, 'event_refused', (select duly_now()), null, what.reasons, what.sent_by)
    from (
        select task_id, token, string_agg(key || ': ' || reason, '; ' order by key) as reasons,
            (array_agg(event ->> 'sent_by' order by key))[1] as sent_by
        from refused
        group by task_id, token
    ) as what
    where assoc.task_id = any (array[what.task_id]) and assoc.token = what.token
), audited as (
    insert into audit_event (at, actor, peer, method, outcome, request, answer)
    select (select duly_now()), 'callback', refused.holder, 'HscService/RefuseEvent', 'OK', jsonb_build_object(
        'task_id', refused.task_id, 'lambda', refused.lambda, 'fence', refused.fence, 'key', refused.key,
        'sent_by', coalesce(refused.event ->> 'sent_by', '')
    )::text, ''
    from refused
)
select task_id, '1970-01-01Z'::timestamptz + min((event ->> 'until')::int8) * interval '1 microsecond' as until_at
from refused
group by task_id;

-- name: note_given
update event_key
set given_to = asked.given_to
from unnest(%(keys)b::text[], %(given_to)b::uuid[]) as asked (key, given_to)
where event_key.key = any (array[asked.key])
returning event_key.key;

-- name: lock_unfinished_event_keys
select key, given_to
from event_key
where given_to is not null and (cardinality(%(keys)b::text[]) = 0 or key = any (%(keys)b::text[]))
order by key
limit %(limit)b
for update;

-- name: sent_before
select asked.place - 1
from unnest(%(keys)b::text[], %(event_ids)b::text[]) with ordinality as asked (key, event_id, place)
where exists (select from event where event.key = asked.key and event.event_id = asked.event_id);

-- name: events_of_keys
select event.key, event.seq, event.event_id, event.encoding::int4, event.value, event.sent_by, event.sent_at, event.expires_at
from unnest(%(keys)b::text[]) as asked (key)
cross join lateral (
    select * from event where event.key = asked.key order by event.key, event.seq desc limit %(limit)b
) as event
order by event.key, event.seq;

-- name: waits_of_keys
select waiting.key, waiting.task_id, assoc.lambda, task.scheduled_by, waiting.needs_all, assoc.next_trigger_at
from unnest(%(keys)b::text[]) as asked (key)
cross join lateral (
    select * from event_wait where event_wait.key = asked.key order by event_wait.key, event_wait.task_id limit %(limit)b
) as waiting
join task_assoc as assoc on assoc.task_id = any (array[waiting.task_id])
left join lateral (select task.scheduled_by from task where task.task_id = waiting.task_id limit 1) as task on true
where assoc.status::text = 'waiting' and assoc.parked_on = 'event:' and assoc.fence = waiting.fence
order by waiting.key, waiting.task_id;

-- name: event_keys
select event_key.key, event_key.events
from event_key
where event_key.key > %(after)b::text and event_key.key < %(before)b::text
    and (event_key.events > 0 or exists (select from event_wait where event_wait.key = event_key.key))
order by event_key.key
limit %(limit)b;
