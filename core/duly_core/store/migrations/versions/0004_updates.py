"""Changes of tasks, checkpoints, and the function by which callers schedule in their own transactions."""

from alembic import op

revision = "0004"
down_revision = "0001"
branch_labels = None
depends_on = None

UPGRADE = """
-- How often the task was changed before it ran; the assoc counts with the entity. A claim whose snapshot has another
-- count than the row that it locked reads the entity again.
alter table task add column edits integer not null default 0 check (edits >= 0);
alter table task_assoc add column edits integer not null default 0 check (edits >= 0);

-- Of a task whose payload or priority was changed: a digest of those that it was scheduled with, for repeats of the
-- Schedule.
alter table task add column scheduled_as bytea check (octet_length(scheduled_as) = 32);

-- What a callback kept for its next attempt, as JSON.
alter table task add column checkpoint bytea check (octet_length(checkpoint) <= 65536);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(
        "alter table task drop column edits, drop column scheduled_as, drop column checkpoint;"
        "alter table task_assoc drop column edits;"
    )
