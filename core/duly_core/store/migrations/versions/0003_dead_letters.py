"""Dead letters: found by an index of their own, and their redrives counted."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

UPGRADE = """
-- How often the task was redriven after it had ended as fatal_failure. The release before never writes it.
alter table task add column redrives integer not null default 0 check (redrives >= 0);

-- Dead letters, by when they ended: the few among the many that finished.
create index task_dead_letter on task (lambda, finished_at) where status = 'fatal_failure';
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("drop index task_dead_letter; alter table task drop column redrives;")
