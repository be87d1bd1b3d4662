"""Settings that operators change while Duly runs: one row for each that is not at its process's own value."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

UPGRADE = """
create table setting (
    name text primary key,
    value text not null,
    changed_at timestamptz not null,
    check (length(name) between 1 and 100 and length(value) between 1 and 100)
);

-- What the Store Consumer that started last has in its own file or environment, where that is not the default: for
-- operators to see. Nothing is decided by it.
create table own_setting (
    name text primary key,
    value text not null,
    changed_at timestamptz not null
);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("drop table setting, own_setting")
