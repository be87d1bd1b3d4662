-- Statements about calendars. Locks are taken in this order: the row "calendars" of turn, a calendar, time tables by their names.

-- name: lock_calendars
-- Nobody else changes or deletes a calendar, or makes a time table name one, until this transaction ends.
select from turn where name = any (array['calendars']) for update

-- name: calendars_by_name
select {{calendar_columns}} from calendar where name = any (%(names)b::text[])

-- name: calendars_page
select {{calendar_columns}} from calendar where name > %(after)b::text order by name limit %(limit)b offset %(skipped)b::int8

-- name: put_calendar
insert into calendar (name, holidays, weekend, closed, opened, hours, note, created_at, updated_at)
values (
    %(name)b::text, %(holidays)b::text[], %(weekend)b::text[], %(closed)b::text[]::date[], %(opened)b::text[]::date[], %(hours)b::text[],
    %(note)b::text, (select duly_now()), (select duly_now())
)
on conflict (name) do update
set holidays = excluded.holidays, weekend = excluded.weekend, closed = excluded.closed, opened = excluded.opened,
    hours = excluded.hours, note = excluded.note, revision = calendar.revision + 1, updated_at = excluded.updated_at
returning {{calendar_columns}}

-- name: delete_calendars
delete from calendar where name = any (%(names)b::text[]) returning {{calendar_columns}}

-- name: calendar_users
-- Sorted by an expression: otherwise a plan that was made on an empty table would walk all of it by its key.
-- The time tables that name these calendars, some of each.
select asked.name as calendar, used.name, used.lambda
from unnest(%(names)b::text[]) as asked (name)
cross join lateral (
    select time_table.name, time_table.lambda from time_table
    where time_table.calendar = any (array[asked.name]) and time_table.calendar is not null
    order by time_table.name || ''
    limit %(limit)b
) as used
order by asked.name, used.name

-- name: locked_calendar_tables
select {{time_table_columns}}, ''::bytea as payload
from time_table
where calendar = any (array[%(calendar)b::text]) and calendar is not null
order by name || ''
for update

-- name: move_calendar_tables
-- Another calendar, another next tick. What was decided stays.
update time_table
set next_tick_at = moved.next_tick_at, next_fire_at = moved.next_fire_at, problem = null
from unnest(%(names)b::text[], %(next_ticks)b::timestamptz[], %(next_fires)b::timestamptz[])
    as moved (name, next_tick_at, next_fire_at)
where time_table.name = any (array[moved.name])
returning time_table.name
