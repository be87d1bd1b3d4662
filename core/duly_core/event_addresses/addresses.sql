-- Statements on addresses of events. None of them moves a task: `send` of the events' room does.

-- name: create_event_addresses
-- Makes addresses, of keys that do not have too many yet; those of a task while it is held under this very token.
with asked as (
    select *, row_number() over (partition by key) as number
    from unnest(%(hashes)b::bytea[], %(keys)b::text[], %(titles)b::text[], %(lifetimes)b::interval[]) as asked (hash, key, title, lifetime)
)
insert into event_address (token_hash, key, title, created_by, created_at, expires_at, task_id)
select
    asked.hash, asked.key, asked.title, %(created_by)b::text, (select duly_now()), (select duly_now()) + asked.lifetime, %(task_id)b::uuid
from asked
where asked.number + (
    select count(*) from event_address as other
    where other.key = asked.key and other.expires_at > (select duly_now()) and other.used_at is null
) <= %(most)b::int8
    and (
        %(task_id)b::uuid is null
        or exists (
            select from task_assoc
            where task_id = %(task_id)b::uuid and token = %(claim_token)b::uuid and status::text in ('claimed', 'processing')
        )
    )
on conflict do nothing
returning token_hash, expires_at

-- name: event_address
-- An address, whatever became of it.
select key, title, created_by, expires_at, used_at, expires_at <= (select duly_now()) as is_over
from event_address
where token_hash = %(hash)b::bytea

-- name: use_event_address
-- Uses an address, unless it was used or is over, and with it those that its task made for the key: they ask the same.
with asked as materialized (
    select used.token_hash
    from event_address as used
    where used.token_hash = any (array(
        select %(hash)b::bytea
        union all
        select other.token_hash
        from event_address as one
        join event_address as other on other.key = one.key and other.task_id = one.task_id
        where one.token_hash = %(hash)b::bytea and one.task_id is not null
            and other.expires_at > (select duly_now()) and other.used_at is null
    )) and used_at is null and expires_at > (select duly_now())
    order by used.token_hash
    for update
)
update event_address
set used_at = (select duly_now())
where token_hash = any (array(select asked.token_hash from asked)) and exists (select from asked where asked.token_hash = %(hash)b::bytea)
returning token_hash = %(hash)b::bytea as is_asked, key, created_by, task_id

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
