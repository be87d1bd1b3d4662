"""How attempts ended: the history of each task, bounded; and crashes that are counted within a window of time."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

UPGRADE = """
-- The time within which max_crashes crashes quarantine a task. The release before counts for ever, and never reads it.
alter table lambda add column crash_window interval not null default interval '3 days'
    check (crash_window > interval '0');

-- When the crashes within the window happened, oldest first; null is none, and costs a task that never crashes nothing.
-- Crashes that the release before counts are in `crashes` only: they are too old to count here.
alter table task_assoc add column crashed_at timestamptz[];

-- The instants after `since`: what is left of a list of crashes once the older ones are forgotten.
create function duly_recent(instants timestamptz[], since timestamptz) returns timestamptz[]
    language sql immutable parallel safe
    as 'select coalesce(array_agg(instant order by instant), ''{}'') from unnest(instants) as instant where instant > since';

create type attempt_outcome as enum (
    'retriable_failure', 'fatal_failure', 'crashed', 'silent', 'snoozed', 'released', 'cancelled'
);

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
    primary key (task_id, fence),
    -- What is charged to the task has a reason; what is not charged is no failure.
    constraint attempt_failure_has_a_reason check (
        (outcome in ('snoozed', 'released', 'cancelled')) = (failure_kind is null)
    )
);

-- At most 100 rows a task: those that were charged and those that were not are bounded apart, so that a task that
-- snoozes for ever keeps its failures. Looked after at each tenth claim of a task.
create function duly_bound_attempts() returns trigger language plpgsql as '
begin
    delete from attempt
    using (
        select fence, failure_kind is null as free,
            row_number() over (partition by failure_kind is null order by fence desc) as place
        from attempt
        where task_id = new.task_id
    ) as ranked
    where attempt.task_id = new.task_id and attempt.fence = ranked.fence
        and ranked.place > case when ranked.free then 30 else 60 end;
    return null;
end';
create trigger attempt_is_bounded after insert on attempt
    for each row when (new.fence % 10 = 0 and new.fence > 30) execute function duly_bound_attempts();
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(
        "drop table attempt;"
        "drop type attempt_outcome;"
        "drop function duly_bound_attempts, duly_recent;"
        "alter table task_assoc drop column crashed_at;"
        "alter table lambda drop column crash_window;"
    )
