"""The queue leaves the store: hosts claim due tasks from the HSC, and a task is not written twice more."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# What was sent to the queue is due again: its references are gone with it.
UPGRADE = """
update task_assoc set status = 'new', next_trigger_at = duly_now() where status = 'enqueued';
drop table queue_message, queue_marker;
"""

DOWNGRADE = """
create unlogged table queue_marker (one boolean primary key default true check (one));
insert into queue_marker default values;
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
    op.execute(DOWNGRADE)
