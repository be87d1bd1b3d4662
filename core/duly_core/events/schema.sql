-- Events that callers send, and the tasks that wait for them (decision 0091).

-- The keys of which events are kept, or for which a task waits: the namespace, a slash and the caller's key, as sessions have it.
-- A sender to a key locks its row, and so does a task that is about to wait: no event comes between the look and the wait.
create table event_key (
    key text collate "C" primary key,
    -- How many of its events are kept.
    events integer not null default 0,
    -- An event of it was not given to all tasks that wait yet: only to those up to this one. Null: all have it.
    given_to uuid
);
create index event_key_unfinished on event_key (key) where given_to is not null;

-- What was sent. The numbers of the events of one key grow in the order in which they were committed.
create table event (
    key text collate "C" not null,
    seq bigint generated always as identity,
    -- Of the sender's own choice: a repeated send is one event.
    event_id text collate "C" not null check (octet_length(event_id) between 1 and 255),
    encoding smallint not null,
    value bytea not null check (octet_length(value) <= 65536),
    -- The principal that sent it; null: nobody was asked who they are.
    sent_by text,
    sent_at timestamptz not null,
    expires_at timestamptz not null,
    primary key (key, seq),
    unique (key, event_id)
);
create index event_by_expiry on event (expires_at);

-- Who waits: a row for each key of a task that waits for events. What else ends the wait may leave the row: its fence is then not
-- that of the task, or the task waits no more.
create table event_wait (
    key text collate "C" not null,
    task_id uuid not null,
    -- Of the run that began the wait.
    fence integer not null,
    -- What the callback calls this wait: see `received` of `task`.
    wait text not null,
    -- The wait ends with the last of its keys; otherwise with the first.
    needs_all boolean not null,
    primary key (key, task_id)
);
create index event_wait_by_task on event_wait (task_id);
