-- Written by `make sql` from core/duly_core/attachments/sweeps.sql. Edit that.

-- name: forget_uses_of_gone
with page as (
    select distinct used.task_id
    from attachment_use as used
    where used.task_id > %(after)b::uuid
    order by used.task_id
    limit %(limit)b::int8
), gone as (
    delete from attachment_use as used
    using page
    where used.task_id = page.task_id and not exists (
        select from task where task.task_id = any (array[page.task_id])
    )
    returning used.task_id
)
select page.task_id, (select count(*) from gone where gone.task_id = page.task_id) as removed
from page
order by page.task_id;

-- name: unused
select page.namespace, page.hash,
    page.removing_at is null and page.touched_at <= (select duly_now()) - %(grace)b::interval and not exists (
        select from attachment_use as used where used.namespace = page.namespace and used.hash = page.hash
    ) as is_unused
from (
    select namespace, hash, removing_at, touched_at
    from attachment
    where (namespace, hash) > (%(after_namespace)b::text, %(after_hash)b::bytea)
    order by namespace, hash
    limit %(limit)b::int8
) as page
order by page.namespace, page.hash;

-- name: lock_unused
select attachment.namespace, attachment.hash
from unnest(%(namespaces)b::text[], %(hashes)b::bytea[]) as asked (namespace, hash)
join attachment on attachment.namespace = asked.namespace and attachment.hash = asked.hash
where attachment.removing_at is null and attachment.touched_at <= (select duly_now()) - %(grace)b::interval
order by attachment.namespace, attachment.hash
for update of attachment skip locked;

-- name: mark
update attachment
set removing_at = (select duly_now())
from unnest(%(namespaces)b::text[], %(hashes)b::bytea[]) as asked (namespace, hash)
where attachment.namespace = asked.namespace and attachment.hash = asked.hash and not exists (
    select from attachment_use as used where used.namespace = asked.namespace and used.hash = asked.hash
)
returning attachment.namespace, attachment.hash;

-- name: removing
select namespace, hash, blob
from attachment
where removing_at is not null
order by removing_at, blob
limit %(limit)b::int8;

-- name: lock_usages
select namespace from attachment_usage where namespace = any (%(namespaces)b::text[]) order by namespace for no key update;

-- name: removed
with gone as (
    delete from attachment
    using unnest(%(namespaces)b::text[], %(hashes)b::bytea[], %(blobs)b::uuid[]) as asked (namespace, hash, blob)
    where attachment.namespace = asked.namespace and attachment.hash = asked.hash and attachment.blob = asked.blob
        and attachment.removing_at is not null
    returning attachment.namespace, attachment.size_bytes
), freed as (
    update attachment_usage as usage
    set bytes = usage.bytes - of_namespace.bytes
    from (select namespace, sum(size_bytes) as bytes from gone group by namespace order by namespace) as of_namespace
    where usage.namespace = of_namespace.namespace
)
select size_bytes from gone;

-- name: known_blobs
select blob from attachment where blob = any (%(blobs)b::uuid[]);

-- name: store_id
select known.store_id, turns.turn
from attachment_store as known
left join lateral unnest(known.turns) with ordinality as turns (turn, place) on true
order by turns.place;

-- name: begin_turn
update attachment_store set turns = %(turn)b::uuid || turns[1:99] returning store_id;

-- name: usage
select (select count(*) from attachment where removing_at is null) as attachments,
    (select coalesce(sum(bytes), 0)::int8 from attachment_usage) as bytes;
