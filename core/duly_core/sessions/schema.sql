-- Sessions.

-- One row for each session that has live tasks or is blocked. Whoever changes a task that waits locks the row of its
-- session first, in the order of the keys.
create table session (
    -- As in task: NAMESPACE/KEY, without a namespace /KEY.
    key text collate "C" primary key check (
        key ~ '^([a-z0-9][a-z0-9_.-]*)?/' and octet_length(substr(key, strpos(key, '/') + 1)) between 1 and 255
    ),
    -- The one task that may run; null while a failed task blocks the session.
    head uuid,
    -- Live tasks, the head among them.
    length integer not null check (length >= 0),
    -- Of the length: those that wait and are to end without a run.
    doomed integer not null default 0 check (doomed >= 0 and doomed <= length),
    last_seq bigint not null,
    -- The task whose failure stopped the session, and when it did.
    blocked_by uuid,
    blocked_at timestamptz,
    -- While tasks fail with that one: those up to this seq do; they are marked some at a time.
    fails_until bigint,
    constraint session_block_is_whole check ((blocked_by is null) = (blocked_at is null)),
    constraint session_runs_or_is_blocked check ((head is null) = (blocked_by is not null))
) with (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
create index session_blocked on session (key) where blocked_at is not null;

-- Tasks that transactions of clients put into sessions (duly_schedule). A row is there only until its transaction commits, which
-- removes it (duly_enter_sessions): nobody ever sees those of others.
create table session_entry (
    xact xid8 not null default pg_current_xact_id(),
    number bigint generated always as identity,
    task_id uuid not null,
    primary key (xact, number)
);
