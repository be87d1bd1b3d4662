"""Scheduling in the caller's own transaction: by the rules of the Frontend, as a role that may do nothing else."""

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

import duly
from duly import transactional
from duly_core.errors import SettingsError, StoreUnavailableError
from duly_core.postgres.client_role import grant
from duly_core.tasks.store import get_tasks
from duly_frontend import stores
from duly_wire.ids import new_task_id
from duly_wire.v1 import frontend_pb2
from tests.fixtures.database import count, until_a_statement_waits_for_a_lock
from tests.fixtures.services import refusal, serve_frontend
from tests.fixtures.task_states import LAMBDA

HOUR = timedelta(hours=1)


@pytest.fixture
def connection(dsn):
    """The caller's own, as one who owns the tables."""
    with psycopg.connect(dsn) as opened:
        yield opened


@pytest.fixture
def role(dsn):
    """A role that was granted what clients need, and may log in for the test's sake."""
    name = f"client_{uuid4().hex[:12]}"
    assert grant(dsn, name) is True
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(f"alter role {name} login password 'secret'".encode())
        yield name
        owner.execute(f"drop owned by {name}; drop role {name}".encode())


def as_role(dsn, role):
    return make_conninfo(dsn, user=role, password="secret")


async def read(task_states, task_id):
    return (await get_tasks(task_states.store, [UUID(task_id).bytes]))[UUID(task_id).bytes]


async def test_a_task_is_there_when_the_callers_transaction_commits_and_not_before(
    task_states, dsn, connection
):
    task_id = transactional.schedule(
        connection,
        LAMBDA,
        {"to": "ann", "n": "\u0000é"},
        priority=duly.Priority.HIGH,
        collection="spring",
        delay=HOUR,
    )
    assert count(dsn, "task") == 0

    connection.commit()

    row = await read(task_states, task_id)
    assert (row["status"], row["priority"], row["collection"]) == ("new", 2, "spring")
    assert row["payload"] == '{"to":"ann","n":"\\u0000é"}'.encode()
    assert row["scheduled_at"] - row["created_at"] == HOUR


async def test_a_transaction_that_is_rolled_back_leaves_nothing(task_states, dsn, connection):
    transactional.schedule(connection, LAMBDA, idempotency_key="k")

    connection.rollback()

    assert [count(dsn, table) for table in ("task", "task_assoc", "idempotency_key")] == [0, 0, 0]


@pytest.mark.parametrize("raw", [False, True])
async def test_the_same_task_from_the_frontend_is_a_repeat(frontend, task_states, connection, raw):
    payload = b"bytes" if raw else {"a": [1, "é"], "b": None}
    labels = {"collection": "spring", "fair_key": "ada"}
    task_id = transactional.schedule(connection, LAMBDA, payload, idempotency_key="k", **labels)
    connection.commit()

    async with duly.AsyncClient(frontend.address) as client:
        again = await client.schedule(LAMBDA, payload, idempotency_key="k", **labels)
        with pytest.raises(duly.KeyConflictError):
            await client.schedule(LAMBDA, "other", idempotency_key="k")

    assert (again.task_id, again.created) == (task_id, False)


async def test_a_repeat_is_answered_with_the_first_and_another_task_is_a_conflict(task_states, connection):
    first = transactional.schedule(connection, LAMBDA, 1, idempotency_key="k")
    connection.commit()

    assert transactional.schedule(connection, LAMBDA, 1, idempotency_key="k") == first
    with pytest.raises(duly.KeyConflictError, match=first):
        transactional.schedule(connection, LAMBDA, 2, idempotency_key="k")


async def test_a_new_task_is_written_without_a_look_for_an_earlier_one(task_states, connection):
    transactional.schedule(connection, LAMBDA, 1)
    transactional.schedule(connection, LAMBDA, 1, idempotency_key="k")

    looks = connection.execute(
        "select sum(idx_scan) from pg_stat_xact_user_tables where relname ~ '^(task_first|idempotency_key)$'"
    ).fetchone()

    assert looks == (3,)  # the checks for uniqueness: of the tasks, and of the key


async def test_of_two_transactions_with_one_key_the_second_waits_and_gets_the_firsts(task_states, dsn):
    with psycopg.connect(dsn) as one, psycopg.connect(dsn) as two:
        first = transactional.schedule(one, LAMBDA, 1, idempotency_key="k")
        waiting = asyncio.ensure_future(
            asyncio.to_thread(transactional.schedule, two, LAMBDA, 1, idempotency_key="k")
        )
        await until_a_statement_waits_for_a_lock(dsn)
        one.commit()

        assert await waiting == first


async def test_a_key_whose_task_is_purged_between_the_two_reads_makes_a_new_task(
    task_states, dsn, connection
):
    first = transactional.schedule(connection, LAMBDA, 1, idempotency_key="k")
    connection.commit()
    with psycopg.connect(dsn) as purging:
        purging.execute("lock table task in access exclusive mode")
        again = asyncio.ensure_future(
            asyncio.to_thread(transactional.schedule, connection, LAMBDA, 1, idempotency_key="k")
        )
        await until_a_statement_waits_for_a_lock(dsn)
        purging.execute("delete from task; delete from task_assoc; delete from idempotency_key")
        purging.commit()

        assert await again != first


async def test_a_key_that_has_lost_its_task_is_a_conflict(task_states, dsn, connection):
    transactional.schedule(connection, LAMBDA, 1, idempotency_key="k")
    connection.execute("delete from task")
    connection.commit()

    with pytest.raises(duly.KeyConflictError):
        transactional.schedule(connection, LAMBDA, 1, idempotency_key="k")


async def test_a_key_that_a_callers_open_transaction_holds_fails_only_the_calls_that_need_it(
    store, task_states, dsn, connection, monkeypatch
):
    monkeypatch.setattr(stores, "LOCK_TIMEOUT", timedelta(milliseconds=200))
    await task_states.register()
    transactional.schedule(connection, LAMBDA, idempotency_key="k")
    async with serve_frontend(store, group_concurrency=1) as frontend:

        def schedule(**key):
            task = frontend_pb2.NewTask(**{"lambda": LAMBDA, "payload": b"null"} | key)
            return asyncio.ensure_future(
                frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=[task]), timeout=30)
            )

        first = schedule(idempotency_key="k")
        await until_a_statement_waits_for_a_lock(dsn)
        together = [schedule(idempotency_key="k"), schedule(), schedule()]

        locked = [await refusal(each) for each in (first, together[0])]
        written = [(await each).results[0].created for each in together[1:]]

    assert [each.code.name for each in locked] == ["UNAVAILABLE"] * 2
    assert written == [True, True]


BAD = {
    "lambda": ({"lambda": "nobody.knows"}, duly.UnknownLambdaError),
    "no lambda": ({"lambda": None}, duly.UnknownLambdaError),
    "payload": ({"raw_payload": b"x" * 300_000}, duly.PayloadTooLargeError),
    "two payloads": ({"payload": "1", "raw_payload": b"1"}, duly.InvalidTaskError),
    "priority": ({"priority": 5}, duly.InvalidTaskError),
    "no priority": ({"priority": None}, duly.InvalidTaskError),
    "collection": ({"collection": "NO"}, duly.InvalidTaskError),
    "newline": ({"collection": "no\n"}, duly.InvalidTaskError),
    "when": ({"scheduled_at": datetime.now(UTC), "delay": HOUR}, duly.InvalidTaskError),
    "infinite": ({"scheduled_at": "infinity"}, duly.InvalidTaskError),
    "forever": ({"expires_at": "infinity"}, duly.InvalidTaskError),
    "negative": ({"delay": -HOUR}, duly.InvalidTaskError),
    "far": ({"delay": timedelta(days=366)}, duly.InvalidTaskError),
    "far instant": ({"scheduled_at": datetime.now(UTC) + timedelta(days=366)}, duly.InvalidTaskError),
    "expired": ({"expires_at": datetime.now(UTC) - HOUR}, duly.InvalidTaskError),
    "empty key": ({"idempotency_key": ""}, duly.InvalidTaskError),
    "long key": ({"idempotency_key": "é" * 128}, duly.InvalidTaskError),
    "a tick's key": ({"idempotency_key": "time-table:a:b"}, duly.InvalidTaskError),
    "both": ({"idempotency_key": "k", "task_id": str(new_task_id())}, duly.InvalidTaskError),
    "version": ({"task_id": str(uuid4())}, duly.InvalidTaskError),
    "attributes": ({"attributes": '["a"]'}, duly.InvalidTaskError),
    "no name": ({"attributes": '{"Order": 1}'}, duly.InvalidTaskError),
    "empty name": ({"attributes": '{"": 1}'}, duly.InvalidTaskError),
    "long name": ({"attributes": json.dumps({"a" * 65: 1})}, duly.InvalidTaskError),
    "name of two lines": ({"attributes": '{"a\\n": 1}'}, duly.InvalidTaskError),
    "long text": ({"attributes": json.dumps({"a": "é" * 129})}, duly.InvalidTaskError),
    "empty text": ({"attributes": '{"a": ""}'}, duly.InvalidTaskError),
    "NUL": ({"attributes": '{"a": "x\\u0000"}'}, duly.InvalidTaskError),
    "half a character": ({"attributes": '{"a": "\\ud800"}'}, duly.InvalidTaskError),
    "NUL in a name": ({"attributes": '{"a\\u0000": 1}'}, duly.InvalidTaskError),
    "one name twice": ({"attributes": '{"a": 1, "a": 2}'}, duly.InvalidTaskError),
    "nine": ({"attributes": json.dumps({f"a{n}": n for n in range(9)})}, duly.InvalidTaskError),
    "fraction": ({"attributes": '{"a": 1.5}'}, duly.InvalidTaskError),
    "exponent": ({"attributes": '{"a": 1e400000}'}, duly.InvalidTaskError),
    "65 bits": ({"attributes": '{"a": 9223372036854775808}'}, duly.InvalidTaskError),
    "null": ({"attributes": '{"a": null}'}, duly.InvalidTaskError),
    "nested": ({"attributes": '{"a": {"b": 1}}'}, duly.InvalidTaskError),
    "old id": ({"task_id": "01800000-0000-7000-8000-000000000000"}, duly.InvalidTaskError),
}


@pytest.mark.parametrize("name", BAD)
async def test_what_no_frontend_would_take_is_refused_with_its_field(
    task_states, dsn, connection, monkeypatch, name
):
    """Past the SDK's own checks: the function is for callers in SQL, too."""
    values, error = BAD[name]
    monkeypatch.setattr(transactional, "_values", lambda _: {"lambda": LAMBDA} | values)

    with pytest.raises(error) as caught:
        transactional.schedule(connection, LAMBDA)

    connection.rollback()
    if error is duly.InvalidTaskError:
        assert caught.value.field in {*values}
        assert str(caught.value).startswith(f"{caught.value.field}: ")
    assert [count(dsn, table) for table in ("task", "task_assoc", "idempotency_key")] == [0, 0, 0]


ATTRIBUTES = {"order": 2**63 - 1, "least": -(2**63), "urgent": True, "late": False, "name": 'a "ü" \\ %s b'}


async def test_a_task_is_found_by_its_attributes_and_only_after_the_commit(
    frontend, task_states, dsn, connection
):
    async with duly.AsyncClient(frontend.address) as client:
        for session in (None, "k"):
            transactional.schedule(connection, LAMBDA, attributes={"kept": 1}, session=session)
            connection.rollback()
            task_id = transactional.schedule(connection, LAMBDA, attributes=ATTRIBUTES, session=session)
            connection.commit()

            assert (await client.get(task_id)).attributes == ATTRIBUTES
            assert task_id in {each.task_id async for each in client.list(attributes=ATTRIBUTES)}
    transactional.schedule(connection, LAMBDA)
    transactional.schedule(connection, LAMBDA, attributes={})
    connection.commit()
    assert count(dsn, "task_attribute") == 2 * len(ATTRIBUTES)


async def test_attributes_are_compared_with_those_of_a_repeat_whoever_scheduled_it(
    frontend, task_states, dsn, connection
):
    first = transactional.schedule(connection, LAMBDA, idempotency_key="k", attributes=ATTRIBUTES)
    connection.commit()
    async with duly.AsyncClient(frontend.address) as client:
        again = await client.schedule(LAMBDA, idempotency_key="k", attributes=ATTRIBUTES)
    assert (again.task_id, again.created) == (first, False)
    assert transactional.schedule(connection, LAMBDA, idempotency_key="k", attributes=ATTRIBUTES) == first

    with pytest.raises(duly.KeyConflictError, match="attributes"):
        transactional.schedule(connection, LAMBDA, idempotency_key="k", attributes={"order": "17"})

    connection.rollback()
    assert count(dsn, "task_attribute") == len(ATTRIBUTES)


async def test_an_id_that_the_function_makes_is_a_uuid_of_version_7_of_now(task_states, connection):
    (made,) = connection.execute("select duly_schedule(%s)", [LAMBDA]).fetchone()

    age = datetime.now(UTC) - datetime.fromtimestamp((made.int >> 80) / 1000, UTC)
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert abs(age) < timedelta(minutes=1)


async def test_what_is_due_is_told_with_the_commit(task_states, dsn, connection):
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as listener:
        await listener.execute("listen duly_due")
        transactional.schedule(connection, LAMBDA)

        connection.commit()

        async for notification in listener.notifies(timeout=10, stop_after=1):
            assert notification.payload == f"0 {LAMBDA}"
            break
        else:
            pytest.fail("nobody was told")


# ---- callers' libraries ----------------------------------------------------------------------------------


async def test_rows_may_be_of_any_kind_and_a_cursor_will_do(task_states, dsn):
    with psycopg.connect(dsn, row_factory=dict_row) as opened, opened.cursor() as cursor:
        ids = [transactional.schedule(opened, LAMBDA), transactional.schedule(cursor, LAMBDA)]
        opened.commit()

    assert [(await read(task_states, each))["status"] for each in ids] == ["new", "new"]


async def test_a_sqlalchemy_connection_or_session_schedules_in_its_transaction(task_states, dsn):
    engine = sa.create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), poolclass=sa.NullPool
    )
    with engine.begin() as opened:
        first = transactional.schedule(opened, LAMBDA, {"a": 1}, delay=HOUR)
    with Session(engine) as session:
        second = transactional.schedule(session, LAMBDA, b"raw", idempotency_key="k")
        with pytest.raises(duly.UnknownLambdaError, match="nobody"), session.begin_nested():
            transactional.schedule(session, "nobody.knows")
        session.commit()
    with engine.connect() as opened:
        transactional.schedule(opened, LAMBDA)  # not committed
    engine.dispose()

    assert [(await read(task_states, each))["status"] for each in (first, second)] == ["new", "new"]
    assert count(dsn, "task") == 2


async def test_async_connections_schedule_in_their_transactions(task_states, dsn):
    async with await psycopg.AsyncConnection.connect(dsn) as opened:
        first = await transactional.schedule_async(opened, LAMBDA, [1])
    engine = create_async_engine(
        "postgresql+psycopg://",
        async_creator=lambda: psycopg.AsyncConnection.connect(dsn),
        poolclass=sa.NullPool,
    )
    async with engine.begin() as begun:
        second = await transactional.schedule_async(begun, LAMBDA, [2])
        with pytest.raises(duly.InvalidTaskError, match="collection"):
            async with begun.begin_nested():
                await transactional.schedule_async(begun, LAMBDA, collection="NO")
    await engine.dispose()

    assert [(await read(task_states, each))["payload"] for each in (first, second)] == [b"[1]", b"[2]"]


async def test_djangos_connection_schedules_in_its_atomic_block(task_states, dsn):
    django = pytest.importorskip("django")
    from django.conf import settings
    from django.db import connections, transaction
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(dsn)
    if not settings.configured:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}}, USE_TZ=True)
        django.setup()

    def schedule():
        connections.settings["default"] |= {
            "NAME": parts["dbname"],
            "USER": parts["user"],
            "PASSWORD": parts.get("password", ""),
            "HOST": parts["host"],
            "PORT": parts["port"],
        }
        opened = connections["default"]
        with transaction.atomic():
            task_id = transactional.schedule(opened, LAMBDA, {"a": 1}, delay=HOUR)
            with pytest.raises(duly.UnknownLambdaError), transaction.atomic():
                transactional.schedule(opened, "nobody.knows")
        opened.close()
        return task_id

    task_id = await asyncio.to_thread(schedule)

    assert (await read(task_states, task_id))["payload"] == b'{"a":1}'


# ---- the role --------------------------------------------------------------------------------------------


async def test_a_role_that_was_granted_it_schedules_and_may_do_nothing_else(task_states, dsn, role):
    with psycopg.connect(as_role(dsn, role)) as client:
        task_id = transactional.schedule(client, LAMBDA, 1, idempotency_key="k")
        client.commit()
        for table in ("task", "task_assoc", "lambda", "idempotency_key", "setting"):
            for statement in ("select from {}", "delete from {}"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege), client.transaction():
                    client.execute(sql.SQL(statement).format(sql.Identifier(table)))

    assert (await read(task_states, task_id))["status"] == "new"


async def test_nobody_else_may_call_it(task_states, dsn, role):
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(f"revoke execute on function duly_schedule from {role}".encode())

    with (
        psycopg.connect(as_role(dsn, role)) as client,
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="duly_schedule"),
    ):
        transactional.schedule(client, LAMBDA)


async def test_what_a_caller_puts_before_duly_in_its_search_path_is_not_called(task_states, dsn, role):
    with psycopg.connect(as_role(dsn, role), autocommit=True) as client:
        client.execute("create temporary table task (task_id uuid, lambda text)")
        client.execute("create temporary table lambda (name text, payload_limit integer)")
        client.execute("set search_path = pg_temp")

        task_id = transactional.schedule(client, LAMBDA)

    assert (await read(task_states, task_id))["status"] == "new"


async def test_a_grant_may_be_repeated_and_says_what_is_wrong(task_states, dsn, role):
    assert grant(dsn, role) is False
    with pytest.raises(StoreUnavailableError):
        grant(make_conninfo(dsn, port=1), role)
    with pytest.raises(SettingsError, match="create role"):
        grant(as_role(dsn, role), "another_role")


def test_the_sdks_errors_cover_the_functions(dsn):
    with psycopg.connect(dsn) as connection:
        (source,) = connection.execute(
            "select prosrc from pg_proc where proname = 'duly_schedule'"
        ).fetchone()

    assert {code for code in transactional._ERRORS if code in source} == {*transactional._ERRORS}
    assert {*transactional._CASTS} >= {
        field.name
        for field in frontend_pb2.NewTask.DESCRIPTOR.fields
        if field.name not in {"payload_encoding", "session", "resources", "attachments", "unique"}
    }


async def test_a_new_column_cannot_take_the_place_of_a_variable(task_states, connection):
    ((source,),) = connection.execute("select prosrc from pg_proc where proname = 'duly_schedule'").fetchall()
    declared = source[source.index("declare") : source.index("\nbegin")]
    variables = re.findall(r"^    (\w+) [^\n]+;", declared, re.MULTILINE)
    assert {"id", "data", "most", "asked_at", "is_same"} <= set(variables)
    for table in ("task", "task_assoc", "lambda", "idempotency_key"):
        for name in variables:
            connection.execute(f"alter table {table} add column if not exists {name} text".encode())
    connection.execute("set local statement_timeout = '10s'")
    task_id = str(new_task_id())

    first = transactional.schedule(connection, LAMBDA, 1, idempotency_key="k")
    again = transactional.schedule(connection, LAMBDA, 1, idempotency_key="k")
    by_id = [
        connection.execute("select duly_schedule(lambda => %s, task_id => %s)", [LAMBDA, task_id]).fetchone()
        for _ in range(2)
    ]

    connection.rollback()  # of the columns, too
    assert again == first
    assert by_id == [(UUID(task_id),), (UUID(task_id),)]
