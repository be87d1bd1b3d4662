-- Written by `make sql` from core/duly_core/live_settings/live_settings.sql. Edit that.

-- name: surroundings
select 'lambda', name, '' from lambda
union all
select 'setting', name, value from setting
union all
select 'former', name, value from former_setting where until_at > duly_now()
order by 1, 2;

-- name: kept_settings
select true, name, value, changed_at from setting
union all
select false, name, value, changed_at from own_setting;

-- name: set_settings
with asked as (
    select * from unnest(%(names)b::text[], %(texts)b::text[]) as asked (name, value)
), former as (
    -- what is set now, too: whoever replaces it at this moment does not see it
    insert into former_setting (name, value, until_at)
    select name, value, duly_now() + %(kept_for)b
    from (
        select setting.name, setting.value from setting join asked on asked.name = setting.name
        union
        select name, value from asked
    ) as known
    where name like 'timing.%%'
    on conflict (name, value) do update set until_at = excluded.until_at
), forgotten as (
    -- but what is written above
    delete from former_setting as former
    where until_at < duly_now()
        and not exists (select from setting where setting.name = former.name and setting.value = former.value)
        and not exists (select from asked where asked.name = former.name and asked.value = former.value)
), written as (
    insert into setting (name, value, changed_at)
    select name, value, duly_now() from asked
    order by name
    on conflict (name) do update set value = excluded.value, changed_at = excluded.changed_at
        where setting.value <> excluded.value
    returning name
)
select pg_notify(duly_channel(%(channel)b::text), '') from (select count(*) from written having count(*) > 0) as changed;

-- name: reset_settings
with gone as (
    delete from setting where name = any(%(names)b::text[]) returning name, value
), former as (
    insert into former_setting (name, value, until_at)
    select name, value, duly_now() + %(kept_for)b from gone where name like 'timing.%%'
    on conflict (name, value) do update set until_at = excluded.until_at
)
select pg_notify(duly_channel(%(channel)b::text), '') from (select count(*) from gone having count(*) > 0) as changed;

-- name: publish_own_settings
with gone as (
    delete from own_setting where name <> all(%(names)b::text[]) returning name
), written as (
    insert into own_setting (name, value, changed_at)
    select name, value, duly_now() from unnest(%(names)b::text[], %(texts)b::text[]) as asked (name, value)
    order by name
    on conflict (name) do update set value = excluded.value, changed_at = excluded.changed_at
        where own_setting.value <> excluded.value
    returning name
)
select count(*) from gone, written;
