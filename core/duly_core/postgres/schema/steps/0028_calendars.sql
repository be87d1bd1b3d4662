-- Calendars of working days, and what becomes of the ticks of time tables in closed time.
-- step: expand
-- locks: time_table access exclusive
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
alter table time_table
    add column calendar text,
    add column on_closed smallint,
    add column business_hours boolean,
    add column working_day smallint;
