-- Trends have days, and count calls that schedule.
-- step: expand
-- locks: trend_point access exclusive
alter table trend_point
    drop constraint trend_point_minutes_check,
    add constraint trend_point_minutes_check check (minutes in (1, 60, 1440)) not valid,
    add column calls bigint not null default 0,
    add column failed_calls bigint not null default 0;
