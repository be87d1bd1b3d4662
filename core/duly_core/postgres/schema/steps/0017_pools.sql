-- Pools of workers, their plans, and the lease of the autoscaler that leads.
-- step: expand
create table worker_pool (
    name text primary key check (name ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'),
    lambdas text[] not null check (cardinality(lambdas) between 1 and 100),
    labels text[] not null check (cardinality(labels) <= 32),
    minimum integer not null check (minimum >= 0),
    maximum integer not null check (maximum between minimum and 10000),
    slots integer not null check (slots between 1 and 100000),
    target_age interval not null check (target_age > interval '0'),
    idle_time interval not null check (idle_time >= interval '0'),
    budget interval check (budget > interval '0'),
    driver text not null check (octet_length(driver) between 1 and 63),
    driver_settings jsonb not null check (octet_length(driver_settings::text) <= 16384),
    note text not null check (octet_length(note) <= 1024),
    changed_at timestamptz not null
);
create table pool_plan (
    pool text primary key references worker_pool on delete cascade,
    fence bigint not null,
    desired integer not null check (desired >= 0),
    reasons text[] not null,
    planned_at timestamptz not null,
    desired_since timestamptz not null,
    memory jsonb not null,
    announced jsonb,
    failure text check (octet_length(failure) <= 2048),
    failed_since timestamptz,
    constraint pool_plan_failure_is_whole check ((failure is null) = (failed_since is null))
) with (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
);
create table autoscaler_lease (
    is_only boolean primary key default true check (is_only),
    holder text not null check (octet_length(holder) <= 255),
    fence bigint not null,
    until_at timestamptz not null
);
insert into autoscaler_lease (holder, fence, until_at) values ('', 0, 'epoch');
