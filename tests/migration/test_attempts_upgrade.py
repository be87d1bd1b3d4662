"""From 0001 to attempts and crash windows, with tasks that live: they go on, and the release before still writes."""

import os
from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command

from duly_core.routing import Priority, QueueKey
from duly_core.store import claims, polling, tasks
from duly_core.store.lambdas import LambdaPolicy, list_lambdas
from duly_core.store.migrate import migrate
from duly_core.store.pool import Store
from duly_core.store.results import set_results
from duly_core.store.settings import StoreSettings
from duly_core.task import Applied, AttemptOutcome, FailureKind, Outcome, Proposal, Result
from tests.migration.test_migrations import alembic  # noqa: F401 (a fixture)

SECOND = timedelta(seconds=1)
ROOM = {QueueKey("mail.send", Priority.NORMAL): 100}
CRASH = {"failure_kind": FailureKind.CRASH, "failure_message": "signal 9"}
RELEASE_BEFORE = """
insert into lambda (name, owner, version, max_attempts, max_crashes, max_runtime,
        backoff_initial, backoff_factor, backoff_max, payload_limit, registered_at, updated_at)
    values ('mail.send', '', '', 10, 3, '1 h', '1 s', 2, '10 min', 1000, now(), now());
insert into task (task_id, lambda, collection, priority, payload_encoding, payload, created_at, scheduled_at)
    select task_id, 'mail.send', '', 3, 1, '{}', now(), now() from unnest(%(ids)s::uuid[]) as task_id;
insert into task_assoc (task_id, lambda, priority, status, next_trigger_at, due_at, fence, crashes, token, holder)
    select task_id, 'mail.send', 3, 'processing', now() - interval '1 s', now(), 3, 2, task_id, 'old-host'
    from unnest(%(ids)s::uuid[]) as task_id;
"""


def write_as_the_release_before(connection, ids):
    connection.execute(psycopg.ClientCursor(connection).mogrify(RELEASE_BEFORE, {"ids": ids}))


@pytest.fixture
async def upgraded(alembic, dsn):  # noqa: F811
    """A store that came from 0001, and two tasks that run there since, having crashed twice each."""
    connection, config = alembic
    command.downgrade(config, "0001")
    connection.commit()
    columns = {column["name"] for column in sa.inspect(connection).get_columns("task_assoc")}
    assert "crashed_at" not in columns
    connection.rollback()
    ids = [uuid4(), uuid4()]
    with psycopg.connect(dsn) as before:
        write_as_the_release_before(before, ids)
    migrate(dsn)
    async with Store(StoreSettings(dsn=dsn)) as store:
        yield store, [each.bytes for each in ids]


async def test_tasks_that_live_through_the_upgrade_go_on_and_their_history_begins(upgraded):
    store, ids = upgraded

    silence = await polling.handle_timeouts(store, ROOM, SECOND, 1)
    (reported,) = set(ids) - {task.task_id for task in silence.again}
    written = await set_results(store, [Result(reported, reported, Outcome.CRASHED, **CRASH)])

    assert written.verdicts == [Applied.APPLIED]
    rows = await tasks.get_tasks(store, ids)
    # crashes whose time nobody wrote down are too old for the window: they count attempts only
    assert {row["status"] for row in rows.values()} == {"enqueued", "retriable_failure"}
    assert {row["crashes"] for row in rows.values()} == {3}
    lines = await tasks.get_attempts(store, ids)
    assert {(line.attempt, line.fence, line.holder) for (line,) in lines.values()} == {(3, 3, "old-host")}
    assert {line.outcome for (line,) in lines.values()} == {AttemptOutcome.SILENT, AttemptOutcome.CRASHED}


async def test_a_task_that_goes_on_crashing_after_the_upgrade_is_quarantined(upgraded):
    store, ids = upgraded
    task_id = token = ids[0]
    for _ in range(3):
        await set_results(store, [Result(task_id, token, Outcome.CRASHED, retry_after=timedelta(), **CRASH)])
        await polling.enqueue(store, ROOM, SECOND)
        token = os.urandom(16)
        await claims.claim(store, [(Proposal(task_id, token, "mail.send"), "new-host")], SECOND)

    row = (await tasks.get_tasks(store, [task_id]))[task_id]
    assert (row["status"], row["crashes"], row["failure_kind"]) == (
        "fatal_failure",
        5,
        FailureKind.QUARANTINED,
    )


async def test_lambdas_that_live_through_the_upgrade_have_the_default_window(upgraded):
    store, _ = upgraded

    (registered,) = await list_lambdas(store)

    assert registered.policy.crash_window == LambdaPolicy("any").crash_window


async def test_the_release_before_still_writes_into_the_upgraded_schema(upgraded, dsn):
    store, _ = upgraded
    later = UUID(bytes=os.urandom(16))
    with psycopg.connect(dsn) as before:
        before.execute("delete from lambda")
        write_as_the_release_before(before, [later])

    assert (await tasks.get_tasks(store, [later.bytes]))[later.bytes]["crashes"] == 2
