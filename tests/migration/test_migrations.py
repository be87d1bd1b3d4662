"""The schema: safe to bring up from many processes, closed to nonsense."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest
from structlog.testing import capture_logs

from duly_core.errors import SettingsError, StoreUnavailableError
from duly_core.postgres.schema.migrate import migrate
from duly_core.postgres.schema.steps import NEWEST
from duly_core.tasks.lifecycle import Status
from duly_core.upkeep.partitions import first_id
from duly_wire.ids import new_task_id
from tests.fixtures.invariants import add_invariants
from tests.fixtures.rows import ATTEMPT, ENDED, FAILED, TASK, insert


@pytest.fixture
def empty_dsn(postgres_server):
    """A database that no migration has touched."""
    name = f"duly_test_{uuid4().hex[:12]}"
    postgres_server._create(name, "template1")
    yield postgres_server.dsn_of(name)
    postgres_server.drop(name)


def schema_of(dsn):
    """Everything that can be told of a schema: columns, constraints, indexes, functions, types, storage."""
    queries = (
        """select attrelid::regclass::text, attname, format_type(atttypid, atttypmod), attnotnull
            from pg_attribute join pg_class on pg_class.oid = attrelid
            where relnamespace = 'public'::regnamespace and attnum > 0""",
        "select table_name, column_name, column_default from information_schema.columns",
        "select conrelid::regclass::text, conname, pg_get_constraintdef(oid) from pg_constraint",
        "select indexname, indexdef from pg_indexes where schemaname = 'public'",
        "select proname, prosrc, provolatile from pg_proc where pronamespace = 'public'::regnamespace",
        "select typname, typtype from pg_type where typnamespace = 'public'::regnamespace",
        "select relname, relpersistence, reloptions::text from pg_class where relnamespace = 'public'::regnamespace",
    )
    with psycopg.connect(dsn) as connection:
        return [sorted(map(repr, connection.execute(query).fetchall())) for query in queries]


def revision_of(dsn):
    with psycopg.connect(dsn) as connection:
        return connection.execute("select version_num from alembic_version").fetchall()


def test_the_store_spells_every_status_as_the_lifecycle_does(dsn):
    with psycopg.connect(dsn) as connection:
        (labels,) = connection.execute("select enum_range(null::task_status)::text[]").fetchone()

    assert labels == [str(status) for status in Status]


def test_migrating_twice_changes_nothing(empty_dsn):
    migrate(empty_dsn)
    first = schema_of(empty_dsn)

    migrate(empty_dsn)

    assert schema_of(empty_dsn) == first


def test_processes_that_migrate_at_once_all_succeed(empty_dsn, dsn):
    with ThreadPoolExecutor(4) as processes:
        list(processes.map(migrate, [empty_dsn] * 4))
    add_invariants(empty_dsn)

    assert schema_of(empty_dsn) == schema_of(dsn)


def test_a_schema_newer_than_this_release_is_left_alone(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("update alembic_version set version_num = '9999'")
    before = schema_of(dsn)

    with capture_logs() as logs:
        migrate(dsn)

    assert (revision_of(dsn), schema_of(dsn)) == ([("9999",)], before)
    assert [line["schema"] for line in logs] == ["9999"]


def test_a_schema_from_before_the_first_release_is_refused_and_left_alone(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("update alembic_version set version_num = '0008'")
    before = schema_of(dsn)

    with pytest.raises(SettingsError, match="made before the first release: make a new database"):
        migrate(dsn)

    assert (revision_of(dsn), schema_of(dsn)) == ([("0008",)], before)


def test_every_dead_letter_is_found_whichever_statement_wrote_it(dsn):
    inserted, updated = (row | {"task_id": str(uuid4())} for row in (FAILED, TASK))
    with psycopg.connect(dsn, autocommit=True) as connection:
        for row in (inserted, updated, ENDED | {"task_id": str(uuid4())}):
            insert(connection, "task", row)

        connection.execute(
            "update task set status = 'fatal_failure', finished_at = now(), fence = 1, failures = 0, crashes = 0, "
            "failure_kind = 1, failed_at = now() where status is null"
        )

        found = connection.execute("select task_id::text, lambda from dead_letter").fetchall()
    assert sorted(found) == sorted((row["task_id"], "mail.send") for row in (inserted, updated))


def test_the_first_partition_takes_the_ids_of_today_and_the_rest_those_of_a_clock_that_is_far_ahead(dsn):
    today, beyond = new_task_id(), first_id(datetime.now(UTC) + timedelta(days=900))
    with psycopg.connect(dsn, autocommit=True) as connection:
        for task_id in (today, beyond):
            insert(connection, "task", TASK | {"task_id": str(task_id)})
            insert(connection, "attempt", ATTEMPT | {"task_id": str(task_id)})

        tasks = connection.execute("select task_id, tableoid::regclass::text from task").fetchall()
        attempts = connection.execute("select task_id, tableoid::regclass::text from attempt").fetchall()

    assert dict(tasks) == {today: "task_first", beyond: "task_rest"}
    assert dict(attempts) == {today: "attempt_first", beyond: "attempt_rest"}


def test_a_migration_takes_its_time_whatever_the_role_is_set_to(empty_dsn):
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        for name, value in (("statement_timeout", "8s"), ("enable_seqscan", "off")):
            connection.execute(f"alter database {connection.info.dbname} set {name} = '{value}'".encode())
        connection.execute(
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

    migrate(empty_dsn)

    assert revision_of(empty_dsn) == [(NEWEST,)]


def test_a_database_that_is_away_is_said_to_be_away_without_the_password():
    with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1:1/duly") as caught:
        migrate("postgresql://duly:hidden@127.0.0.1:1/duly")

    assert "hidden" not in str(caught.value)


def test_an_address_that_is_none_is_said_to_be_none_without_repeating_it():
    with pytest.raises(SettingsError, match=r"store\.dsn is not a Postgres address") as caught:
        migrate("postgresql//duly:hidden@")

    assert "hidden" not in str(caught.value)
