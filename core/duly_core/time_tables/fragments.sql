-- What statements share about time tables.

-- fragment: time_table_columns
-- The fields of TableRow, but for the payload.
name, lambda as lambda_name, collection, priority::int4, payload_encoding::int4, cron, every, every_offset, zone,
    catch_up::int4, catch_up_window, overlap::int4, jitter, declared, revision, created_at, updated_at, paused_at,
    pause_note, resources, session as session_key, session_order::int4, session_policy::int4, next_tick_at, next_fire_at, buffered_tick_at, last_tick_at, last_task_id, problem,
    calendar, on_closed::int4, business_hours, working_day::int4, fair_key, attributes,
    octet_length(payload) as payload_bytes, (select duly_now()) as read_at

-- fragment: calendar_columns
-- The fields of CalendarRow.
name, holidays, weekend, closed, opened, hours, note, revision, created_at, updated_at
