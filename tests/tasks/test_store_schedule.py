"""Writing tasks: once, however often and however concurrently it is asked."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.tasks.schedule import schedule
from duly_core.tasks.task import Encoding, NewTask, Scheduled, Scheduling
from duly_wire.enums import Priority
from duly_wire.ids import new_task_id
from tests.fixtures.database import ask, count
from tests.fixtures.task_states import LAMBDA, SECOND

HOUR = timedelta(hours=1)
OTHER = "report.make"


def a_task(**overrides):
    return NewTask(**{"task_id": new_task_id().bytes, "lambda_name": LAMBDA, "payload": b"{}"} | overrides)


def verdicts(answers):
    return [answer.verdict for answer in answers]


async def test_a_task_is_written_with_its_next_trigger_and_due_now(task_states):
    task = a_task(
        payload=bytes(range(256)), encoding=Encoding.RAW, collection="spring", priority=Priority.HIGH
    )

    (answer,) = await schedule(task_states.store, [task])

    row = await task_states.row(task.task_id)
    assert answer == Scheduled(Scheduling.CREATED, task.task_id, due_in=timedelta())
    assert (row["status"], row["payload"], row["payload_encoding"]) == (
        "new",
        bytes(range(256)),
        Encoding.RAW,
    )
    assert (row["collection"], row["priority"], row["fence"]) == ("spring", Priority.HIGH, 0)
    assert row["created_at"] == row["scheduled_at"] == row["next_trigger_at"]


async def test_the_assoc_knows_the_collection_of_its_task(task_states, dsn):
    await schedule(task_states.store, [a_task(collection="spring"), a_task()])

    assert sorted(ask(dsn, "select collection from task_assoc")) == [("",), ("spring",)]


async def test_a_delay_is_counted_on_the_stores_clock(task_states, clock):
    await clock.tick(timedelta(days=400))

    (answer,) = await schedule(task_states.store, [task := a_task(delay=HOUR)])

    row = await task_states.row(task.task_id)
    assert answer.due_in == HOUR
    assert row["next_trigger_at"] == row["created_at"] + HOUR
    assert row["created_at"] > datetime.now(UTC) + timedelta(days=399)


async def test_an_instant_is_kept_and_the_past_is_now(task_states):
    later = datetime.now(UTC) + HOUR
    ahead, behind = a_task(scheduled_at=later), a_task(scheduled_at=datetime(1, 1, 1, tzinfo=UTC))

    answers = await schedule(task_states.store, [ahead, behind])

    assert (await task_states.row(ahead.task_id))["next_trigger_at"] == later
    assert answers[1].due_in == timedelta()
    row = await task_states.row(behind.task_id)
    assert row["scheduled_at"] == row["created_at"]


async def test_many_are_answered_in_the_order_of_the_call(task_states):
    tasks = [
        a_task(task_id=new_task_id().bytes, idempotency_key=f"k{n % 7}-{n}" if n % 2 else None)
        for n in range(300)
    ]
    tasks.reverse()

    answers = await schedule(task_states.store, tasks)

    assert [answer.task_id for answer in answers] == [task.task_id for task in tasks]
    assert set(verdicts(answers)) == {Scheduling.CREATED}


@pytest.mark.parametrize("key", [None, "order-17"])
async def test_a_repeated_call_writes_nothing_and_answers_the_first_task(task_states, dsn, key):
    task = a_task(idempotency_key=key)
    await schedule(task_states.store, [task])

    repeat = task._replace(task_id=task.task_id if key is None else new_task_id().bytes)
    answers = await schedule(task_states.store, [repeat])

    assert answers == [Scheduled(Scheduling.REPEATED, task.task_id)]
    assert (count(dsn, "task"), count(dsn, "task_assoc")) == (1, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"payload": b"[]"},
        {"encoding": Encoding.RAW},
        {"priority": Priority.LOW},
        {"collection": "autumn"},
        {"fair_key": "ada"},
    ],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.parametrize("key", [None, "order-17"])
async def test_the_same_id_or_key_that_says_something_else_is_a_conflict(task_states, dsn, key, change):
    task = a_task(idempotency_key=key)
    await schedule(task_states.store, [task])
    before = await task_states.row(task.task_id)

    other_id = task.task_id if key is None else new_task_id().bytes
    answers = await schedule(task_states.store, [task._replace(task_id=other_id, **change)])

    assert answers == [Scheduled(Scheduling.CONFLICT, task.task_id)]
    assert await task_states.row(task.task_id) == before
    assert (count(dsn, "task"), count(dsn, "task_assoc")) == (1, 1)


async def test_an_id_of_another_lambdas_task_is_a_conflict(task_states):
    await task_states.register(OTHER)
    await schedule(task_states.store, [task := a_task()])

    answers = await schedule(task_states.store, [task._replace(lambda_name=OTHER)])

    assert answers == [Scheduled(Scheduling.CONFLICT, task.task_id)]


async def test_one_key_in_two_lambdas_makes_two_tasks(task_states):
    await task_states.register(OTHER)

    answers = await schedule(
        task_states.store, [a_task(idempotency_key="k"), a_task(idempotency_key="k", lambda_name=OTHER)]
    )

    assert verdicts(answers) == [Scheduling.CREATED] * 2


async def test_a_key_twice_in_one_batch_makes_one_task(task_states, dsn):
    tasks = [a_task(idempotency_key="k"), a_task(), a_task(idempotency_key="k")]

    answers = await schedule(task_states.store, tasks)

    assert sorted(verdict.name for verdict in verdicts(answers)) == ["CREATED", "CREATED", "REPEATED"]
    assert answers[0].task_id == answers[2].task_id
    assert count(dsn, "task") == 2


async def test_an_id_twice_in_one_batch_makes_one_task_and_hides_no_conflict(task_states, dsn):
    task = a_task()

    answers = await schedule(task_states.store, [task, task._replace(payload=b"[1]"), task])

    assert verdicts(answers).count(Scheduling.CREATED) == 1
    written = (await task_states.row(task.task_id))["payload"]
    expected = {b"{}": ["CREATED", "CONFLICT", "REPEATED"], b"[1]": ["CONFLICT", "CREATED", "CONFLICT"]}
    assert [verdict.name for verdict in verdicts(answers)] == expected[written]
    assert count(dsn, "task") == 1


async def test_an_unknown_lambda_in_the_middle_of_a_batch_writes_the_others_only(task_states, dsn):
    tasks = [a_task(), a_task(lambda_name="nobody.knows", idempotency_key="k"), a_task()]

    answers = await schedule(task_states.store, tasks)

    assert verdicts(answers) == [Scheduling.CREATED, Scheduling.UNKNOWN_LAMBDA, Scheduling.CREATED]
    assert (count(dsn, "task"), count(dsn, "task_assoc"), count(dsn, "idempotency_key")) == (2, 2, 0)


async def test_a_key_refused_with_its_unknown_lambda_is_free_once_that_is_registered(task_states):
    task = a_task(lambda_name=OTHER, idempotency_key="k")
    await schedule(task_states.store, [task])
    await task_states.register(OTHER)

    (answer,) = await schedule(task_states.store, [task])

    assert answer.verdict is Scheduling.CREATED


async def test_one_key_asked_for_by_many_connections_at_once_makes_one_task(task_states, dsn):
    async with Store(StoreSettings(dsn=dsn, connections=12)) as store:
        tasks = [a_task(idempotency_key="k") for _ in range(48)]

        answers = [
            (await answer)[0] for answer in [asyncio.ensure_future(schedule(store, [t])) for t in tasks]
        ]

    assert verdicts(answers).count(Scheduling.CREATED) == 1
    assert len({answer.task_id for answer in answers}) == 1
    assert (count(dsn, "task"), count(dsn, "task_assoc"), count(dsn, "idempotency_key")) == (1, 1, 1)


async def test_concurrent_batches_with_the_same_keys_in_other_orders_do_not_deadlock(task_states, dsn):
    keys = [f"k{n:02}" for n in range(40)]
    orders = [keys, keys[::-1], keys[20:] + keys[:20], keys[::2] + keys[1::2]] * 3
    async with Store(StoreSettings(dsn=dsn, connections=12)) as store:
        batches = [[a_task(idempotency_key=key) for key in order] for order in orders]

        answers = await asyncio.gather(*(schedule(store, batch) for batch in batches))

    assert sum(verdicts(batch).count(Scheduling.CREATED) for batch in answers) == len(keys)
    assert all(set(verdicts(batch)) <= {Scheduling.CREATED, Scheduling.REPEATED} for batch in answers)


async def test_a_key_is_free_again_when_the_transaction_that_took_it_is_rolled_back(task_states, dsn):
    task = a_task(idempotency_key="k")
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute(
            "insert into idempotency_key (lambda, key, task_id, created_at) values (%s, 'k', %s, now())",
            (LAMBDA, new_task_id()),
        )
        waiting = asyncio.ensure_future(schedule(task_states.store, [task]))
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        await other.rollback()

        (answer,) = await asyncio.wait_for(waiting, timeout=5)

    assert answer.verdict is Scheduling.CREATED


async def test_a_task_that_is_due_later_says_how_much_later(task_states):
    answers = await schedule(task_states.store, [a_task(delay=5 * SECOND), a_task(delay=timedelta())])

    assert [answer.due_in for answer in answers] == [5 * SECOND, timedelta()]


async def test_instants_at_the_ends_of_the_calendar_are_read_back_in_any_time_zone_of_the_server(
    task_states, dsn
):
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"alter database {connection.info.dbname} set timezone = 'Pacific/Kiritimati'")
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    async with Store(StoreSettings(dsn=dsn)) as store:
        await schedule(store, [task := a_task(expires_at=end)])

        row = await replace(task_states, store=store).row(task.task_id)

    assert row["expires_at"] == end


async def test_a_key_that_is_removed_while_it_is_looked_up_is_free_again(task_states, monkeypatch):
    await schedule(task_states.store, [a_task(idempotency_key="a")])
    run = task_states.store.run

    async def removed_meanwhile(statement, parameters):
        if statement.name == "existing":
            async with task_states.store.connection() as connection:
                await connection.execute("delete from idempotency_key")
        return await run(statement, parameters)

    monkeypatch.setattr(task_states.store, "run", removed_meanwhile)

    answers = await schedule(task_states.store, [a_task(idempotency_key="a"), a_task(lambda_name="no.such")])

    assert verdicts(answers) == [Scheduling.CREATED, Scheduling.UNKNOWN_LAMBDA]
