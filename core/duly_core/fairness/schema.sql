-- Turns by fair key.

-- The queues some of whose tasks have, or had, a fair key: tasks of these take turns. The Store Consumer finds them (note_fair_lambdas).
create table fair_lambda (
    name text primary key,
    since_at timestamptz not null
);

-- How many tasks of a key start in its turn, if not one. Operators and owners decide it. The lambda is that without version,
-- domain or labels; the empty key is that of tasks without one.
create table fair_weight (
    lambda text not null check (octet_length(lambda) <= 2048),
    fair_key text collate "C" not null check (octet_length(fair_key) <= 128),
    weight integer not null check (weight between 1 and 1000),
    changed_at timestamptz not null,
    primary key (lambda, fair_key)
);
