-- Addresses by which somebody without a login sends one event, once (decision 0100).

-- Of the token only its SHA-256 is kept.
create table event_address (
    token_hash bytea primary key check (octet_length(token_hash) = 32),
    -- The key of the event, as event_key has it.
    key text collate "C" not null,
    -- What is asked, for people.
    title text not null check (octet_length(title) <= 2048),
    -- The principal that made it; null: nobody was asked who they are.
    created_by text,
    created_at timestamptz not null,
    expires_at timestamptz not null,
    used_at timestamptz,
    -- The task whose callback made it; null: a client did. Of its addresses for one key one is used.
    task_id uuid
);
create index event_address_by_key on event_address (key, expires_at);
create index event_address_by_expiry on event_address (expires_at);
