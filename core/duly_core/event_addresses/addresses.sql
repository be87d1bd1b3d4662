-- Statements on addresses of events. None of them moves a task: `send` of the events' room does.

-- name: create_event_addresses
-- Makes addresses, of keys that do not have too many yet.
with asked as (
    select *, row_number() over (partition by key) as number
    from unnest(%(hashes)b::bytea[], %(keys)b::text[], %(titles)b::text[], %(lifetimes)b::interval[]) as asked (hash, key, title, lifetime)
)
insert into event_address (token_hash, key, title, created_by, created_at, expires_at)
select asked.hash, asked.key, asked.title, %(created_by)b::text, (select duly_now()), (select duly_now()) + asked.lifetime
from asked
where asked.number + (
    select count(*) from event_address as other
    where other.key = asked.key and other.expires_at > (select duly_now()) and other.used_at is null
) <= %(most)b::int8
on conflict do nothing
returning token_hash, expires_at

-- name: event_address
-- An address, whatever became of it.
select key, title, created_by, expires_at, used_at, expires_at <= (select duly_now()) as is_over
from event_address
where token_hash = %(hash)b::bytea

-- name: use_event_address
-- Uses an address, unless it was used or is over.
update event_address
set used_at = (select duly_now())
where token_hash = %(hash)b::bytea and used_at is null and expires_at > (select duly_now())
returning key, created_by

-- name: forget_event_addresses
-- Removes some that are over for long: until then their use is told apart from a guess.
delete from event_address
where token_hash = any (array(
    select token_hash from event_address
    where expires_at < (select duly_now()) - %(told_for)b::interval
    order by expires_at
    limit %(limit)b
))
returning token_hash
