"""Dead letters from before there was a table for them. A step of its own: it reads all tasks, and locks none of them."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

UPGRADE = """
-- What ends meanwhile is written by the trigger.
insert into dead_letter (task_id, lambda, finished_at)
    select task_id, lambda, finished_at from task where status = 'fatal_failure'
    on conflict (task_id) do nothing;
alter table task validate constraint task_redrives_check;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    """Nothing was made that the downgrade of 0003 does not take away."""
