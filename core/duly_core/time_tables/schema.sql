-- Time tables: what they say, what operators decided about them, and where they stand.

-- One row for each. The definition is overwritten by what an application declares, as long as nobody else changed it.
create table time_table (
    name text primary key check (name ~ '^[a-z0-9][a-z0-9_.-]{0,127}$'),
    lambda text not null,
    collection text not null,
    priority smallint not null check (priority between 1 and 4),
    payload_encoding smallint not null check (payload_encoding in (1, 2, 3)),
    payload bytea not null check (octet_length(payload) <= 1048576),
    cron text check (octet_length(cron) between 1 and 256),
    every interval check (every >= interval '1 second'),
    every_offset interval not null check (every_offset >= interval '0'),
    zone text not null check (octet_length(zone) between 1 and 64),
    catch_up smallint not null check (catch_up between 1 and 3),
    catch_up_window interval not null check (catch_up_window > interval '0'),
    overlap smallint not null check (overlap between 1 and 4),
    jitter interval not null check (jitter >= interval '0'),
    declared boolean not null,
    revision bigint not null default 1,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    -- What operators decide: no declaration writes it.
    paused_at timestamptz,
    pause_note text check (octet_length(pause_note) <= 1024),
    -- Where it stands. A tick before next_tick_at was decided about, one from it on was not.
    next_tick_at timestamptz check (isfinite(next_tick_at)),
    next_fire_at timestamptz check (isfinite(next_fire_at)),
    buffered_tick_at timestamptz,
    last_tick_at timestamptz,
    last_task_id uuid,
    problem text check (octet_length(problem) <= 1024),
    -- Of each of its tasks, as in task; but the session is the key alone, for its namespace is that of the lambda.
    resources jsonb,
    session text,
    session_order smallint,
    session_policy smallint,
    -- What becomes of ticks in closed time. All are null, or none is.
    calendar text,
    on_closed smallint,
    business_hours boolean,
    working_day smallint,
    -- Of each of its tasks, as in task.
    fair_key text check (octet_length(fair_key) between 1 and 128),
    attributes jsonb,
    constraint time_table_has_a_rhythm check ((cron is null) <> (every is null)),
    -- What has a tick ahead is looked at.
    constraint time_table_has_a_trigger check ((next_tick_at is null) = (next_fire_at is null)),
    constraint time_table_pause_is_whole check (pause_note is null or paused_at is not null)
) with (
    -- each tick writes its row
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
);
create index time_table_due on time_table (next_fire_at) where paused_at is null and next_fire_at is not null;
create index time_table_buffered on time_table (name) where paused_at is null and buffered_tick_at is not null;
create index time_table_by_calendar on time_table (calendar) where calendar is not null;

-- Working days. Who changes one, or makes a time table name one, has locked the row "calendars" of `turn`.
create table calendar (
    name text primary key check (octet_length(name) <= 128),
    holidays text[] not null check (cardinality(holidays) <= 8),
    weekend text[] not null,
    closed date[] not null check (cardinality(closed) <= 1000),
    opened date[] not null check (cardinality(opened) <= 1000),
    hours text[] not null check (cardinality(hours) <= 50),
    note text not null check (octet_length(note) <= 1024),
    revision bigint not null default 1,
    created_at timestamptz not null,
    updated_at timestamptz not null
);
insert into turn (name) values ('calendars');
