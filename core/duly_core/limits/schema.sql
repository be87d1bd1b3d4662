-- Resources and what is taken of them.

-- What tasks share, and how much of it there is. Operators decide it. Applications declare what no operator decided.
create table resource (
    -- That of `lambda:NAME` is the quota of a lambda: each of its tasks takes a unit, without naming it. The rate of
    -- `schedule:NAME` bounds how many of its tasks clients schedule; Frontends count them.
    -- With `lambda:` or `schedule:` the quota of a lambda, which may have a namespace. `namespace:NAME` and
    -- `schedule-namespace:NAME` are the same for all lambdas of a namespace, `domain:NAME` is the quota of a domain. Others may have a
    -- namespace, too: then only its tasks name them.
    name text primary key check (
        name ~ '^(((lambda|schedule):)?([a-z0-9][a-z0-9_.-]*/)?|(namespace|schedule-namespace|domain):)[a-z0-9][a-z0-9_.-]*$'
        and length(name) <= 147
    ),
    capacity integer not null check (capacity between 0 and {{units.unlimited}}),
    -- Whether each key of the resource has units of its own.
    per_key boolean not null,
    note text not null check (octet_length(note) <= 1024),
    changed_at timestamptz not null,
    -- At most `rate` units in a `period` are started, `burst` of them at once; null: as many as there are.
    rate integer check (rate between 1 and {{rate.most}}),
    period interval check (period >= interval '1 ms' and period <= interval '1 day'),
    burst integer check (burst between 1 and {{rate.most}}),
    -- Tasks may be put off by another rate, which it had before.
    rate_is_new boolean not null default false,
    constraint resource_rate_is_whole check ((rate is null) = (period is null) and (rate is null) = (burst is null)),
    -- The owner and version of the application that declared it; null: an operator made or changed it, and no declaration changes it.
    declared_by text,
    declared_version text,
    -- The principal that set it, or whose declaration did.
    set_by text not null default ''
);
create index resource_quotas on resource (name) where name like 'lambda:%' or name like 'namespace:%' or name like 'domain:%';
create index resource_scheduling_quotas on resource (name)
    where name like 'schedule:%' or name like 'schedule-namespace:%';

-- How much of a resource is taken: one row for a resource, or for each of its keys that is in use. Whoever takes, frees,
-- parks or releases locks it first, in the order of resource and key.
create table resource_use (
    resource text not null,
    key text not null check (octet_length(key) <= 255),
    used integer not null default 0 check (used >= 0),
    -- When all units that were given a start time will have started, at the rate of the resource (GCRA's theoretical arrival
    -- time); null: none was given.
    starts_until timestamptz,
    -- The same of the units that did start, which is never later; null: none did. By it a task that missed its start time is
    -- judged.
    started_until timestamptz,
    -- Since when parked tasks may fit that were not released, because somebody else had locked them; null: there are none. The
    -- Store Consumer releases them (duly_release_skipped).
    skipped_at timestamptz,
    primary key (resource, key)
) with (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
create index resource_use_skipped on resource_use (skipped_at) where skipped_at is not null;
