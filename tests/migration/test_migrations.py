"""The schema: the same by migrations and by tables, safe to bring up from many processes, closed to nonsense."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg import sql
from structlog.testing import capture_logs

import duly_core.store.migrate as migrate_module
from duly_core.errors import SettingsError, StoreUnavailableError
from duly_core.lifecycle import LIVE, Status
from duly_core.store.dsn import sqlalchemy_url
from duly_core.store.migrate import migrate
from duly_core.store.tables import metadata

SCRIPTS = Path(migrate_module.__file__).parent / "migrations"


@pytest.fixture
def empty_dsn(postgres_server):
    """A database that no migration has touched."""
    name = f"duly_test_{uuid4().hex[:12]}"
    postgres_server._create(name, "template1")
    yield postgres_server.dsn_of(name)
    postgres_server.drop(name)


@pytest.fixture
def alembic(dsn):
    """Alembic's own connection to a migrated database, and its configuration."""
    engine = sa.create_engine(sqlalchemy_url(dsn), poolclass=sa.NullPool)
    with engine.connect() as connection:
        config = Config()
        config.set_main_option("script_location", str(SCRIPTS))
        config.attributes["connection"] = connection
        yield connection, config
    engine.dispose()


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


def test_tables_and_migrations_describe_the_same_database(alembic):
    connection, _ = alembic
    context = MigrationContext.configure(
        connection, opts={"compare_type": True, "compare_server_default": False, "target_metadata": metadata}
    )

    assert compare_metadata(context, metadata) == []


def test_partial_indexes_are_the_same_by_tables_and_by_migrations(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create schema by_tables")
        migrated = index_definitions(connection, "public")
        engine = sa.create_engine(
            sqlalchemy_url(dsn), connect_args={"options": "-c search_path=by_tables"}, poolclass=sa.NullPool
        )
        metadata.create_all(engine)
        engine.dispose()

        assert index_definitions(connection, "by_tables") == migrated


def index_definitions(connection, schema):
    query = "select indexdef from pg_indexes where schemaname = %s and indexname not like 'alembic%%'"
    return sorted(
        definition.replace(f"{schema}.", "")
        for (definition,) in connection.execute(query, [schema]).fetchall()
    )


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

    assert schema_of(empty_dsn) == schema_of(dsn)


def test_a_schema_newer_than_this_release_is_left_alone(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("update alembic_version set version_num = '9999'")
    before = schema_of(dsn)

    with capture_logs() as logs:
        migrate(dsn)

    assert (revision_of(dsn), schema_of(dsn)) == ([("9999",)], before)
    assert [line["schema"] for line in logs] == ["9999"]


def test_every_migration_can_be_taken_back_and_made_again(alembic, dsn):
    connection, config = alembic
    before = schema_of(dsn)

    command.downgrade(config, "base")
    connection.commit()
    assert revision_of(dsn) == []
    assert "task_assoc" not in repr(schema_of(dsn))

    migrate(dsn)
    assert schema_of(dsn) == before


def test_migrations_are_one_line_without_branches():
    scripts = ScriptDirectory(str(SCRIPTS))

    assert len(scripts.get_heads()) == len(scripts.get_bases()) == 1


def test_a_database_that_is_away_is_said_to_be_away_without_the_password():
    with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1:1/duly") as caught:
        migrate("postgresql://duly:hidden@127.0.0.1:1/duly")

    assert "hidden" not in str(caught.value)


def test_an_address_that_is_none_is_said_to_be_none_without_repeating_it():
    with pytest.raises(SettingsError, match=r"store\.dsn is no Postgres address") as caught:
        migrate("postgresql//duly:hidden@")

    assert "hidden" not in str(caught.value)


# ---- rows that cannot be -----------------------------------------------------------------------------------

LAMBDA = {
    "name": "mail.send",
    "owner": "",
    "version": "",
    "max_attempts": 10,
    "max_crashes": 3,
    "max_runtime": "1 h",
    "backoff_initial": "1 s",
    "backoff_factor": 2.0,
    "backoff_max": "1 m",
    "payload_limit": 1,
    "registered_at": "2026-01-01",
    "updated_at": "2026-01-01",
}
TASK = {
    "task_id": str(uuid4()),
    "lambda": "mail.send",
    "collection": "",
    "priority": 3,
    "payload_encoding": 1,
    "payload": b"{}",
    "created_at": "2026-01-01",
    "scheduled_at": "2026-01-01",
}
ENDED = TASK | {"status": "success", "finished_at": "2026-01-01", "fence": 1, "failures": 0, "crashes": 0}
FAILED = ENDED | {"status": "fatal_failure", "failure_kind": 1, "failed_at": "2026-01-01"}
ASSOC = {
    "task_id": str(uuid4()),
    "lambda": "mail.send",
    "priority": 3,
    "status": "new",
    "next_trigger_at": "2026-01-01",
    "due_at": "2026-01-01",
}
HELD = ASSOC | {"status": "claimed", "token": str(uuid4()), "holder": "host", "fence": 1}
KEY = {"lambda": "mail.send", "key": "k", "task_id": str(uuid4()), "created_at": "2026-01-01"}
MESSAGE = {"lambda": "l", "priority": 3, "reference_count": 1, "visible_at": "2026-01-01", "body": b""}
LARGE = b"x" * (1024 * 1024 + 1)

IMPOSSIBLE = [
    *(
        ("lambda", LAMBDA | {"name": name})
        for name in ("", "Mail", "mail send", ".mail", "m" * 129, "mail\n", "é")
    ),
    *(("lambda", LAMBDA | {name: 0}) for name in ("max_attempts", "max_crashes")),
    ("lambda", LAMBDA | {"max_runtime": "0"}),
    ("lambda", LAMBDA | {"backoff_initial": "-1 s"}),
    ("lambda", LAMBDA | {"backoff_factor": 0.5}),
    ("lambda", LAMBDA | {"backoff_max": "0.5 s"}),
    *(("lambda", LAMBDA | {"payload_limit": limit}) for limit in (-1, 1024 * 1024 + 1)),
    *(("task", TASK | {"priority": priority}) for priority in (0, 5)),
    *(("task", TASK | {"payload_encoding": encoding}) for encoding in (0, 3)),
    ("task", TASK | {"payload": LARGE}),
    *(("task", TASK | {"scheduled_at": moment}) for moment in ("infinity", "-infinity")),
    ("task", TASK | {"expires_at": "infinity"}),
    *(("task", ENDED | {"status": str(status)}) for status in sorted(LIVE)),
    *(("task", ENDED | {name: None}) for name in ("finished_at", "fence", "failures", "crashes", "status")),
    ("task", TASK | {"fence": 1}),
    ("task", TASK | {"result": b"1"}),
    ("task", FAILED | {"result": b"1"}),
    ("task", ENDED | {"result": LARGE}),
    ("task", ENDED | {"result": b"1", "result_encoding": 3}),
    ("task", FAILED | {"failure_kind": None, "failed_at": None}),
    ("task", FAILED | {"failed_at": None}),
    ("task", FAILED | {"failure_message": "x" * 4097}),
    *(("task_assoc", ASSOC | {"status": str(status)}) for status in sorted(set(Status) - LIVE)),
    *(("task_assoc", ASSOC | {"next_trigger_at": moment}) for moment in ("infinity", "-infinity")),
    ("task_assoc", ASSOC | {"token": str(uuid4()), "holder": "host"}),
    ("task_assoc", HELD | {"token": None, "holder": None}),
    ("task_assoc", HELD | {"holder": None}),
    ("task_assoc", ASSOC | {"holder": "host"}),
    ("task_assoc", ASSOC | {"failures": 1}),
    ("task_assoc", HELD | {"failures": 1, "crashes": 1}),
    *(("task_assoc", ASSOC | {name: -1}) for name in ("fence", "failures", "crashes")),
    *(("task_assoc", HELD | {"progress": progress}) for progress in (-0.1, 1.1, "NaN")),
    ("task_assoc", HELD | {"progress_note": "x" * 1025}),
    ("task_assoc", ASSOC | {"priority": 0}),
    *(("idempotency_key", KEY | {"key": key}) for key in ("", "k" * 256)),
    *(("queue_message", MESSAGE | {"reference_count": count}) for count in (0, 101)),
]


def insert(connection, table, row):
    names = sql.SQL(", ").join(map(sql.Identifier, row))
    statement = sql.SQL("insert into {} ({}) values ({})").format(
        sql.Identifier(table), names, sql.SQL(", ").join([sql.Placeholder()] * len(row))
    )
    connection.execute(statement, list(row.values()))


def is_refused(connection, table, row):
    try:
        insert(connection, table, row)
    except psycopg.errors.CheckViolation:
        return True
    return False


def test_the_store_refuses_rows_that_cannot_be(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        taken = [(table, row) for table, row in IMPOSSIBLE if not is_refused(connection, table, row)]

    assert taken == []


def test_the_rows_that_those_differ_from_are_taken(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        insert(connection, "lambda", LAMBDA)
        for row in (TASK, ENDED, FAILED):
            insert(connection, "task", row | {"task_id": str(uuid4())})
        for row in (ASSOC, HELD):
            insert(connection, "task_assoc", row | {"task_id": str(uuid4())})
        insert(connection, "idempotency_key", KEY)
        insert(connection, "queue_message", MESSAGE)
