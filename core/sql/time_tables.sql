-- Written by `make sql` from core/duly_core/time_tables/time_tables.sql. Edit that.

-- name: time_table_clock
select (select duly_now()) as now, (select payload_limit from lambda where name = any (array[%(lambda)b::text]));

-- name: time_table_lambdas
select (select duly_now()) as now, lambda.name, lambda.payload_limit
from (select) as one left join lambda on lambda.name = any (%(names)b::text[]);

-- name: locked_time_tables
select name, lambda as lambda_name, collection, priority::int4, payload_encoding::int4, cron, every, every_offset, zone,
    catch_up::int4, catch_up_window, overlap::int4, jitter, declared, revision, created_at, updated_at, paused_at,
    pause_note, resources, session as session_key, session_order::int4, session_policy::int4, next_tick_at, next_fire_at, buffered_tick_at, last_tick_at, last_task_id, problem,
    calendar, on_closed::int4, business_hours, working_day::int4, fair_key, attributes,
    octet_length(payload) as payload_bytes, (select duly_now()) as read_at, payload
from time_table
where name = any (%(names)b::text[])
order by name
for update;

-- name: time_tables_by_name
select name, lambda as lambda_name, collection, priority::int4, payload_encoding::int4, cron, every, every_offset, zone,
    catch_up::int4, catch_up_window, overlap::int4, jitter, declared, revision, created_at, updated_at, paused_at,
    pause_note, resources, session as session_key, session_order::int4, session_policy::int4, next_tick_at, next_fire_at, buffered_tick_at, last_tick_at, last_task_id, problem,
    calendar, on_closed::int4, business_hours, working_day::int4, fair_key, attributes,
    octet_length(payload) as payload_bytes, (select duly_now()) as read_at, payload
from time_table
where name = any (%(names)b::text[]);

-- name: time_tables_page
select name, lambda as lambda_name, collection, priority::int4, payload_encoding::int4, cron, every, every_offset, zone,
    catch_up::int4, catch_up_window, overlap::int4, jitter, declared, revision, created_at, updated_at, paused_at,
    pause_note, resources, session as session_key, session_order::int4, session_policy::int4, next_tick_at, next_fire_at, buffered_tick_at, last_tick_at, last_task_id, problem,
    calendar, on_closed::int4, business_hours, working_day::int4, fair_key, attributes,
    octet_length(payload) as payload_bytes, (select duly_now()) as read_at, ''::bytea as payload
from time_table
where name > %(after)b::text and (%(lambda)b::text = '' or lambda = %(lambda)b::text)
order by name
limit %(limit)b offset %(skipped)b::int8;

-- name: create_time_table
insert into time_table (
    name, lambda, collection, priority, payload_encoding, payload, cron, every, every_offset, zone,
    catch_up, catch_up_window, overlap, jitter, resources, session, session_order, session_policy, declared, next_tick_at,
    next_fire_at, created_at, updated_at,
    calendar, on_closed, business_hours, working_day, fair_key, attributes
)
values (
    %(name)b::text, %(lambda)b::text, %(collection)b::text, %(priority)b::int2, %(payload_encoding)b::int2,
    %(payload)b::bytea, %(cron)b::text, %(every)b::interval, %(every_offset)b::interval, %(zone)b::text,
    %(catch_up)b::int2, %(catch_up_window)b::interval, %(overlap)b::int2, %(jitter)b::interval,
    %(resources)b::text::jsonb, %(session)b::text, %(session_order)b::int2, %(session_policy)b::int2, %(declared)b::bool,
    %(next_tick_at)b::timestamptz, %(next_fire_at)b::timestamptz, %(now)b::timestamptz, %(now)b::timestamptz,
    %(calendar)b::text, %(on_closed)b::int2, %(business_hours)b::bool, %(working_day)b::int2,
    %(fair_key)b::text, %(attributes)b::text::jsonb
)
on conflict (name) do nothing
returning name, lambda as lambda_name, collection, priority::int4, payload_encoding::int4, cron, every, every_offset, zone,
    catch_up::int4, catch_up_window, overlap::int4, jitter, declared, revision, created_at, updated_at, paused_at,
    pause_note, resources, session as session_key, session_order::int4, session_policy::int4, next_tick_at, next_fire_at, buffered_tick_at, last_tick_at, last_task_id, problem,
    calendar, on_closed::int4, business_hours, working_day::int4, fair_key, attributes,
    octet_length(payload) as payload_bytes, (select duly_now()) as read_at, payload;

-- name: change_time_table
update time_table
set lambda = %(lambda)b::text, collection = %(collection)b::text, priority = %(priority)b::int2,
    payload_encoding = %(payload_encoding)b::int2, payload = %(payload)b::bytea, cron = %(cron)b::text,
    every = %(every)b::interval, every_offset = %(every_offset)b::interval, zone = %(zone)b::text,
    catch_up = %(catch_up)b::int2, catch_up_window = %(catch_up_window)b::interval, overlap = %(overlap)b::int2,
    jitter = %(jitter)b::interval, resources = %(resources)b::text::jsonb, session = %(session)b::text,
    session_order = %(session_order)b::int2, session_policy = %(session_policy)b::int2,
    calendar = %(calendar)b::text, on_closed = %(on_closed)b::int2, business_hours = %(business_hours)b::bool,
    working_day = %(working_day)b::int2, fair_key = %(fair_key)b::text, attributes = %(attributes)b::text::jsonb, declared = %(declared)b::bool, next_tick_at = %(next_tick_at)b::timestamptz,
    next_fire_at = %(next_fire_at)b::timestamptz, problem = null, revision = revision + 1,
    updated_at = %(now)b::timestamptz
where name = any (array[%(name)b::text])
returning name, lambda as lambda_name, collection, priority::int4, payload_encoding::int4, cron, every, every_offset, zone,
    catch_up::int4, catch_up_window, overlap::int4, jitter, declared, revision, created_at, updated_at, paused_at,
    pause_note, resources, session as session_key, session_order::int4, session_policy::int4, next_tick_at, next_fire_at, buffered_tick_at, last_tick_at, last_task_id, problem,
    calendar, on_closed::int4, business_hours, working_day::int4, fair_key, attributes,
    octet_length(payload) as payload_bytes, (select duly_now()) as read_at, payload;

-- name: delete_time_tables
delete from time_table where name = any (%(names)b::text[]) returning name, lambda as lambda_name, collection, priority::int4, payload_encoding::int4, cron, every, every_offset, zone,
    catch_up::int4, catch_up_window, overlap::int4, jitter, declared, revision, created_at, updated_at, paused_at,
    pause_note, resources, session as session_key, session_order::int4, session_policy::int4, next_tick_at, next_fire_at, buffered_tick_at, last_tick_at, last_task_id, problem,
    calendar, on_closed::int4, business_hours, working_day::int4, fair_key, attributes,
    octet_length(payload) as payload_bytes, (select duly_now()) as read_at, payload;

-- name: pause_time_tables
update time_table
set paused_at = coalesce(paused_at, (select duly_now())), pause_note = case when %(names_note)b::bool then %(note)b::text else pause_note end,
    buffered_tick_at = null
where name = any (%(names)b::text[])
returning name, lambda as lambda_name, collection, priority::int4, payload_encoding::int4, cron, every, every_offset, zone,
    catch_up::int4, catch_up_window, overlap::int4, jitter, declared, revision, created_at, updated_at, paused_at,
    pause_note, resources, session as session_key, session_order::int4, session_policy::int4, next_tick_at, next_fire_at, buffered_tick_at, last_tick_at, last_task_id, problem,
    calendar, on_closed::int4, business_hours, working_day::int4, fair_key, attributes,
    octet_length(payload) as payload_bytes, (select duly_now()) as read_at, payload;

-- name: resume_time_table
update time_table
set paused_at = null, pause_note = null, next_tick_at = %(next_tick_at)b::timestamptz,
    next_fire_at = %(next_fire_at)b::timestamptz
where name = any (array[%(name)b::text]) and paused_at is not null
returning name, lambda as lambda_name, collection, priority::int4, payload_encoding::int4, cron, every, every_offset, zone,
    catch_up::int4, catch_up_window, overlap::int4, jitter, declared, revision, created_at, updated_at, paused_at,
    pause_note, resources, session as session_key, session_order::int4, session_policy::int4, next_tick_at, next_fire_at, buffered_tick_at, last_tick_at, last_task_id, problem,
    calendar, on_closed::int4, business_hours, working_day::int4, fair_key, attributes,
    octet_length(payload) as payload_bytes, (select duly_now()) as read_at, payload;

-- name: next_time_table
select (
    select next_fire_at from time_table where paused_at is null and next_fire_at is not null order by next_fire_at limit 1
) - (select duly_now()), exists (select from time_table where paused_at is null and buffered_tick_at is not null);

-- name: due_time_tables
select name, lambda as lambda_name, collection, priority::int4, payload_encoding::int4, cron, every, every_offset, zone,
    catch_up::int4, catch_up_window, overlap::int4, jitter, declared, revision, created_at, updated_at, paused_at,
    pause_note, resources, session as session_key, session_order::int4, session_policy::int4, next_tick_at, next_fire_at, buffered_tick_at, last_tick_at, last_task_id, problem,
    calendar, on_closed::int4, business_hours, working_day::int4, fair_key, attributes,
    octet_length(payload) as payload_bytes, (select duly_now()) as read_at, ''::bytea as payload
from time_table
where paused_at is null and next_fire_at is not null and next_fire_at <= (select duly_now())
order by next_fire_at
limit %(limit)b
for update skip locked;

-- name: released_time_tables
select name, lambda as lambda_name, collection, priority::int4, payload_encoding::int4, cron, every, every_offset, zone,
    catch_up::int4, catch_up_window, overlap::int4, jitter, declared, revision, created_at, updated_at, paused_at,
    pause_note, resources, session as session_key, session_order::int4, session_policy::int4, next_tick_at, next_fire_at, buffered_tick_at, last_tick_at, last_task_id, problem,
    calendar, on_closed::int4, business_hours, working_day::int4, fair_key, attributes,
    octet_length(payload) as payload_bytes, (select duly_now()) as read_at, ''::bytea as payload
from time_table
where paused_at is null and buffered_tick_at is not null and (problem is null or next_tick_at is null)
    and (next_fire_at is null or next_fire_at > (select duly_now()))
    and not exists (
        select from task_assoc as assoc where assoc.task_id = any (array[time_table.last_task_id])
    )
order by name
limit %(limit)b
for update skip locked;

-- name: move_time_tables_on
update time_table
set next_tick_at = moved.next_tick_at, next_fire_at = moved.next_fire_at, buffered_tick_at = moved.buffered_tick_at,
    last_tick_at = coalesce(moved.last_tick_at, time_table.last_tick_at),
    last_task_id = coalesce(
        nullif(moved.last_task_id, '00000000-0000-0000-0000-000000000000'), time_table.last_task_id
    ),
    problem = null
from unnest(
    %(names)b::text[], %(next_ticks)b::timestamptz[], %(next_fires)b::timestamptz[], %(buffered)b::timestamptz[],
    %(last_ticks)b::timestamptz[], %(last_tasks)b::uuid[]
) as moved (name, next_tick_at, next_fire_at, buffered_tick_at, last_tick_at, last_task_id)
where time_table.name = any (array[moved.name])
returning time_table.name;

-- name: put_off_time_tables
update time_table
set next_fire_at = case when next_tick_at is not null then (select duly_now()) + %(delay)b::interval end,
    problem = put_off.problem
from unnest(%(names)b::text[], %(problems)b::text[]) as put_off (name, problem)
where time_table.name = any (array[put_off.name])
returning time_table.name;
