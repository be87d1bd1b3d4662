-- Queues whose keys take turns, and the weights of keys.
-- step: expand
create table fair_lambda (
    name text primary key,
    since_at timestamptz not null
);
create table fair_weight (
    lambda text not null check (octet_length(lambda) <= 2048),
    fair_key text collate "C" not null check (octet_length(fair_key) <= 128),
    weight integer not null check (weight between 1 and 1000),
    changed_at timestamptz not null,
    primary key (lambda, fair_key)
);
