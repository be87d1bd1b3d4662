-- Lambdas and their versions.

-- What a lambda's owner declares, and nothing else: of its versions the one in force (decision 0041). What operators decide
-- about a lambda belongs into a table of its own (decision 0028). NAME@VERSION is the queue of tasks pinned to a version,
-- NAME@~DOMAIN that of tasks of a domain (decision 0071), NAME@:LABELS that of tasks for hosts with labels (decision 0074).
create table lambda (
    -- With its namespace before a slash, if it has one.
    name text primary key check (
        name ~ ('^([a-z0-9][a-z0-9_.-]*/)?[a-z0-9][a-z0-9_.-]*(@([A-Za-z0-9][A-Za-z0-9_.+-]{0,63})?(~[a-z0-9][a-z0-9_.-]{0,62})?'
            || '(:[a-z0-9][A-Za-z0-9_.=,-]*)?)?$')
        and length(split_part(name, '@', 1)) <= 128 and not starts_with(name, 'default/')
        and right(name, 1) <> '@' and octet_length(name) <= 2048
    ),
    owner text not null,
    version text not null,
    max_attempts integer not null check (max_attempts >= 1),
    max_crashes integer not null check (max_crashes >= 1),
    -- The time within which max_crashes crashes quarantine a task.
    crash_window interval not null default interval '3 days' check (crash_window > interval '0'),
    max_runtime interval not null check (max_runtime > interval '0'),
    backoff_initial interval not null check (backoff_initial >= interval '0'),
    backoff_factor double precision not null check (backoff_factor >= 1),
    backoff_max interval not null check (backoff_max >= backoff_initial),
    payload_limit integer not null check (payload_limit between 0 and 1048576),
    -- The labels that a host must have to serve it, with commas between them; empty: none.
    requires text not null default '' check (octet_length(requires) <= 1023),
    -- How many tasks one call of its callback takes, and how long the first of them waits for others; 0: it takes one.
    batch_size integer not null default 0 check (batch_size between 0 and 1000),
    batch_wait interval not null default interval '0' check (batch_wait between interval '0' and interval '1 minute'),
    registered_at timestamptz not null,
    updated_at timestamptz not null,
    -- Which of its declarations this is, from 1.
    revision bigint not null default 1 check (revision >= 1),
    -- The principal that declared it; empty: nobody is asked who they are.
    registered_by text not null default '',
    -- Of which resources each of its tasks takes units while it runs: JSON, as in task; null: of none.
    needs text
);
create index lambda_with_needs on lambda (name) where needs is not null;

-- The versions of a lambda that hosts declared, the one in force among them: to tell an old worker that restarts from a new
-- one, and to go back. One that is no longer in force, and was, never comes into force by itself.
create table lambda_declaration (
    like lambda including defaults excluding constraints,
    was_in_force boolean not null,
    primary key (name, version)
);

-- The ramp of a lambda: so much of its new tasks goes to the queue of one of its versions. Operators and owners decide it (decision 0098).
create table lambda_ramp (
    lambda text primary key check (octet_length(lambda) <= 2048),
    to_version text not null check (octet_length(to_version) between 1 and 64),
    permille integer not null check (permille between 0 and 1000),
    changed_at timestamptz not null
);

-- Lambdas that were deleted: a worker that still declares one of their versions does not bring them back.
create table deleted_lambda (
    name text primary key,
    owner text not null,
    version text not null,
    revision bigint not null,
    deleted_at timestamptz not null,
    deleted_by text not null
);
