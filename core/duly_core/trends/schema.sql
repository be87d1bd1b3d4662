-- The trends: what happened in each minute of a day, in each hour of a week, and in each day of a quarter (decisions 0104, 0113).

-- Of one lambda, or of all together (''). HSCs add how runs began and ended, a Store Consumer what it counts. A process that is killed
-- loses what it had not added, a minute at most. Nothing is decided by it: people look at it.
create table trend_point (
    -- How long it is: 1, 60 or 1440.
    minutes smallint not null check (minutes in (1, 60, 1440)),
    lambda text collate "C" not null check (octet_length(lambda) <= 2048),
    -- When it begins.
    at timestamptz not null,
    -- Tasks that were scheduled.
    scheduled bigint not null default 0,
    -- Runs that began, by how late they did: a number for each place of trends/rules.py.
    lateness bigint[] not null default '{}',
    -- Tasks that ended, dead letters among them.
    ended bigint not null default 0,
    dead bigint not null default 0,
    -- Runs that did not succeed.
    failed_runs bigint not null default 0,
    -- When the numbers below were measured; null: not yet. Of an hour they are the largest of its minutes.
    measured_at timestamptz,
    -- Tasks that were due and taken by nobody, a lower bound for long queues; those that workers had; and for how long the first was due.
    ready bigint not null default 0,
    held bigint not null default 0,
    oldest interval,
    -- Slots of hosts that were alive. Of '' those of all hosts.
    slots bigint not null default 0,
    -- Of '' only: calls that schedule and had to be accepted, and those of them that were not.
    calls bigint not null default 0,
    failed_calls bigint not null default 0,
    primary key (minutes, lambda, at)
);
create index trend_point_by_time on trend_point (minutes, at);
