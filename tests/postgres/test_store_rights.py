"""Roles with few rights: what `duly migrate --roles` makes, and services that work and start with them."""

import asyncio
import re
from datetime import timedelta

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from typer.testing import CliRunner

from duly_cli.__main__ import app
from duly_core.access.operator_without_server import make_operator
from duly_core.errors import SettingsError, StoreUnavailableError
from duly_core.postgres.client_role import grant
from duly_core.postgres.password import full_address, read_password
from duly_core.postgres.pool import Store
from duly_core.postgres.rights import FRONTEND, HSC, STORE_CONSUMER, TABLES
from duly_core.postgres.service_roles import make_roles
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.start import ready_when_there
from duly_core.postgres.statements import Statement
from duly_core.process.current_cell import current_cell
from duly_core.upkeep.partition_drop import STATEMENTS as RETENTION
from tests.fixtures.database import ask
from tests.fixtures.roles import dsn_as

ROLES = (FRONTEND, STORE_CONSUMER, HSC)
GRANTED = """
select grantee::regrole::text, relname::text, privilege_type
from pg_class, aclexplode(relacl)
where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and grantee <> relowner
order by 1, 2, 3
"""


def as_role(connection, role):
    connection.execute(f"set local role {role}")


@pytest.fixture
def restart(dsn):
    """Take rights from a role, for one test."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection.execute
    make_roles(dsn)


def test_roles_are_made_again_without_harm_and_correct_what_was_changed(dsn):
    before = ask(dsn, GRANTED)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "revoke insert on task from duly_frontend; grant all on setting to duly_hsc, public"
        )

    assert make_roles(dsn) == []

    assert ask(dsn, GRANTED) == before
    assert not any(grantee == "-" for grantee, *_ in before)


def test_the_roles_cannot_log_in_and_everybody_else_has_nothing(dsn):
    roles = ask(
        dsn, "select rolname, rolcanlogin, rolsuper, rolpassword from pg_authid where rolname like 'duly\\_%'"
    )
    functions = ask(
        dsn,
        "select proname from pg_proc where pronamespace = 'public'::regnamespace and proname like 'duly\\_%' "
        "and has_function_privilege('public', oid, 'execute')",
    )

    assert {role for role, *_ in roles} >= {*ROLES, "duly_client"}
    for role, *can in roles:
        if role in {*ROLES, "duly_client"}:
            assert can == [False, False, None]
    assert functions == []


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        (FRONTEND, "drop table task"),
        (HSC, "create table public.mine (id int)"),
        (HSC, "select from audit_event"),
        (HSC, "delete from audit_event"),
        (HSC, "update access_token set revoked_at = null"),
        (HSC, "insert into role_grant select * from role_grant"),
        (HSC, "select duly_drop_partition('first', null, null, null, 1)"),
        (HSC, "select duly_schedule('x')"),
        (FRONTEND, "delete from audit_event"),
        (FRONTEND, "update audit_event set actor = 'nobody'"),
        (FRONTEND, "select duly_forget_audit_events(now(), 1)"),
        (STORE_CONSUMER, "alter table task detach partition task_first"),
        (STORE_CONSUMER, "delete from audit_event"),
        (STORE_CONSUMER, "select from access_token"),
        (STORE_CONSUMER, "update lambda set max_attempts = 1"),
        ("duly_client", "select from task"),
    ],
)
def test_a_role_may_not_do_what_its_service_does_not(dsn, role, statement):
    with psycopg.connect(dsn) as connection:
        as_role(connection, role)

        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement)


@pytest.mark.parametrize("name", ["x", "20260101; drop table lambda", "20260101t1", "rest", 'first"'])
def test_a_partition_that_could_not_be_one_is_refused(dsn, name):
    with psycopg.connect(dsn) as connection:
        as_role(connection, STORE_CONSUMER)

        with pytest.raises(psycopg.errors.InvalidParameterValue):
            connection.execute("select duly_drop_partition(%s, null, null, null, 1)", [name])
        connection.rollback()
        as_role(connection, STORE_CONSUMER)
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            connection.execute("select duly_add_partition(%s, null, null)", [name])


def test_audit_events_of_the_last_day_stay_whoever_asks(dsn):
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "insert into audit_event (at, actor, peer, method, outcome, request, answer) "
            "values (now(), '', '', '', '', '', ''), (now() - interval '2 days', '', '', '', '', '', '')"
        )
        as_role(connection, STORE_CONSUMER)
        forgotten = connection.execute(
            "select duly_forget_audit_events(now() + interval '1 year', 10)"
        ).fetchone()

    assert forgotten == (1,)


@pytest.mark.parametrize("name", sorted(RETENTION))
def test_retention_has_the_rights_for_each_of_its_statements(dsn, name):
    text = re.sub(r"%\(\w+_before\)b", "now()", RETENTION[name].sql)
    text = re.sub(r"%\(\w+\)b", "null", text)
    text = text.replace("{task}", "task_first").replace("{attempt}", "attempt_first")
    with psycopg.connect(dsn) as connection:
        as_role(connection, STORE_CONSUMER)

        assert connection.execute("explain " + text).fetchall()


def test_every_table_of_a_role_is_there(dsn):
    known = {name for (name,) in ask(dsn, "select relname::text from pg_class where relkind in ('r', 'p')")}

    assert {table for rights in TABLES.values() for table in rights} <= known


@pytest.mark.parametrize("role", ROLES)
async def test_a_service_with_its_role_starts(dsn, role):
    assert await ready_when_there(StoreSettings(dsn=dsn_as(dsn, role)), asyncio.Event(), role)


async def test_a_service_with_the_role_of_another_is_told_what_it_lacks(dsn):
    with pytest.raises(SettingsError) as raised:
        await ready_when_there(StoreSettings(dsn=dsn_as(dsn, HSC)), asyncio.Event(), STORE_CONSUMER)

    assert "the user test_duly_hsc of the store at" in str(raised.value)
    assert "lacks rights: " in str(raised.value)
    assert "execute on duly_add_partition" in str(raised.value) or "more" in str(raised.value)
    assert 'grant duly_store_consumer to "test_duly_hsc"' in str(raised.value)


async def test_a_service_on_an_older_schema_names_the_command(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("update alembic_version set version_num = '0001'")
    try:
        with pytest.raises(
            SettingsError, match=r"older than this release, which needs \d+: run `duly migrate`"
        ):
            await ready_when_there(StoreSettings(dsn=dsn), asyncio.Event(), HSC)
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("drop schema public cascade; create schema public")


async def test_a_service_on_an_empty_database_names_the_command(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("drop schema public cascade; create schema public")

    with pytest.raises(SettingsError, match="has no schema of Duly: run `duly migrate`"):
        await ready_when_there(StoreSettings(dsn=dsn), asyncio.Event(), HSC)


async def test_no_schema_is_made_where_a_cell_has_lost_its_own(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("drop schema public cascade; create schema public")
    before = current_cell.set("b")
    try:
        with pytest.raises(SettingsError, match=r"cell b is at .*, and no schema .*`duly cells set b --at"):
            await ready_when_there(StoreSettings(dsn=dsn, migrate=True), asyncio.Event(), HSC)
    finally:
        current_cell.reset(before)


async def test_a_newer_schema_is_left_alone(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("update alembic_version set version_num = '9999'")

    assert await ready_when_there(StoreSettings(dsn=dsn, migrate=True), asyncio.Event(), HSC)

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("drop schema public cascade; create schema public")


def test_the_command_makes_the_roles(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("drop schema public cascade; create schema public")
    done = CliRunner().invoke(app, ["migrate", "--roles", "--dsn", dsn])

    assert done.exit_code == 0, done.output
    assert "roles: duly_frontend, duly_store_consumer, duly_hsc, duly_autoscaler, duly_client" in done.output


def test_a_user_who_may_not_make_roles_is_told_what_to_do(dsn):
    with pytest.raises(SettingsError, match="connect as the user who migrates"):
        make_roles(dsn_as(dsn, HSC))


@pytest.mark.parametrize(
    ("held", "command"),
    [
        ("select pg_advisory_lock(1685417083)", make_roles),
        ("begin; lock table access_version", lambda dsn: make_operator(dsn, "ann")),
        ("begin; lock table pg_authid in share mode", lambda dsn: grant(dsn, "test_nobody_yet")),
    ],
)
def test_an_administrators_command_waits_for_locks_no_longer_than_it_may(dsn, monkeypatch, held, command):
    monkeypatch.setattr("duly_core.postgres.admin_connection.LOCK_TIMEOUT", timedelta(milliseconds=50))

    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute(held)
        with pytest.raises(StoreUnavailableError, match=r"cannot be changed now: .*lock timeout"):
            command(dsn)


async def test_a_password_comes_from_a_file_and_a_new_one_counts_at_once(dsn, tmp_path):
    file = tmp_path / "password"
    file.write_text("first\n")
    settings = StoreSettings(dsn=dsn, password_file=str(file))

    first = read_password(settings)
    file.write_text("second")

    assert (first, read_password(settings)) == ("first", "second")
    assert "password=second" in full_address(settings)


async def test_a_service_connects_with_the_password_of_a_file(dsn, tmp_path):
    with_password = conninfo_to_dict(dsn_as(dsn, HSC))
    file = tmp_path / "password"
    file.write_text(with_password.pop("password"))
    settings = StoreSettings(dsn=make_conninfo(**with_password), password_file=str(file))

    async with Store(settings) as store:
        assert await store.run(Statement("who", "select current_user::text"), {}) == [("test_duly_hsc",)]


def test_a_password_comes_from_a_command():
    settings = StoreSettings(password_command=("printf", "se cret\n"))

    assert read_password(settings) == "se cret"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"password_command": ("false",)}, "false exited with 1"),
        ({"password_command": ("no-such-program",)}, "no-such-program cannot be started"),
        ({"password_command": ("true",)}, "true printed nothing"),
        (
            {"password_command": ("tail", "-f", "/dev/null"), "password_timeout": timedelta(milliseconds=50)},
            "longer",
        ),
        ({"password_file": "/no/such/file"}, "cannot be read: No such file"),
        ({"password_file": "/dev/null"}, "is empty"),
    ],
)
def test_a_password_that_cannot_be_read_is_reported(settings, said):
    with pytest.raises(StoreUnavailableError, match=said):
        read_password(StoreSettings(**settings))


def test_the_address_comes_from_a_file(tmp_path, monkeypatch):
    file = tmp_path / "dsn"
    file.write_text("postgresql://duly@db.example.org/duly\n")
    monkeypatch.setenv("DULY_STORE_DSN_FILE", str(file))

    assert StoreSettings.load().dsn == "postgresql://duly@db.example.org/duly"
    file.write_text("postgresql://duly@other.example.org/duly")
    assert StoreSettings.load().dsn == "postgresql://duly@other.example.org/duly"
    with pytest.raises(SettingsError, match="either dsn or dsn_file"):
        StoreSettings.load(dsn="postgresql://localhost/other")
    with pytest.raises(SettingsError, match="cannot be read"):
        StoreSettings.load(dsn_file="/no/such/file")


def test_only_one_way_to_a_password_is_taken():
    with pytest.raises(SettingsError, match="either password_file or password_command"):
        StoreSettings.load(password_file="x", password_command=("y",))
