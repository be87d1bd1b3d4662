"""From one table to partitions, with tasks in it: nothing is rewritten or lost, and the release before still writes."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from alembic import command

from duly.ids import new_task_id
from duly_core.store.migrate import migrate
from duly_core.store.partitions import first_id
from tests.fixtures.rows import ATTEMPT, ENDED, FAILED, TASK, insert
from tests.migration.test_migrations import alembic  # noqa: F401 (a fixture)

BEYOND = UUID(int=first_id(datetime.now(UTC) + timedelta(days=900)).int + 1)
# what the release before does with a task: schedule, finish, fail
RELEASE_BEFORE = """
with entity as (
    insert into task (task_id, lambda, collection, priority, payload_encoding, payload, created_at, scheduled_at)
    values (%(id)s, 'mail.send', '', 3, 1, '{}', now(), now())
    on conflict (task_id) do nothing
    returning task_id, lambda, priority, scheduled_at
)
insert into task_assoc (task_id, lambda, priority, status, next_trigger_at, due_at, fence, token, holder)
select task_id, lambda, priority, 'claimed', now(), now(), 1, task_id, 'host' from entity;
with failed as (
    update task_assoc set fence = 2 where task_id = %(id)s returning task_id, fence
), recorded as (
    insert into attempt (task_id, fence, attempt, outcome, holder, ended_at, failure_kind)
    select task_id, 1, 1, 'crashed', 'host', now(), 4 from failed
    on conflict do nothing
)
update task set failure_kind = 4, failed_at = now() from failed where task.task_id = failed.task_id and task.status is null;
with ended as (
    delete from task_assoc where task_id = %(id)s and token = %(id)s returning task_id, fence, failures, crashes
)
update task
set status = 'success', finished_at = now(), fence = ended.fence, failures = ended.failures, crashes = ended.crashes
from ended
where task.task_id = ended.task_id and task.status is null
"""


@pytest.fixture
def before(alembic, dsn):  # noqa: F811
    """The database as the release before has it."""
    connection, config = alembic
    command.downgrade(config, "0006")
    connection.commit()
    with psycopg.connect(dsn, autocommit=True) as opened:
        yield opened


def file_of(connection, table):
    return connection.execute("select pg_relation_filenode(%s::regclass)", [table]).fetchone()


def where_they_are(connection):
    rows = connection.execute("select task_id, tableoid::regclass::text from task").fetchall()
    return dict(rows)


def test_tasks_that_live_through_the_upgrade_are_where_they_were(before, dsn):
    alive, ended, dead = new_task_id(), new_task_id(), new_task_id()
    for row, task_id in ((TASK, alive), (ENDED, ended), (FAILED, dead)):
        insert(before, "task", row | {"task_id": str(task_id)})
    insert(before, "attempt", ATTEMPT | {"task_id": str(dead)})
    files = file_of(before, "task"), file_of(before, "attempt")

    migrate(dsn)

    assert (file_of(before, "task_first"), file_of(before, "attempt_first")) == files
    assert where_they_are(before) == dict.fromkeys((alive, ended, dead), "task_first")
    assert before.execute("select task_id from dead_letter").fetchall() == [(dead,)]


def test_an_id_of_a_clock_that_is_far_ahead_does_not_stand_in_the_way(before, dsn):
    today = new_task_id()
    for task_id in (today, BEYOND):
        insert(before, "task", TASK | {"task_id": str(task_id)})
        insert(before, "attempt", ATTEMPT | {"task_id": str(task_id)})

    migrate(dsn)

    assert where_they_are(before) == {today: "task_first", BEYOND: "task_rest"}
    attempts = before.execute("select tableoid::regclass::text from attempt order by task_id").fetchall()
    assert attempts == [("attempt_first",), ("attempt_rest",)]


def test_an_upgrade_that_was_broken_off_goes_on(before, dsn):
    check = f"check (task_id < '{BEYOND}') not valid"
    before.execute(f"alter table task add constraint task_is_in_bounds {check}")

    migrate(dsn)

    left = before.execute("select conname from pg_constraint where conname like '%in_bounds'").fetchall()
    assert left == []


@pytest.fixture
def large(before):
    """Tables that are too large to be read under a lock."""
    before.execute("alter table task set (fillfactor = 10)")
    before.execute(
        """
        insert into task (task_id, lambda, collection, priority, payload_encoding, payload, created_at, scheduled_at)
        select (lpad(to_hex(n), 12, '0') || repeat('0', 20))::uuid, 'mail.send', '', 3, 1, repeat('x', 500)::bytea, now(), now()
        from generate_series(1, 3000) as n
        """
    )


def checks_left(connection):
    return connection.execute("select conname from pg_constraint where conname like '%in_bounds'").fetchall()


def test_a_large_table_becomes_a_partition_that_takes_ids_for_a_month(before, large, dsn):
    migrate(dsn)

    (bounds,) = before.execute(
        "select pg_get_expr(relpartbound, oid) from pg_class where relname = 'task_first'"
    ).fetchone()
    assert UUID(bounds.split("'")[1]) > first_id(datetime.now(UTC) + timedelta(days=29))
    assert checks_left(before) == []


def test_an_upgrade_that_fails_leaves_nothing_that_the_release_before_minds(before, large, dsn):
    before.execute("create table attempt_rest ()")  # in the way of the upgrade's own

    with pytest.raises(Exception, match="attempt_rest"):
        migrate(dsn)

    assert checks_left(before) == []
    assert before.execute("select version_num from alembic_version").fetchall() == [("0006",)]
    before.execute("drop table attempt_rest")
    migrate(dsn)


def test_the_upgrade_takes_its_time_whatever_the_role_is_set_to(before, dsn):
    for name, value in (("statement_timeout", "8s"), ("enable_seqscan", "off")):
        before.execute(f"alter database {before.info.dbname} set {name} = '{value}'".encode())
    before.execute(
        """
        create function look() returns event_trigger language plpgsql as '
        begin
            if current_setting(''statement_timeout'') || current_setting(''enable_seqscan'') <> ''0on'' then
                raise ''the role is told so'';
            end if;
        end';
        create event trigger looks on ddl_command_start execute function look();
        """
    )

    migrate(dsn)

    assert before.execute("select version_num from alembic_version").fetchall() == [("0008",)]


@pytest.mark.parametrize("task_id", [new_task_id(), BEYOND], ids=["of today", "of no partition"])
def test_the_release_before_schedules_fails_and_finishes_on_partitions(dsn, task_id):
    with psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute(RELEASE_BEFORE, {"id": task_id})

        row = connection.execute("select status, fence, failure_kind, lambda from task").fetchone()
        left = connection.execute("select count(*) from task_assoc").fetchone()

    assert (row, left) == (("success", 2, 4, "mail.send"), (0,))


def test_going_back_keeps_what_is_in_every_partition(alembic, dsn):  # noqa: F811
    connection, config = alembic
    ids = sorted((new_task_id(), BEYOND))
    with psycopg.connect(dsn, autocommit=True) as opened:
        for task_id in ids:
            insert(opened, "task", TASK | {"task_id": str(task_id)})

        command.downgrade(config, "0006")
        connection.commit()

        assert opened.execute("select task_id from task order by 1").fetchall() == [
            (task_id,) for task_id in ids
        ]
