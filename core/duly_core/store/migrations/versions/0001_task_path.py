"""The task path: lambda, task (entity), task_assoc (assoc), idempotency keys, the Postgres queue.

Written as SQL because the CHECKs are the point: each states an invariant in the sentence above it.
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

UPGRADE = """
-- The store's clock: every statement asks it and no other. Tests replace it by one with an offset.
create function duly_now() returns timestamptz language sql volatile parallel safe
    as 'select clock_timestamp()';

-- Full jitter: a random part of min(longest, initial * factor^failures_before).
create function duly_backoff(initial interval, factor double precision, longest interval, before integer)
    returns interval language sql volatile parallel safe
    as 'select least(extract(epoch from longest)::double precision,
                     extract(epoch from initial)::double precision * power(factor, least(before, 60)))
               * random() * interval ''1 second''';

create type task_status as enum (
    'new', 'enqueued', 'claimed', 'processing', 'retriable_failure',
    'success', 'fatal_failure', 'cancelled', 'dropped'
);

create table lambda (
    name text primary key check (name ~ '^[a-z0-9][a-z0-9_.-]{0,127}$'),
    owner text not null,
    version text not null,
    max_attempts integer not null check (max_attempts >= 1),
    max_crashes integer not null check (max_crashes >= 1),
    max_runtime interval not null check (max_runtime > interval '0'),
    backoff_initial interval not null check (backoff_initial >= interval '0'),
    backoff_factor double precision not null check (backoff_factor >= 1),
    backoff_max interval not null check (backoff_max >= backoff_initial),
    payload_limit integer not null check (payload_limit between 0 and 1048576),
    registered_at timestamptz not null,
    updated_at timestamptz not null
);

-- The entity: wide and cold. Written when the task is scheduled and when it ends (and when an attempt fails).
create table task (
    task_id uuid primary key,
    lambda text not null,
    collection text not null,
    priority smallint not null check (priority between 1 and 4),
    payload_encoding smallint not null check (payload_encoding in (1, 2)),
    payload bytea not null check (octet_length(payload) <= 1048576),
    created_at timestamptz not null,
    scheduled_at timestamptz not null check (isfinite(scheduled_at)),
    expires_at timestamptz check (isfinite(expires_at)),
    status task_status,
    started_at timestamptz,
    finished_at timestamptz,
    fence integer,
    failures integer,
    crashes integer,
    last_token uuid,
    result_encoding smallint check (result_encoding in (1, 2)),
    result bytea check (octet_length(result) <= 1048576),
    failure_kind smallint,
    failure_message text check (octet_length(failure_message) <= 4096),
    failed_at timestamptz,
    -- The entity's own status is final or absent: while the task lives its status is the assoc's.
    constraint task_status_is_final check (status in ('success', 'fatal_failure', 'cancelled', 'dropped')),
    -- A task is finished exactly if it has a final status, and then its counts are settled.
    constraint task_is_settled check (
        (status is null) = (finished_at is null)
        and (status is null) = (fence is null)
        and (status is null) = (failures is null)
        and (status is null) = (crashes is null)
    ),
    -- Only a success has a result.
    constraint task_result_is_a_success check (result is null or status is not distinct from 'success'),
    -- A fatal failure says why.
    constraint task_failure_has_a_reason check (status <> 'fatal_failure' or failure_kind is not null),
    constraint task_failure_is_whole check ((failure_kind is null) = (failed_at is null))
);
create index task_by_lambda on task (lambda, task_id);

-- The assoc: narrow and hot. One row per live task; deleted in the statement that ends the task.
create table task_assoc (
    task_id uuid primary key,
    lambda text not null,
    priority smallint not null check (priority between 1 and 4),
    status task_status not null,
    next_trigger_at timestamptz not null,
    due_at timestamptz not null,
    expires_at timestamptz,
    fence integer not null default 0 check (fence >= 0),
    failures integer not null default 0 check (failures >= 0),
    crashes integer not null default 0 check (crashes >= 0),
    token uuid,
    last_token uuid,
    holder text,
    cancel_requested boolean not null default false,
    progress real check (progress between 0 and 1),
    progress_note text check (octet_length(progress_note) <= 1024),
    -- The assoc row of a task that ended is gone.
    constraint assoc_is_live check (status in ('new', 'enqueued', 'claimed', 'processing', 'retriable_failure')),
    -- Every live task is looked at again: no status is without a deadline.
    constraint assoc_has_a_trigger check (isfinite(next_trigger_at)),
    -- Exactly a held task has a token, and a holder.
    constraint assoc_token_means_held check ((status in ('claimed', 'processing')) = (token is not null)),
    constraint assoc_holder_means_held check ((token is null) = (holder is null)),
    -- Every failure and crash belongs to a claim.
    constraint assoc_counts_add_up check (failures + crashes <= fence)
) with (
    fillfactor = 70,
    -- every task writes its row about four times: dead rows are cleared as they come, not by the fifth of the table
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);

-- What waits for its time, by queue: a lambda that is paused or full never stands before another's rows.
create index task_assoc_ready on task_assoc (lambda, priority, next_trigger_at)
    where status in ('new', 'retriable_failure');
-- What is on its way or running, by the time at which its silence becomes suspicious.
create index task_assoc_watched on task_assoc (next_trigger_at)
    where status in ('enqueued', 'claimed', 'processing');
-- What ends by itself if it does not start in time, by that time; tasks without one are not in it.
create index task_assoc_expiring on task_assoc (expires_at)
    where status in ('new', 'retriable_failure', 'enqueued') and expires_at is not null;

-- Keys of the callers' own choice; apart from task, so that task can be partitioned by time.
create table idempotency_key (
    lambda text not null,
    key text not null check (octet_length(key) between 1 and 255),
    task_id uuid not null,
    created_at timestamptz not null,
    primary key (lambda, key)
);

-- The Postgres queue. Unlogged: a message is a hint, and losing all of them costs latency only.
create unlogged table queue_message (
    message_id bigint generated always as identity primary key,
    lambda text not null,
    priority smallint not null,
    reference_count integer not null check (reference_count between 1 and 100),
    visible_at timestamptz not null,
    body bytea not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
create index queue_message_visible on queue_message (lambda, priority, visible_at, message_id);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(
        "drop table queue_message, idempotency_key, task_assoc, task, lambda;"
        "drop type task_status;"
        "drop function duly_backoff, duly_now;"
    )
