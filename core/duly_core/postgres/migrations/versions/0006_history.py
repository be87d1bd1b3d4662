"""What happened to a task, for people: the rare moves as events, and who ran it when."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

UPGRADE = """
-- The rare moves of a task, oldest first (decision 0043): [{"kind", "at", "next", "about", "by"}], instants in microseconds
-- since 1970. Each is added by the statement that moves the task. Null: none, as of most tasks. Those of a live task are in
-- its assoc; its end adds them to those of the entity.
alter table task_assoc add column events jsonb;
-- When its reference was last sent to a queue (SQS).
alter table task_assoc add column enqueued_at timestamptz;

alter table task add column events jsonb;
-- Of the run that succeeded; those of the others are in `attempt`.
alter table task add column enqueued_at timestamptz;
alter table task add column claimed_at timestamptz;
-- Null if it was the first run.
alter table task add column holder text;

alter table attempt add column enqueued_at timestamptz;
alter table attempt add column claimed_at timestamptz;
-- When the task was to be looked at next; null: it ended.
alter table attempt add column next_trigger_at timestamptz;

-- At most 200 events: the first 50, the newest ones, and between them one that counts those that were left out.
create function duly_bound_events(events jsonb) returns jsonb language sql immutable parallel safe as $$
    select case
        when jsonb_array_length(events) <= 200 then events
        else (
            select jsonb_agg(
                case
                    when place = 51 then jsonb_build_object('kind', 'left_out', 'at', event -> 'at', 'about', (
                        select sum(case when gone.event ->> 'kind' = 'left_out' then (gone.event ->> 'about')::int8 else 1 end)
                        from jsonb_array_elements(events) with ordinality as gone (event, place)
                        where gone.place between 51 and jsonb_array_length(events) - 149
                    )::text)
                    else event
                end order by place
            )
            from jsonb_array_elements(events) with ordinality as kept (event, place)
            where place <= 51 or place > jsonb_array_length(events) - 149
        )
    end
$$;

-- Adds an event. `about` is what it has to do with: a resource, a task, what was changed. `by` is the principal that asked.
create function duly_note(
    events jsonb, kind text, at timestamptz, next_at timestamptz default null, about text default null, by text default null
) returns jsonb language sql stable parallel safe as $$
    select duly_bound_events(coalesce(events, '[]') || jsonb_strip_nulls(jsonb_build_object(
        'kind', kind, 'at', (extract(epoch from at) * 1000000)::int8,
        'next', case when isfinite(next_at) then (extract(epoch from next_at) * 1000000)::int8 end,
        'about', left(about, 400), 'by', by
    )))
$$;
"""


def upgrade() -> None:
    op.get_bind().exec_driver_sql(UPGRADE)


def downgrade() -> None:
    op.execute(
        "drop function duly_note, duly_bound_events;"
        "alter table attempt drop column enqueued_at, drop column claimed_at, drop column next_trigger_at;"
        "alter table task drop column events, drop column enqueued_at, drop column claimed_at, drop column holder;"
        "alter table task_assoc drop column events, drop column enqueued_at;"
    )
