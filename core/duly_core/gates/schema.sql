-- Gates and breakers.

-- Each change of a gate or breaker raises the version, in its transaction: services remember the rest.
create table gate_version (version bigint not null);
insert into gate_version values (1);

-- What operators decide about tasks that nobody runs yet. A task is hit if it has all that the scope names.
create table gate (
    name text primary key check (octet_length(name) between 1 and 255),
    -- Another gate of the same name has another id: tasks remember ids.
    gate_id bigint generated always as identity unique,
    kind text not null check (kind in ('pause', 'drop', 'delay')),
    -- A lambda, a prefix that ends with an asterisk, or an asterisk alone.
    lambda text not null check (octet_length(lambda) between 1 and 255),
    collection text check (octet_length(collection) between 1 and 128),
    priority smallint check (priority between 1 and 4),
    session text check (octet_length(session) between 1 and 255),
    delay interval check (delay > interval '0'),
    owner text not null check (octet_length(owner) <= 255),
    reason text not null check (octet_length(reason) <= 1024),
    created_at timestamptz not null,
    -- Null: until an operator removes it.
    expires_at timestamptz check (isfinite(expires_at)),
    -- Of a breaker that is half open: its probes are due by then.
    probes_until timestamptz,
    constraint gate_delay_is_whole check ((delay is not null) = (kind = 'delay')),
    constraint gate_probes_pass_a_pause check (probes_until is null or kind = 'pause')
);

-- The failure rate at which a lambda is paused, and where its breaker stands.
create table breaker (
    lambda text primary key check (octet_length(lambda) between 1 and 255),
    failure_rate double precision not null check (failure_rate > 0 and failure_rate <= 1),
    minimum integer not null check (minimum >= 1),
    count_window interval not null check (count_window > interval '0'),
    pause interval not null check (pause > interval '0'),
    probes integer not null check (probes >= 1),
    owner text not null check (octet_length(owner) <= 255),
    reason text not null check (octet_length(reason) <= 1024),
    changed_at timestamptz not null,
    state text not null default 'closed' check (state in ('closed', 'open', 'half_open')),
    state_since timestamptz not null,
    -- While it is half open: how many tasks it let through.
    probed integer not null default 0 check (probed >= 0)
);

-- How runs of lambdas that have a breaker ended, by second; each HSC adds its own.
create table breaker_count (
    lambda text not null,
    second timestamptz not null,
    ended integer not null,
    failed integer not null check (failed between 0 and ended),
    primary key (lambda, second)
);
