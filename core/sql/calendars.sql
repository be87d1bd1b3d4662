-- Written by `make sql` from core/duly_core/time_tables/calendars.sql. Edit that.

-- name: lock_calendars
select from turn where name = any (array['calendars']) for update;

-- name: calendars_by_name
select name, holidays, weekend, closed, opened, hours, note, revision, created_at, updated_at from calendar where name = any (%(names)b::text[]);

-- name: calendars_page
select name, holidays, weekend, closed, opened, hours, note, revision, created_at, updated_at from calendar where name > %(after)b::text order by name limit %(limit)b offset %(skipped)b::int8;

-- name: put_calendar
insert into calendar (name, holidays, weekend, closed, opened, hours, note, created_at, updated_at)
values (
    %(name)b::text, %(holidays)b::text[], %(weekend)b::text[], %(closed)b::text[]::date[], %(opened)b::text[]::date[], %(hours)b::text[],
    %(note)b::text, (select duly_now()), (select duly_now())
)
on conflict (name) do update
set holidays = excluded.holidays, weekend = excluded.weekend, closed = excluded.closed, opened = excluded.opened,
    hours = excluded.hours, note = excluded.note, revision = calendar.revision + 1, updated_at = excluded.updated_at
returning name, holidays, weekend, closed, opened, hours, note, revision, created_at, updated_at;

-- name: delete_calendars
delete from calendar where name = any (%(names)b::text[]) returning name, holidays, weekend, closed, opened, hours, note, revision, created_at, updated_at;

-- name: calendar_users
select asked.name as calendar, used.name, used.lambda
from unnest(%(names)b::text[]) as asked (name)
cross join lateral (
    select time_table.name, time_table.lambda from time_table
    where time_table.calendar = any (array[asked.name]) and time_table.calendar is not null
    order by time_table.name || ''
    limit %(limit)b
) as used
order by asked.name, used.name;

-- name: locked_calendar_tables
select name, lambda as lambda_name, collection, priority::int4, payload_encoding::int4, cron, every, every_offset, zone,
    catch_up::int4, catch_up_window, overlap::int4, jitter, declared, revision, created_at, updated_at, paused_at,
    pause_note, resources, session as session_key, session_order::int4, session_policy::int4, next_tick_at, next_fire_at, buffered_tick_at, last_tick_at, last_task_id, problem,
    calendar, on_closed::int4, business_hours, working_day::int4, fair_key, attributes,
    octet_length(payload) as payload_bytes, (select duly_now()) as read_at, ''::bytea as payload
from time_table
where calendar = any (array[%(calendar)b::text]) and calendar is not null
order by name || ''
for update;

-- name: move_calendar_tables
update time_table
set next_tick_at = moved.next_tick_at, next_fire_at = moved.next_fire_at, problem = null
from unnest(%(names)b::text[], %(next_ticks)b::timestamptz[], %(next_fires)b::timestamptz[])
    as moved (name, next_tick_at, next_fire_at)
where time_table.name = any (array[moved.name])
returning time_table.name;
