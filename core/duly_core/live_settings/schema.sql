-- Settings that operators change while Duly runs.

-- Settings that operators change while Duly runs: one row for each that is not at its process's own value.
create table setting (
    name text primary key,
    value text not null,
    changed_at timestamptz not null,
    check (length(name) between 1 and 100 and length(value) between 1 and 100)
);

-- What the Store Consumer that started last has in its own file or environment, where that is not the default: for
-- operators to see. Nothing is decided by it.
create table own_setting (
    name text primary key,
    value text not null,
    changed_at timestamptz not null
);

-- What operators had set of [timing] until lately. Leases of it may be in force until until_at, so Store Consumers wait for
-- them after a failover.
create table former_setting (
    name text not null check (length(name) between 1 and 100),
    value text not null check (length(value) between 1 and 100),
    until_at timestamptz not null check (isfinite(until_at)),
    primary key (name, value)
);
