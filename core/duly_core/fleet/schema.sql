-- Hosts and services, as they report themselves.

-- A Controller with its Executors. It reports again each interval: nothing is decided by what it says, people look at it.
create table host (
    -- New for each start of a Controller.
    host_id text primary key check (length(host_id) between 1 and 255),
    name text not null check (octet_length(name) <= 255),
    -- Of Duly.
    version text not null check (octet_length(version) <= 255),
    queue_backend text not null check (octet_length(queue_backend) <= 32),
    started_at timestamptz not null check (isfinite(started_at)),
    first_reported_at timestamptz not null,
    reported_at timestamptz not null,
    report_interval interval not null check (report_interval > interval '0'),
    -- It takes no more tasks; it said that it ended.
    draining boolean not null,
    stopped boolean not null,
    -- The principal that reports it, and the only one that may; empty: nobody is asked who they are.
    reported_by text not null,
    -- [{"executor_id", "pid", "version", "processes", "slots", "busy_slots", "started_at", "lambda_set"}]
    executors jsonb not null,
    -- Of what host_lambda has of it; empty: nothing yet.
    lambdas_digest bytea not null default '' check (octet_length(lambdas_digest) <= 32),
    -- When what it has of the live settings was read from this store, at the earliest; null: unknown.
    settings_read_at timestamptz,
    -- By how much its wall clock was ahead of this store's, as it measured; null: unknown. It decides nothing.
    clock_ahead interval,
    -- The pool whose worker it says it is; empty: of none.
    pool text not null default '' check (octet_length(pool) <= 63),
    -- Since when it is to take no more tasks and end, as the autoscaler decided; it is told in the answer to a report.
    drain_requested_at timestamptz
) with (
    -- each report writes its row
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
);

-- Which lambdas the Executors of a host serve, by set: Executors of one application have the same. Written when it changes.
create table host_lambda (
    host_id text not null references host on delete cascade,
    lambda text not null check (octet_length(lambda) between 1 and 2048),
    lambda_set smallint not null,
    version text not null,
    primary key (host_id, lambda, lambda_set)
);
create index host_by_pool on host (pool) where pool <> '';
create index host_lambda_by_lambda on host_lambda (lambda, host_id);

-- A process of a Frontend, an HSC or a Store Consumer.
create table service_instance (
    instance_id text primary key check (length(instance_id) between 1 and 255),
    service text not null,
    host_name text not null,
    version text not null,
    address text not null,
    started_at timestamptz not null,
    reported_at timestamptz not null,
    report_interval interval not null,
    stopped boolean not null,
    settings_read_at timestamptz,
    clock_ahead interval,
    -- The newest schema that it knows; null: it is of a release that did not say.
    schema_version text
) with (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
);
