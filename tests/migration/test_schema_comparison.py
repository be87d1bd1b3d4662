"""A schema is compared by what Postgres says of it, and not by its number alone."""

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from typer.testing import CliRunner

from duly_cli.__main__ import app
from duly_core.errors import SettingsError
from duly_core.postgres.schema.comparison import compare, stamp_of
from duly_core.postgres.schema.digest import Stamp, plain, source_digest
from duly_core.postgres.schema.migrate import migrate
from duly_core.postgres.schema.steps import NEWEST
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.start import ready_when_there


@pytest.fixture
def fresh(postgres_server) -> Iterator[str]:
    """A database that `migrate` alone has made: tests' own have further constraints."""
    name = f"duly_test_{uuid4().hex[:12]}"
    postgres_server._create(name, "template1")
    dsn = postgres_server.dsn_of(name)
    migrate(dsn)
    yield dsn
    postgres_server.drop(name)


def change(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def test_a_schema_that_was_made_just_now_is_this_releases(fresh):
    with psycopg.connect(fresh) as connection:
        stamp = stamp_of(connection)

    assert compare(fresh) == []
    assert stamp is not None
    assert stamp.source == source_digest()


def test_on_every_postgres_a_schema_is_equal_to_itself(each_postgres):
    name = f"duly_test_{uuid4().hex[:12]}"
    each_postgres._create(name, "template1")
    dsn = each_postgres.dsn_of(name)
    migrate(dsn)

    assert compare(dsn) == []
    each_postgres.drop(name)


@pytest.mark.parametrize("schema", ["duly", "My Order"])
def test_a_schema_of_another_name_is_equal_to_itself(fresh, schema):
    database = psycopg.conninfo.conninfo_to_dict(fresh)["dbname"]
    change(fresh, f'drop schema public cascade; create schema "{schema}"')
    change(fresh, f"alter database {database} set search_path = '{schema}'")
    migrate(fresh)

    assert compare(fresh) == []


CHANGES = {
    "drop table former_setting": "table former_setting is missing",
    "alter table task_assoc set (fillfactor = 77)": "table task_assoc differs",
    "alter table attempt drop column claimed_at": "column attempt.claimed_at is missing",
    "alter table setting alter column name set default 'x'": "column setting.name differs",
    "alter table task alter column lambda drop not null": "column task.lambda differs",
    "alter table task add column old int": "column task.old is not this release's",
    "alter table lambda add constraint odd check (max_attempts < 50)": "constraint lambda.odd is not this release's",
    "drop index task_by_lambda": "index task.task_by_lambda is missing",
    "create unique index odd on lambda (name, owner)": "unique index lambda.odd is not this release's",
    "drop trigger attempt_is_bounded on attempt": "trigger attempt.attempt_is_bounded is missing",
    "create or replace function duly_tell(lambdas text[]) returns void language sql strict as 'select 1'": (
        "function duly_tell(lambdas text[]) differs"
    ),
    "create function duly_tell(lambdas int[]) returns int language sql as 'select 1'": (
        "function duly_tell(lambdas integer[]) is not this release's"
    ),
    "alter type attempt_outcome add value 'odd'": "type attempt_outcome differs",
}
"""What is done to a schema, and how the comparison tells it."""
NO_CHANGES = (
    "create index of_an_operator on lambda (owner)",
    "create table of_a_neighbour (id int)",
    "drop table task_first, attempt_first",  # as retention does
)


def test_each_difference_is_told_and_what_is_none_of_dulys_is_not(fresh):
    for each in NO_CHANGES:
        change(fresh, each)
    unchanged = compare(fresh)
    migrate(fresh)

    for each in CHANGES:
        change(fresh, each)
    told = compare(fresh)

    assert unchanged == []
    assert sorted(told) == sorted(CHANGES.values())
    with pytest.raises(
        SettingsError, match=r"table former_setting is missing, .*, and 8 more\. .*Make a new database"
    ):
        migrate(fresh)


async def test_what_another_build_made_under_this_releases_number_is_not_taken_for_it(fresh):
    change(fresh, "alter table attempt drop column claimed_at")
    change(fresh, f"comment on table alembic_version is '{Stamp('0' * 16, '1' * 16)}'")
    stop = asyncio.Event()

    with pytest.raises(
        SettingsError, match=f"says that it is {NEWEST}, but not this build made it: run `duly migrate`"
    ):
        await ready_when_there(StoreSettings(dsn=fresh), stop)
    with pytest.raises(
        SettingsError, match=r"is not this release's: column attempt\.claimed_at is missing\."
    ):
        await ready_when_there(StoreSettings(dsn=fresh, migrate=True), stop)


async def test_a_schema_that_is_equal_is_stamped_whoever_made_it(fresh):
    for comment in ("null", f"'{Stamp('0' * 16, '1' * 16)}'"):
        change(fresh, f"comment on table alembic_version is {comment}")

        assert await ready_when_there(StoreSettings(dsn=fresh, migrate=True), asyncio.Event())

        assert await ready_when_there(StoreSettings(dsn=fresh), asyncio.Event())


def test_who_may_not_make_a_schema_is_told_what_to_grant(fresh):
    role = f"duly_few_{uuid4().hex[:8]}"
    change(fresh, f"create role {role} login password 'few'; grant select on alembic_version to {role}")
    few = psycopg.conninfo.make_conninfo(fresh, user=role, password="few")

    with pytest.raises(SettingsError, match="grant create on database"):
        compare(few)
    change(fresh, f"drop owned by {role}; drop role {role}")


def test_the_command_changes_nothing_and_its_exit_code_says_what_to_do(fresh):
    same = CliRunner().invoke(app, ["migrate", "--check", "--dsn", fresh])
    change(fresh, "alter table attempt drop column claimed_at; drop table former_setting")
    other = CliRunner().invoke(app, ["migrate", "--check", "--dsn", fresh])
    change(fresh, "update alembic_version set version_num = '0008'")
    too_old = CliRunner().invoke(app, ["migrate", "--check", "--dsn", fresh])
    change(fresh, "update alembic_version set version_num = '9999'")
    newer = CliRunner().invoke(app, ["migrate", "--check", "--dsn", fresh])
    change(fresh, "drop table alembic_version")
    none = CliRunner().invoke(app, ["migrate", "--check", "--dsn", fresh])
    away = CliRunner().invoke(app, ["migrate", "--check", "--dsn", "postgresql://duly@127.0.0.1:1/duly"])

    assert (same.exit_code, same.stdout) == (0, f"the store's schema is {NEWEST}, as this release needs\n")
    assert (other.exit_code, other.stdout.splitlines()[:2]) == (
        2,
        ["table former_setting is missing", "column attempt.claimed_at is missing"],
    )
    assert (too_old.exit_code, "from before the first release" in too_old.stdout) == (2, True)
    assert (newer.exit_code, "this release works on it" in newer.stdout) == (0, True)
    assert (none.exit_code, "has no schema of Duly" in none.stdout) == (1, True)
    assert (away.exit_code, "cannot be reached" in away.stderr) == (2, True)


def test_comments_and_spaces_are_no_other_schema():
    assert plain("create table a (  -- one\n  b int)") == plain("-- head\ncreate table a ( b int)")
