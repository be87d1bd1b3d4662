-- Events that callers send, and the tasks that wait for them.
-- step: expand
create table event_key (
    key text collate "C" primary key,
    events integer not null default 0
);
create table event (
    key text collate "C" not null,
    seq bigint generated always as identity,
    event_id text collate "C" not null check (octet_length(event_id) between 1 and 255),
    encoding smallint not null,
    value bytea not null check (octet_length(value) <= 65536),
    sent_by text,
    sent_at timestamptz not null,
    expires_at timestamptz not null,
    primary key (key, seq),
    unique (key, event_id)
);
create index event_by_expiry on event (expires_at);
create table event_wait (
    key text collate "C" not null,
    task_id uuid not null,
    fence integer not null,
    wait text not null,
    needs_all boolean not null,
    primary key (key, task_id)
);
create index event_wait_by_task on event_wait (task_id);
