"""The traceback of an attempt that failed; null for what the release before writes."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("alter table attempt add column traceback text check (octet_length(traceback) <= 8192)")


def downgrade() -> None:
    op.execute("alter table attempt drop column traceback")
