"""Timeouts of leases that operators changed lately, and who has read the live settings."""

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

-- When what it has of the live settings was read from this store, at the earliest; null: unknown.
alter table host add column settings_read_at timestamptz;
alter table service_instance add column settings_read_at timestamptz;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(
        "drop table former_setting; alter table host drop column settings_read_at;"
        " alter table service_instance drop column settings_read_at;"
    )
