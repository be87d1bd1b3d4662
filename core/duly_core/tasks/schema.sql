-- Tasks: entity, attempts, dead letters, assoc and idempotency keys.

create type task_status as enum (
    'new', 'waiting', 'enqueued', 'claimed', 'processing', 'retriable_failure',
    'success', 'fatal_failure', 'cancelled', 'dropped'
);

create type attempt_outcome as enum (
    'retriable_failure', 'fatal_failure', 'crashed', 'silent', 'snoozed', 'released', 'cancelled', 'handed_over', 'waited'
);

-- The entity: wide and cold. Written when the task is scheduled and when it ends (and when an attempt fails).
-- Partitioned by the time in the task's id: finished rows leave with their partition. Ends are written by "insert ... on
-- conflict do update", because that finds its partition without planning for all of them (decision 0017). The defaults are
-- for what that proposes beside the end, and are never stored: the entity is there.
create table task (
    task_id uuid primary key,
    lambda text not null default '',
    collection text not null default '',
    priority smallint not null default 3,
    payload_encoding smallint not null default 1,
    payload bytea not null default '',
    created_at timestamptz not null default 'epoch',
    scheduled_at timestamptz not null default 'epoch',
    expires_at timestamptz,
    status task_status,
    started_at timestamptz,
    finished_at timestamptz,
    fence integer,
    failures integer,
    crashes integer,
    last_token uuid,
    result_encoding smallint,
    result bytea,
    failure_kind smallint,
    failure_message text,
    failed_at timestamptz,
    -- How often the task was redriven after it had ended as fatal_failure.
    redrives integer not null default 0,
    -- The session that the task belongs to: its tasks run one at a time, in order (decision 0029). The namespace of the
    -- lambda, a slash and the key: sessions end at their namespace (decision 0061). Code points order them for everybody.
    session text collate "C",
    -- 1: in the order in which they were scheduled; 2: by the time at which they are due.
    session_order smallint,
    -- What a fatal_failure of this task does to its session: 1 the next task runs; 2 the session is blocked; 3 the tasks
    -- that wait fail, too.
    session_policy smallint,
    -- Of which resources it takes how many units while it runs: [{"name", "key", "weight"}], by name and key (decision
    -- 0031). Null: of none.
    resources jsonb,
    -- The graph that the task is a node of (decision 0030).
    graph uuid,
    -- How long an attempt may run; null: as long as its lambda says.
    max_runtime interval,
    -- The principal that scheduled it, or the task whose callback did; null: nobody was asked who they are (decision 0038).
    scheduled_by text,
    -- Whose work it is, as the caller says.
    fair_key text check (octet_length(fair_key) between 1 and 128),
    -- What it was scheduled with of attachments, as claims tell it: [{"hash" (hex), "size_bytes", "name", "media_type"}]. What
    -- keeps these are the rows of attachment_use. Null: nothing.
    attachments jsonb,
    -- What it was scheduled with; who has the key now says unique_key.
    unique_key text,
    -- Of the caller's own, to find it by: texts, integers and flags by name. Null: none.
    attributes jsonb,
    -- Whose tick a task is; null: a client's own. Then scheduled_at is the tick.
    time_table text,
    -- How often the task was changed before it ran; the assoc counts with the entity. A claim whose snapshot has another
    -- count than the row that it locked reads the entity again.
    edits integer not null default 0,
    -- With the edits of the entity this makes the edits of the assoc.
    checkpoint_count integer not null default 0,
    -- Of a task whose payload or priority was changed: a digest of those that it was scheduled with, for repeats of the
    -- Schedule.
    scheduled_as bytea,
    -- What a callback kept for its next attempt, as JSON.
    checkpoint bytea,
    events jsonb,
    -- Of the run that succeeded; those of the others are in `attempt`.
    enqueued_at timestamptz,
    claimed_at timestamptz,
    -- Null if it was the first run.
    holder text,
    -- The events that its callback waited for and received, in their order: [{"wait", "key", "seq", "encoding", "value" (base64), "sent_by",
    -- "sent_at", "until"}], and {"wait", "timed_out"} of a wait whose time was over (decision 0091). One that its callback refused has the
    -- wait '' and no value: it tells which events of its key were received. Null: none.
    received jsonb,
    -- The entity's own status is final or absent: while the task lives its status is the assoc's. Its counts are settled then.
    constraint task_is_settled check (
        (status >= 'success') is not false and num_nonnulls(status, finished_at, fence, failures, crashes) in (0, 5)
    )
) partition by range (task_id);
create index task_by_lambda on task (lambda, task_id);

-- Lists of a collection's tasks. A task without a collection is not in it, and costs nothing more.
create index task_by_collection on task (collection, task_id) where collection <> '';

-- One row for each attempt that ended otherwise than in success; written by the statement that ends it.
create table attempt (
    task_id uuid not null,
    fence integer not null check (fence >= 1),
    attempt integer not null check (attempt >= 1),
    outcome attempt_outcome not null,
    holder text not null,
    started_at timestamptz,
    ended_at timestamptz not null,
    failure_kind smallint,
    failure_message text check (octet_length(failure_message) <= 4096),
    traceback text check (octet_length(traceback) <= 8192),
    enqueued_at timestamptz,
    claimed_at timestamptz,
    -- When the task was to be looked at next; null: it ended.
    next_trigger_at timestamptz,
    primary key (task_id, fence),
    -- What is charged to the task has a reason; what is not charged is no failure.
    constraint attempt_failure_has_a_reason check (
        (outcome in ('snoozed', 'released', 'cancelled', 'handed_over', 'waited')) = (failure_kind is null)
    )
) partition by range (task_id);

-- The first partition takes the ids of two days; Store Consumers make the others. The rest is where every other id is at
-- home: of times for which no partition was made, and of those whose partition is gone.
-- Half of each page is left to what the tasks on it end with: an end then changes no index. Without it a page is full
-- when its tasks end, and the new versions fill as many pages again (measured: decision 0017).
do $$ declare
    bound uuid := duly_first_id(date_trunc('day', now(), 'UTC') + interval '2 days');
    storage text := 'fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0';
begin
    execute format(
        'create table task_first partition of task for values from (minvalue) to (%L) with (%s)', bound, storage
    );
    execute format('create table attempt_first partition of attempt for values from (minvalue) to (%L)', bound);
    execute format('create table task_rest partition of task default with (%s)', storage);
end $$;

create table attempt_rest partition of attempt default;

-- Which tasks are fatal_failure, and since when. A table, and no index on task: an index that knows the status makes
-- each end of each task write into all indexes of task (measured: 58 % of those updates are heap-only without it, none with it).
create table dead_letter (
    task_id uuid primary key,
    lambda text not null,
    finished_at timestamptz not null
);
create index dead_letter_by_lambda on dead_letter (lambda, finished_at, task_id);
create index dead_letter_by_end on dead_letter (finished_at, task_id);

-- The assoc: narrow and hot. One row per live task; deleted in the statement that ends the task.
create table task_assoc (
    task_id uuid primary key,
    lambda text not null,
    collection text not null,
    priority smallint not null,
    status task_status not null,
    next_trigger_at timestamptz not null,
    due_at timestamptz not null,
    expires_at timestamptz,
    fence integer not null default 0,
    failures integer not null default 0,
    crashes integer not null default 0,
    -- Of these, how often its whole worker or its machine died: then nothing that ran there is more suspect than the rest.
    worker_crashes integer not null default 0,
    token uuid,
    last_token uuid,
    holder text,
    cancel_requested boolean not null default false,
    -- With cancel_requested: its callback is to be ended whatever it does.
    kill_requested boolean not null default false,
    -- Since when its callback is to end and does not, as its holder said, and how many callbacks beside it have time to end first.
    overdue_since_at timestamptz,
    overdue_neighbours integer,
    progress real,
    progress_note text,
    -- When the crashes within the window happened, oldest first; null is none, and costs a task that never crashes nothing.
    crashed_at timestamptz[],
    -- Since when it is held, if it is; for people to see.
    claimed_at timestamptz,
    -- As in task; tasks of a session run by rank, then by seq.
    session text collate "C",
    session_rank timestamptz,
    session_seq bigint,
    session_policy smallint,
    -- The graph that the task is a node of. While it waits: how many of its edges were not decided yet, and whether one
    -- that fires is enough.
    graph uuid,
    open_edges integer,
    any_of boolean,
    -- An attempt that runs longer than its max_runtime is the last; null: it is retried, as of all but some nodes.
    timeout_is_final boolean,
    -- Why a task that waits is to end without a run: a failure kind. The Store Consumer ends it (end_waiting).
    doom smallint,
    -- As in task.
    resources jsonb,
    -- What it took of them when it was picked, as `resources` is written; null: nothing. The sums are `used` of resource_use.
    taken jsonb,
    -- The resource, and its key, of which a parked task waits for units; or 'gate:' and the name of the gate that holds it, and its id;
    -- or 'completion:', and the SHA-256, in hex digits, of the token by which somebody completes it; or 'event:', and the keys of the
    -- events that its callback waits for; or 'session:', of a node of a graph that may run, until it is in its session, of which the key is
    -- the name. The node has that key from the start.
    parked_on text,
    parked_key text,
    -- When it may start by the rates of its resources: it was put off to this moment, and is not put off again if it is
    -- picked within a second of it.
    start_at timestamptz,
    edits integer not null default 0,
    -- The gates that let the task pass: those that delayed it, and the breaker whose probe it is.
    passed_gates bigint[],
    -- The rare moves of a task, oldest first (decision 0043): [{"kind", "at", "next", "about", "by"}], instants in microseconds
    -- since 1970. Each is added by the statement that moves the task. Null: none, as of most tasks. Those of a live task are in
    -- its assoc; its end adds them to those of the entity.
    events jsonb,
    -- When its reference was last sent to a queue (SQS).
    enqueued_at timestamptz,
    -- As in task: tasks of one lambda take turns by it. Empty: it has none, in a lambda some of whose tasks have (give_turns).
    fair_key text collate "C",
    -- The assoc row of a task that ended is gone. Every live task is looked at again: no status is without a deadline, but
    -- that of a task that waits for another one and does not expire. The end of the other one releases it.
    constraint assoc_is_live check (status < 'success' and (next_trigger_at < 'infinity' or status = 'waiting')),
    constraint assoc_waits_for_something check (
        status <> 'waiting' or session is not null or graph is not null or parked_on is not null
    ),
    -- What is picked takes units; whoever takes it back frees them.
    constraint assoc_took_when_picked check (taken is null or status in ('enqueued', 'claimed', 'processing')),
    -- Exactly a held task has a token.
    constraint assoc_token_means_held check ((status in ('claimed', 'processing')) = (token is not null))
) with (
    fillfactor = 70,
    -- every task writes its row about four times: dead rows are cleared as they come, not by the fifth of the table
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);

-- What waits for its time, by queue: a lambda that is paused or full never stands before another's rows.
create index task_assoc_ready on task_assoc (lambda, priority, next_trigger_at)
    where status in ('new', 'retriable_failure');

-- The same of tasks that take turns, by key. Tasks without a key are not in it, and cost nothing more.
create index task_assoc_fair on task_assoc (lambda, priority, fair_key, next_trigger_at)
    where status in ('new', 'retriable_failure') and fair_key is not null;

-- What is on its way or running, by the time at which its silence becomes suspicious.
create index task_assoc_watched on task_assoc (next_trigger_at)
    where status in ('enqueued', 'claimed', 'processing');

-- What ends by itself if it does not start in time, by that time; tasks without one are not in it.
create index task_assoc_expiring on task_assoc (expires_at)
    where status in ('new', 'retriable_failure', 'enqueued') and expires_at is not null;

-- What waits for its turn, by session.
create index task_assoc_in_session on task_assoc (session, session_rank, session_seq)
    where status = 'waiting' and doom is null;

-- What waits and is to end without a run, by the time at which it is.
create index task_assoc_waiting_until on task_assoc (next_trigger_at)
    where status = 'waiting' and next_trigger_at < 'infinity';

-- What waits for units of a resource: by lambda and priority, those first that were due first.
create index task_assoc_parked on task_assoc (parked_on, parked_key, lambda, priority, due_at)
    where status = 'waiting' and parked_on is not null;

-- Keys of the callers' own choice; apart from task, which is partitioned. Removed with their tasks, and found by them.
create table idempotency_key (
    lambda text not null,
    key text not null check (octet_length(key) between 1 and 255),
    task_id uuid not null,
    created_at timestamptz not null,
    primary key (lambda, key)
);
create index idempotency_key_by_task on idempotency_key (task_id);

-- Which task has a unique key (decision 0094). A row stays when its task ends: whether the key is taken is judged when the next
-- task of it is scheduled. Rows whose tasks are gone leave with upkeep.
create table unique_key (
    lambda text not null,
    key text not null check (octet_length(key) between 1 and 255),
    task_id uuid not null,
    -- When the task was scheduled, or redriven.
    taken_at timestamptz not null,
    primary key (lambda, key)
);
create index unique_key_by_task on unique_key (task_id);

-- By which attributes tasks are found (decision 0105): a row for each attribute, of tasks that have some only. Apart from task, which
-- is partitioned, so a search has one index. Rows whose tasks are gone leave with upkeep.
create table task_attribute (
    name text collate "C" not null check (octet_length(name) between 1 and 64),
    value text collate "C" not null check (octet_length(value) between 1 and 256),
    task_id uuid not null,
    primary key (name, value, task_id)
);
create index task_attribute_by_task on task_attribute (task_id);

-- Tasks that were not written because another task got their payload: a repeated request finds itself here. Kept for an hour.
create table merged_task (
    task_id uuid primary key,
    holder uuid not null
);
