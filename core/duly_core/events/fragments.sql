-- What statements share about events.

-- fragment: event_key
-- What the store calls a key that a callback of the lambda TEXT waits for; the key itself is `named.key`. As `session_of`: no
-- statement reaches beyond a namespace.
left({{}}, greatest(strpos({{}}, '/') - 1, 0)) || '/' || named.key

-- fragment: event_name
-- The caller's key in what the store calls it, TEXT.
substr({{}}, strpos({{}}, '/') + 1)

-- fragment: received_event
-- An event as the task keeps it that received it; the row that TEXT names has wait, name, until_at (when the
-- wait ends at the latest), and the columns of `event`.
jsonb_strip_nulls(jsonb_build_object(
    'wait', {{}}.wait, 'key', {{}}.name, 'seq', {{}}.seq, 'encoding', {{}}.encoding,
    'value', translate(encode({{}}.value, 'base64'), E'\n', ''), 'sent_by', {{}}.sent_by,
    'sent_at', (extract(epoch from {{}}.sent_at) * 1000000)::int8, 'until', (extract(epoch from {{}}.until_at) * 1000000)::int8
))

-- fragment: waits_for_event
-- `assoc` waits for an event.
assoc.status::text = 'waiting' and assoc.parked_on = 'event:'

-- fragment: keep_received
-- Adds what tasks of the CTE that TEXT names received to their entities. It has task_id, started_at and received (null: nothing). With
-- `edits` of the assoc it counts, so that a claim with an older snapshot notices (claimed_tasks).
kept as (
    insert into task (task_id, started_at, received)
    select task_id, started_at, received from {{}}
    on conflict (task_id) do update
    set started_at = coalesce(excluded.started_at, task.started_at),
        received = coalesce(task.received || excluded.received, task.received, excluded.received),
        checkpoint_count = task.checkpoint_count + (excluded.received is not null)::int
    where task.status is null
)
