-- Addresses by which somebody without a login sends one event, once.
-- step: expand
create table event_address (
    token_hash bytea primary key check (octet_length(token_hash) = 32),
    key text collate "C" not null,
    title text not null check (octet_length(title) <= 2048),
    created_by text,
    created_at timestamptz not null,
    expires_at timestamptz not null,
    used_at timestamptz
);
create index event_address_by_key on event_address (key, expires_at);
create index event_address_by_expiry on event_address (expires_at);
