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

-- Timeline and start of the server that answers; an error on a standby. Where a managed Postgres does not tell its
-- timeline, the start alone has to do.
create function duly_server() returns text language plpgsql as '
begin
    return left(pg_walfile_name(pg_current_wal_lsn()), 8) || ''/'' || extract(epoch from pg_postmaster_start_time());
exception when undefined_function or insufficient_privilege or feature_not_supported then
    return ''-/'' || extract(epoch from pg_postmaster_start_time());
end';
insert into store_epoch (server) select duly_server();

-- One row, unlogged as the queue is: it is gone after whatever emptied the queue.
create unlogged table queue_marker (one boolean primary key default true check (one));
insert into queue_marker default values;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("drop table queue_marker; drop table store_epoch; drop function duly_server;")
