"""Which server the store was last found on, and since when: what a failover makes Store Consumers wait for."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

UPGRADE = """
-- One row. A promoted standby, or a restored backup, carries what its predecessor was: whoever finds another
-- server than the row says writes the new one, and from then on all know that leases may be older than they look.
create table store_epoch (
    one boolean primary key default true check (one),
    server text not null,
    -- null: the same server since the schema was made
    changed_at timestamptz check (isfinite(changed_at))
);
insert into store_epoch (server)
    select left(pg_walfile_name(pg_current_wal_lsn()), 8) || '/' || extract(epoch from pg_postmaster_start_time());
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("drop table store_epoch;")
