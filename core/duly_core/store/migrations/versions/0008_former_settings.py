"""Timeouts of leases that operators changed lately."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

UPGRADE = """
-- What operators had set of [timing] until lately. Leases of it may be in force until until_at, so Store Consumers wait for
-- them after a failover.
create table former_setting (
    name text not null check (length(name) between 1 and 100),
    value text not null check (length(value) between 1 and 100),
    until_at timestamptz not null check (isfinite(until_at)),
    primary key (name, value)
);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("drop table former_setting;")
