-- Pools of workers, what the autoscaler plans for them, and which autoscaler leads.

-- What operators declared. The autoscaler reads it before each plan.
create table worker_pool (
    name text primary key check (name ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'),
    -- Names of lambdas, or patterns.
    lambdas text[] not null check (cardinality(lambdas) between 1 and 100),
    labels text[] not null check (cardinality(labels) <= 32),
    minimum integer not null check (minimum >= 0),
    maximum integer not null check (maximum between minimum and 10000),
    slots integer not null check (slots between 1 and 100000),
    -- How long a due task may wait for a worker.
    target_age interval not null check (target_age > interval '0'),
    -- How long fewer workers must be enough before some are ended.
    idle_time interval not null check (idle_time >= interval '0'),
    -- Worker time in a day of UTC; null: as much as it needs.
    budget interval check (budget > interval '0'),
    -- A driver of the autoscaler's own settings, and what it is told of this pool: {"name": "text"}.
    driver text not null check (octet_length(driver) between 1 and 63),
    driver_settings jsonb not null check (octet_length(driver_settings::text) <= 16384),
    note text not null check (octet_length(note) <= 1024),
    changed_at timestamptz not null
);

-- The last plan of each pool. Only the autoscaler that leads writes it, under its fence.
create table pool_plan (
    pool text primary key references worker_pool on delete cascade,
    fence bigint not null,
    desired integer not null check (desired >= 0),
    reasons text[] not null,
    planned_at timestamptz not null,
    -- Since when so many workers are desired.
    desired_since timestamptz not null,
    -- What the next plan has to know: `memory.py`.
    memory jsonb not null,
    -- More workers that will be needed, when they will be asked for, and why.
    announced jsonb,
    -- Why the driver does not do what it is told, and since when; null: it does.
    failure text check (octet_length(failure) <= 2048),
    failed_since timestamptz,
    constraint pool_plan_failure_is_whole check ((failure is null) = (failed_since is null))
) with (
    -- each plan writes its row
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
);

-- Which autoscaler leads: one row. Whoever takes the lease over raises the fence, so that a former leader writes nothing.
create table autoscaler_lease (
    is_only boolean primary key default true check (is_only),
    holder text not null check (octet_length(holder) <= 255),
    fence bigint not null,
    -- By Postgres's clock.
    until_at timestamptz not null
);
insert into autoscaler_lease (holder, fence, until_at) values ('', 0, 'epoch');
