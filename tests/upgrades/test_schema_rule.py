"""The rule: the base release works on the schema of this one. Its statements prepare, and nothing that it uses is gone."""

import re
from collections.abc import Iterable

import psycopg

from duly_core.postgres.rights import OWNERS_FUNCTIONS, TABLES
from duly_core.postgres.schema.comparison import compare
from duly_core.postgres.schema.definition import schema_sql
from duly_core.postgres.schema.digest import digest, plain
from duly_core.postgres.schema.migrate import migrate
from duly_core.postgres.schema.steps import FIRST, NEWEST, STEPS, Kind, sql_at
from duly_core.postgres.statements import load
from duly_local.all_settings import sections
from tests.fixtures.base_release import PROMISES

DESCRIBE = load("postgres/catalogue.sql")["describe_schema"]

ACCEPTED = {
    "constraint attempt.attempt_failure_has_a_reason is another": "it takes all that it took before, `handed_over` and `waited`",
    "function duly_schedule(lambda text, payload json, raw_payload bytea, priority integer, collection text, scheduled_at timestamp with "
    "time zone, delay interval, expires_at timestamp with time zone, idempotency_key text, task_id uuid, fair_key text) is gone": "another "
    "takes its place in one transaction: it takes all that this took, what is new may be left out, and grants stay",
    "constraint host.host_pool_check is new": "its column is new, and the base release leaves the default",
    "constraint lambda.lambda_batch_size_check is new": "the same",
    "constraint lambda.lambda_batch_wait_check is new": "the same",
    "constraint time_table.time_table_fair_key_check is new": "the same",
}
"""Changes that the rule would refuse, and why the base release works with each."""

MANDATORY = """
select attrelid::regclass::text || '.' || attname from pg_attribute join pg_class on pg_class.oid = attrelid
where relnamespace = 'public'::regnamespace and attnum > 0 and attnotnull and not atthasdef and attidentity = ''
"""

UNTYPED = {
    "explain/explain.sql: serving_hosts",
    "upkeep/retention.sql: expired_graphs",
    "upkeep/retention.sql: expired_keys",
    "upkeep/retention.sql: survivors",
    "upkeep/retention.sql: thin",
}
"""Statements that only prepare with the types of their parameters, which psycopg sends."""

_PLACEHOLDER = re.compile(r"(?<!%)%(?:\((\w+)\))?[sbt]")


def described(connection: psycopg.Connection, schema: str = "public") -> dict[tuple[str, str], str]:
    """What Postgres says of what the base release made."""
    names = {f"{kind}s": made for kind, made in PROMISES["names"].items()} | {"schema": schema}
    rows = connection.execute(DESCRIBE.sql, names)
    return {(kind, name): plain(definition or "") for kind, name, definition in rows}


def broken(before: dict[tuple[str, str], str], connection: psycopg.Connection) -> Iterable[str]:
    """Yield what of `before` an older release would miss, or stumble over."""
    after = described(connection)
    mandatory = {name for (name,) in connection.execute(MANDATORY)}
    for (kind, name), definition in before.items():
        now = after.get((kind, name))
        if now is None and kind in ("table", "column", "function", "type", "trigger", "unique index"):
            yield f"{kind} {name} is gone"
        elif now is None or now == definition:
            continue
        elif kind == "column" and now.replace(" not null", "", 1) != definition.replace(" not null", "", 1):
            yield f"column {name} is {now}, and was {definition}"
        elif kind == "column" and " not null" in now:
            yield f"column {name} must not be null"
        elif kind == "type" and not f"{now}, ".startswith(f"{definition}, "):
            yield f"type {name} has lost or moved values"
        elif kind == "table" and now.split()[:2] != definition.split()[:2]:
            yield f"table {name} is of another kind"
        elif kind == "constraint":
            yield f"constraint {name} is another"
        elif kind == "function" and _promised(now) != _promised(definition):
            yield f"function {name} answers otherwise"
    for kind, name in after.keys() - before.keys():
        definition = after[kind, name]
        table = name.partition(".")[0]
        if ("table", table) not in before:
            continue
        if kind == "column" and name in mandatory:
            yield f"column {name} must not be null, and has no default"
        elif kind in ("unique index", "trigger") or (
            kind == "constraint" and not definition.startswith("NOT NULL")
        ):
            yield f"{kind} {name} is new"


def _promised(function: str) -> str:
    """Return what a function promises its callers: the language that its text is in is no part of it."""
    return re.sub(r"LANGUAGE \w+", "", function.partition("AS $")[0])


def numbered(sql: str) -> str:
    """Return a statement as Postgres gets it, with numbers for its parameters."""
    places: dict[str, str] = {}

    def place(use: re.Match[str]) -> str:
        return places.setdefault(use[1] or f"at {use.start()}", f"${len(places) + 1}")

    return _PLACEHOLDER.sub(place, sql).replace("%%", "%")


def unprepared(connection: psycopg.Connection, statements: dict[str, str]) -> dict[str, str]:
    """Prepare statements; the first line of what Postgres says of those that it refuses."""
    results = {
        name: connection.pgconn.prepare(b"", numbered(sql).encode()) for name, sql in statements.items()
    }
    return {
        name: result.error_message.decode().partition("\n")[0]
        for name, result in results.items()
        if result.error_message
    }


def test_the_base_with_all_steps_is_the_schema_that_the_files_of_the_rooms_make(base_dsn):
    migrated = migrate(base_dsn, contract=True)

    assert [step.version for step in migrated.done] == [step.version for step in STEPS]
    assert compare(base_dsn) == []


def test_the_base_release_works_on_the_schema_after_all_steps_but_those_that_wait_for_its_end(base_dsn):
    with psycopg.connect(base_dsn, autocommit=True) as connection:
        before = described(connection)
        at_first = unprepared(connection, PROMISES["statements"])

        migrate(base_dsn)
        found = set(broken(before, connection))
        later = unprepared(connection, PROMISES["statements"])

    assert at_first.keys() == UNTYPED
    assert later.keys() == UNTYPED
    assert found == ACCEPTED.keys()


BREAKING = {
    "alter table task_assoc drop column priority": "column task_assoc.priority is gone",
    "alter table host rename column draining to drains": "column host.draining is gone",
    "alter table service_instance alter column service type varchar(9)": "column service_instance.service is character varying(9)",
    "alter table host alter column settings_read_at set not null": "column host.settings_read_at must not be null",
    "alter table host add column pool text not null": "column host.pool must not be null, and has no default",
    "alter table host add constraint few check (length(version) < 9)": "constraint host.few is new",
    "create unique index one_version on host (version)": "unique index host.one_version is new",
    "drop table former_setting": "table former_setting is gone",
    "drop function duly_tell(text[])": "function duly_tell(lambdas text[]) is gone",
    "alter type attempt_outcome rename value 'snoozed' to 'dozed'": "type attempt_outcome has lost or moved values",
}
"""What a release must not do to the base release's schema, and what the rule says of it."""
HARMLESS = (
    "alter table host add column pool text not null default ''",
    "alter table host add column note text",
    "create index host_by_version on host (version)",
    "alter type attempt_outcome add value 'odd'",
    "create table pool (name text primary key, size int not null)",
    "alter table host alter column draining drop not null",
)


def test_the_rule_finds_each_change_that_breaks_the_base_release_and_no_other(base_dsn):
    with psycopg.connect(base_dsn) as connection:
        before = described(connection)
        found = {}
        for change in (*BREAKING, *HARMLESS):
            with connection.transaction(force_rollback=True):
                connection.execute(change.encode())
                found[change] = [*broken(before, connection)]

    assert [change for change in HARMLESS if found[change]] == []
    for change, said in BREAKING.items():
        assert any(each.startswith(said) for each in found[change]), (change, found[change])


def test_statements_that_no_longer_prepare_are_found(base_dsn):
    with psycopg.connect(base_dsn, autocommit=True) as connection:
        connection.execute("alter table store_epoch drop column changed_at")
        refused = unprepared(connection, PROMISES["statements"])

    assert "server.sql: look_at_server" in {name.removeprefix("postgres/") for name in refused}


def test_each_role_keeps_the_rights_of_the_base_release():
    lost_rights = {
        (role, table): letters
        for role, tables in PROMISES["rights"].items()
        for table, letters in tables.items()
        if set(letters) - set(TABLES.get(role, {}).get(table, ""))
    }
    lost_functions = {
        role: names
        for role, names in PROMISES["functions"].items()
        if set(names) - set(OWNERS_FUNCTIONS.get(role, ()))
    }

    assert (lost_rights, lost_functions) == ({}, {})


def test_each_setting_of_the_base_release_is_known():
    known = {f"{section.SECTION}.{name}" for section in sections() for name in section.model_fields}

    assert set(PROMISES["settings"]) - known == set()


def test_a_schema_that_is_written_otherwise_has_another_version():
    """The base release takes a schema of its own version, and of another text, for another build's."""
    (base,) = sql_at(FIRST, "SCHEMA", ())
    is_as_before = digest([plain(base)]) == digest([plain(schema_sql("SCHEMA"))])

    assert is_as_before or NEWEST > FIRST


MEASURED = """
select relation::regclass::text, regexp_replace(mode, '([a-z])([A-Z])', '\\1 \\2', 'g')
from pg_locks
where pid = pg_backend_pid() and locktype = 'relation' and relation = any(%s::oid[])
"""
_LIGHT = {"access share lock", "row share lock", "row exclusive lock"}


def tables_of(connection: psycopg.Connection) -> dict[int, int]:
    """Each table with the file that it is in."""
    rows = connection.execute(
        "select oid::int8, pg_relation_filenode(oid)::int8 from pg_class "
        "where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')"
    )
    return dict(rows.fetchall())


def cost_of(connection: psycopg.Connection, sql: str) -> tuple[set[str], bool]:
    """Run a step in a transaction; its locks on tables that were there, and whether it has rewritten one of them."""
    before = tables_of(connection)
    with connection.transaction():
        connection.execute(sql.encode())
        locks = {
            f"{table} {mode.lower().removesuffix(' lock')}"
            for table, mode in connection.execute(MEASURED, [[*before]])
            if mode.lower() not in _LIGHT
        }
        after = tables_of(connection)
    return locks, any(after.get(table, file) != file for table, file in before.items())


def strongest(locks: Iterable[str]) -> set[str]:
    """Of locks on one table the strongest, and of a partitioned table not those of its partitions."""
    exclusive = {
        lock.removesuffix(" access exclusive") for lock in locks if lock.endswith(" access exclusive")
    }
    return {
        lock
        for lock in locks
        if lock.endswith(" access exclusive") or lock.split(" ", 1)[0] not in exclusive
        if not lock.startswith(("task_first", "task_rest", "attempt_first", "attempt_rest"))
    }


def test_each_step_takes_the_locks_that_it_says_and_rewrites_no_table(base_dsn):
    wrong = {}
    with psycopg.connect(base_dsn, autocommit=True) as connection:
        for step in STEPS:
            if step.kind in (Kind.INDEX, Kind.BACKFILL):
                migrate(base_dsn, steps=[each for each in STEPS if each.version <= step.version])
                continue
            locks, is_rewritten = cost_of(connection, step.sql("public"))
            connection.execute("update alembic_version set version_num = %s", [step.version])
            if strongest(locks) != {*map(str, step.locks)} or is_rewritten:
                wrong[step.version] = (strongest(locks), is_rewritten)

    assert wrong == {}


def test_a_step_that_rewrites_a_table_is_found(base_dsn):
    with psycopg.connect(base_dsn, autocommit=True) as connection:
        locks, is_rewritten = cost_of(
            connection, "alter table host add column token uuid default gen_random_uuid()"
        )

    assert is_rewritten
    assert "host access exclusive" in locks


def test_each_step_has_a_number_of_its_own():
    versions = [step.version for step in STEPS]

    assert versions == sorted(set(versions))
