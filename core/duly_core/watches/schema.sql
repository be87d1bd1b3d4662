-- Watches: who is told what happens to tasks, and what there is to tell (decision 0092).

-- A watch is there from its first call until nobody has called for `keep_for`. While there is one, the statements that end tasks and runs
-- write what any of them is to be told; without one they write nothing.
create table watch (
    watch_id uuid primary key,
    -- Empty where nobody is asked who they are.
    principal text not null,
    -- What it is of, in words that its next calls must repeat.
    filter text not null check (octet_length(filter) <= 65536),
    -- Which Postgres it began in: the numbers of transactions mean nothing in another.
    source text not null,
    -- Where it begins: what came before has no number above, or no transaction from here on.
    began_xid xid8 not null,
    began_seq bigint not null,
    began_at timestamptz not null,
    keep_for interval not null check (keep_for > interval '0'),
    until_at timestamptz not null
);

-- What is written for a watch, at least: '*', 'lambda:NAME', 'prefix:START', 'graphs', 'graph:ID' or 'session:NAME'.
create table watch_key (
    key text collate "C" not null,
    watch_id uuid not null references watch on delete cascade,
    primary key (key, watch_id)
);
create index watch_key_by_watch on watch_key (watch_id);

-- What happened, as far as somebody watched. Readers go by the transaction, and read only what is below all that are under way: then no
-- row can come before one that they have read. Removed by age.
create table task_event (
    xid xid8 not null default pg_current_xact_id(),
    seq bigint generated always as identity,
    -- 0: a watch began; 1: a run ended, and its task goes on; 2: a task ended; 3: a graph finished.
    kind smallint not null,
    at timestamptz not null,
    lambda text,
    task_id uuid,
    graph uuid,
    session text collate "C",
    -- Of a run an attempt_outcome, of a task a task_status, of a graph how it ended.
    status text,
    run integer,
    failure_kind smallint,
    next_at timestamptz,
    -- Of what one transaction did, runs come before tasks, and these before their graphs.
    primary key (xid, kind, seq)
);

-- The last event that was removed: what is read on from before it would have a gap.
create table task_event_sweep (
    is_only boolean primary key default true check (is_only),
    xid xid8 not null,
    kind smallint not null,
    seq bigint not null
);
insert into task_event_sweep (xid, kind, seq) values ('0', 0, 0);
