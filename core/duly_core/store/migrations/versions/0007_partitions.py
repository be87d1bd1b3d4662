"""`task` and `attempt` are partitioned by the time in the task's id: finished rows leave with their partition.

No table is rewritten, and none is locked while it is read: what is there becomes the first partition, by a CHECK that is
validated beside the running release. Its statements work as before; they only take longer to plan.
"""

from contextlib import suppress

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# A table that is small is read under the lock. Larger ones are read before it, for the sake of a CHECK. The release that
# still runs has to live with it, for good if this process is killed: so the bound is a month away, and with it the end of
# the first partition. Where an id is beyond that there is no CHECK: those rows are moved, and the rest is read under the lock.
CHECKS = """
do $$ declare
    bound uuid := duly_first_id(date_trunc('day', now(), 'UTC') + interval '31 days');
begin
    if pg_relation_size('task') + pg_relation_size('attempt') > pg_size_bytes('8 MB')
        and not exists (select from task where task_id >= bound) and not exists (select from attempt where task_id >= bound)
    then
        execute format('alter table task add constraint task_is_in_bounds check (task_id < %L) not valid', bound);
        execute format('alter table attempt add constraint attempt_is_in_bounds check (task_id < %L) not valid', bound);
    end if;
end $$
"""
VALIDATE = """
do $$ begin
    if exists (select from pg_constraint where conname = '{table}_is_in_bounds') then
        alter table {table} validate constraint {table}_is_in_bounds;
    end if;
end $$
"""

NO_CHECKS = (
    "alter table task drop constraint if exists task_is_in_bounds",
    "alter table attempt drop constraint if exists attempt_is_in_bounds",
)

BESIDE = (
    # The lowest task id of an instant: ids are UUIDv7s, and begin with their milliseconds since 1970.
    """
    create or replace function duly_first_id(instant timestamptz) returns uuid language sql immutable parallel safe
        as 'select (lpad(to_hex((extract(epoch from instant) * 1000)::int8), 12, ''0'') || repeat(''0'', 20))::uuid'
    """,
    *NO_CHECKS,
    # Keys are removed with their tasks, and found by them. This may take long, so it comes before the CHECKs.
    "drop index if exists idempotency_key_by_task",
    "create index concurrently idempotency_key_by_task on idempotency_key (task_id)",
    CHECKS,
    VALIDATE.format(table="task"),
    VALIDATE.format(table="attempt"),
)

UPGRADE = """
-- in the order of the statements that write both
lock table attempt in access exclusive mode;
lock table task in access exclusive mode;

alter table task rename to task_first;
alter table task_first rename constraint task_pkey to task_first_pkey;
alter index task_by_lambda rename to task_first_by_lambda;
alter table attempt rename to attempt_first;
alter table attempt_first rename constraint attempt_pkey to attempt_first_pkey;

create table task (like task_first including defaults including constraints) partition by range (task_id);
alter table task drop constraint if exists task_is_in_bounds;
alter table task add primary key (task_id);
create index task_by_lambda on task (lambda, task_id);
create table attempt (like attempt_first including defaults including constraints) partition by range (task_id);
alter table attempt drop constraint if exists attempt_is_in_bounds;
alter table attempt add primary key (task_id, fence);

-- Ends are written by "insert ... on conflict do update", because that finds its partition without planning for all of
-- them (decision 0017). What it proposes beside the end is never stored: the entity is there.
alter table task
    alter lambda set default '', alter collection set default '', alter priority set default 3,
    alter payload_encoding set default 1, alter payload set default '',
    alter created_at set default 'epoch', alter scheduled_at set default 'epoch';

-- Where every other id is at home: of times for which no partition was made, and of those whose partition is gone.
create table task_rest partition of task default;
create table attempt_rest partition of attempt default;

do $$ declare
    -- as it was said in the CHECK: that may have been yesterday
    bound uuid := coalesce(
        (
            select substring(pg_get_constraintdef(oid) from '[0-9a-f]{8}-[0-9a-f-]{27}')::uuid
            from pg_constraint where conname = 'task_is_in_bounds'
        ), duly_first_id(date_trunc('day', now(), 'UTC') + interval '2 days')
    );
begin
    with beyond as (delete from task_first where task_id >= bound returning *) insert into task_rest select * from beyond;
    with beyond as (delete from attempt_first where task_id >= bound returning *)
        insert into attempt_rest select * from beyond;
    execute format('alter table task attach partition task_first for values from (minvalue) to (%L)', bound);
    execute format('alter table attempt attach partition attempt_first for values from (minvalue) to (%L)', bound);
end $$;
alter table task_first drop constraint if exists task_is_in_bounds;
alter table attempt_first drop constraint if exists attempt_is_in_bounds;

-- Half of each page is left to what the tasks on it end with: an end then changes no index. Without it a page is full
-- when its tasks end, and the new versions fill as many pages again (measured: decision 0017).
alter table task_first set (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0
);
alter table task_rest set (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0
);

drop trigger task_is_a_dead_letter on task_first;
create trigger task_is_a_dead_letter after insert or update of status on task
    for each row when (new.status = 'fatal_failure') execute function duly_keep_dead_letter();
drop trigger attempt_is_bounded on attempt_first;
create trigger attempt_is_bounded after insert on attempt
    for each row when (new.fence % 10 = 0 and new.fence > 30) execute function duly_bound_attempts();

-- An end that found no entity is not to become one. (Nobody but an operator's own hand removes a live task's entity.)
create function duly_drop_stray() returns trigger language plpgsql as '
begin
    delete from task where task_id = new.task_id;
    delete from dead_letter where task_id = new.task_id;
    return null;
end';
create trigger task_is_no_stray after insert on task
    for each row when (new.lambda = '') execute function duly_drop_stray();
"""

DOWNGRADE = """
alter table task detach partition task_first;
alter table attempt detach partition attempt_first;
insert into task_first select * from task;
insert into attempt_first select * from attempt;
drop table task, attempt;
drop function duly_drop_stray, duly_first_id;
alter table task_first reset (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_cost_delay);
alter table task_first rename to task;
alter table attempt_first rename to attempt;
alter table task rename constraint task_first_pkey to task_pkey;
alter table attempt rename constraint attempt_first_pkey to attempt_pkey;
alter index task_first_by_lambda rename to task_by_lambda;
create trigger task_is_a_dead_letter after insert or update of status on task
    for each row when (new.status = 'fatal_failure') execute function duly_keep_dead_letter();
create trigger attempt_is_bounded after insert on attempt
    for each row when (new.fence % 10 = 0 and new.fence > 30) execute function duly_bound_attempts();
drop index idempotency_key_by_task;
"""


def _drop_checks(connection: sa.Connection) -> None:
    """In a month they would refuse what the release before writes."""
    connection.exec_driver_sql("rollback")
    for statement in NO_CHECKS:
        connection.exec_driver_sql(statement)
    connection.exec_driver_sql("commit")


def upgrade() -> None:
    context = op.get_context()
    try:
        with context.autocommit_block():
            for statement in BESIDE:
                op.execute(statement)
        op.execute(UPGRADE)
    except BaseException:
        with suppress(sa.exc.SQLAlchemyError):  # a connection that is gone; what went wrong is said below
            _drop_checks(op.get_bind())
        raise


def downgrade() -> None:
    op.execute(DOWNGRADE)
