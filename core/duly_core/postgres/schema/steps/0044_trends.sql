-- What happened in each minute of a day and each hour of a week, for charts.
-- step: expand
create table trend_point (
    minutes smallint not null check (minutes in (1, 60)),
    lambda text collate "C" not null check (octet_length(lambda) <= 2048),
    at timestamptz not null,
    scheduled bigint not null default 0,
    lateness bigint[] not null default '{}',
    ended bigint not null default 0,
    dead bigint not null default 0,
    failed_runs bigint not null default 0,
    measured_at timestamptz,
    ready bigint not null default 0,
    held bigint not null default 0,
    oldest interval,
    slots bigint not null default 0,
    primary key (minutes, lambda, at)
);
create index trend_point_by_time on trend_point (minutes, at);
