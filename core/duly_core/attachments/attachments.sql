-- Statements on attachments and their uses. Whoever changes several rows of `attachment` locks them in the order of their hashes.

-- name: touch
-- Of these attachments those that are stored, with these sizes; they stay for a while from now on.
with found as (
    select attachment.hash
    from unnest(%(hashes)b::bytea[], %(sizes)b::int8[]) as asked (hash, size_bytes)
    join attachment on attachment.namespace = %(namespace)b::text and attachment.hash = asked.hash
    where attachment.size_bytes = asked.size_bytes and attachment.stored_at is not null and attachment.removing_at is null
    order by attachment.hash
    for no key update of attachment
)
update attachment
set touched_at = (select duly_now())
from found
where attachment.namespace = %(namespace)b::text and attachment.hash = found.hash
returning attachment.hash

-- name: lock_usage
-- Locks the namespace for uploads that begin; answers how many bytes it has.
insert into attachment_usage as usage (namespace, bytes)
values (%(namespace)b::text, 0)
on conflict (namespace) do update set bytes = usage.bytes
returning usage.bytes

-- name: lock_begun
-- What is known of these hashes.
select hash, blob, size_bytes, stored_at is not null as is_stored, removing_at is not null as is_removing
from attachment
where namespace = %(namespace)b::text and hash = any (%(hashes)b::bytea[])
order by hash
for no key update

-- name: begin
-- Begins uploads. What was there under these hashes is what the caller found unusable: it is forgotten, and its blob with it.
insert into attachment (namespace, hash, size_bytes, part_hashes, blob, begun_at, touched_at)
select %(namespace)b::text, asked.hash, asked.size_bytes, asked.part_hashes, asked.blob, (select duly_now()), (select duly_now())
from unnest(%(hashes)b::bytea[], %(sizes)b::int8[], %(part_hashes)b::bytea[], %(blobs)b::uuid[])
    as asked (hash, size_bytes, part_hashes, blob)
order by asked.hash
on conflict (namespace, hash) do update
set size_bytes = excluded.size_bytes, part_hashes = excluded.part_hashes, blob = excluded.blob, begun_at = excluded.begun_at,
    touched_at = excluded.touched_at, stored_at = null, removing_at = null

-- name: go_on
-- Uploads that were begun before go on: they stay for a while from now on.
update attachment
set touched_at = (select duly_now())
where namespace = %(namespace)b::text and hash = any (%(hashes)b::bytea[])

-- name: add_usage
update attachment_usage set bytes = bytes + %(bytes)b::int8 where namespace = %(namespace)b::text

-- name: expected_parts
-- Where parts of attachments go, and what their hashes are; a part that it does not have has an empty one. `is_idle`: nothing was said of
-- the upload for a quarter of the time that it stays.
select asked.place, attachment.blob, attachment.size_bytes, attachment.stored_at is not null as is_stored,
    substr(attachment.part_hashes, 1 + 32 * asked.part_index, 32) as part_hash,
    attachment.touched_at < (select duly_now()) - %(grace)b::interval / 4 as is_idle
from unnest(%(hashes)b::bytea[], %(indexes)b::int4[]) with ordinality as asked (hash, part_index, place)
join attachment on attachment.namespace = %(namespace)b::text and attachment.hash = asked.hash
where attachment.removing_at is null
order by asked.place

-- name: unfinished
-- Uploads by their hashes.
select hash, blob, size_bytes, stored_at is not null as is_stored
from attachment
where namespace = %(namespace)b::text and hash = any (%(hashes)b::bytea[]) and removing_at is null

-- name: finish_upload
-- Tasks may use these from now on.
with found as (
    select attachment.hash
    from unnest(%(hashes)b::bytea[], %(blobs)b::uuid[]) as asked (hash, blob)
    join attachment on attachment.namespace = %(namespace)b::text and attachment.hash = asked.hash
    where attachment.blob = asked.blob and attachment.removing_at is null
    order by attachment.hash
    for no key update of attachment
)
update attachment
set stored_at = (select duly_now()), touched_at = (select duly_now())
from found
where attachment.namespace = %(namespace)b::text and attachment.hash = found.hash
returning attachment.hash

-- name: lock_stored
-- Of these attachments those that tasks may use, with these sizes. They are locked against the sweep, which takes the stronger lock before
-- it looks for uses. Each is asked for once.
select asked.place
from unnest(%(namespaces)b::text[], %(hashes)b::bytea[], %(sizes)b::int8[]) with ordinality as asked (namespace, hash, size_bytes, place)
join attachment on attachment.namespace = asked.namespace and attachment.hash = asked.hash
where attachment.size_bytes = asked.size_bytes and attachment.stored_at is not null and attachment.removing_at is null
for key share of attachment

-- name: forget_uses
-- Removes the uses of tasks that are written anew: a run replaces what runs before it kept.
delete from attachment_use
where task_id = any (%(task_ids)b::uuid[]) and (by_run or not %(by_run)b::bool)

-- name: add_uses
insert into attachment_use (task_id, by_run, position, role, namespace, hash, size_bytes, name, media_type)
select task_id, %(by_run)b::bool, position, role, namespace, hash, size_bytes, name, media_type
from unnest(
    %(task_ids)b::uuid[], %(positions)b::int2[], %(roles)b::int2[], %(namespaces)b::text[], %(hashes)b::bytea[], %(sizes)b::int8[],
    %(names)b::text[], %(media_types)b::text[]
) as asked (task_id, position, role, namespace, hash, size_bytes, name, media_type)

-- name: lambdas_of
-- The lambdas of tasks.
select task.task_id, task.lambda
from unnest(%(task_ids)b::uuid[]) as asked (task_id)
cross join lateral (select task.task_id, task.lambda from task where task.task_id = asked.task_id limit 1) as task

-- name: used_by_task
-- An attachment that a task uses. A use of another namespace is left of a task that was removed, and had the same id.
select attachment.blob, attachment.size_bytes, attachment.part_hashes
from attachment_use as used
join attachment on attachment.namespace = used.namespace and attachment.hash = used.hash
cross join lateral (select task.lambda from task where task.task_id = used.task_id limit 1) as task
where used.task_id = %(task_id)b::uuid and used.hash = %(hash)b::bytea and attachment.stored_at is not null
    and used.namespace = {{namespace_of: task}}
limit 1

-- name: used_by_predecessors
-- The same of those that a node waits for: what their results name.
select attachment.blob, attachment.size_bytes, attachment.part_hashes
from graph_node as node
cross join lateral unnest(node.waits_for) as before (task_id)
join attachment_use as used on used.task_id = before.task_id and used.by_run and used.role = {{role.result}}
join attachment on attachment.namespace = used.namespace and attachment.hash = used.hash
where node.task_id = %(task_id)b::uuid and used.hash = %(hash)b::bytea and attachment.stored_at is not null
limit 1

-- name: claimed_lambda
-- The lambda of a task that is held under this very token.
select lambda
from task_assoc
where task_id = %(task_id)b::uuid and token = %(token)b::uuid and status::text in ('claimed', 'processing')

-- name: uses
-- What these tasks use, inputs first.
select used.task_id, used.role, used.hash, used.size_bytes, used.name, used.media_type
from attachment_use as used
cross join lateral (select task.lambda from task where task.task_id = used.task_id limit 1) as task
where used.task_id = any (%(task_ids)b::uuid[])
    and used.namespace = {{namespace_of: task}}
order by used.task_id, used.by_run, used.position
