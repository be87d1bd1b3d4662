"""When the Store Consumer looks, and what a look costs: its rounds turned by hand."""

import asyncio
from datetime import timedelta

import psycopg
import pytest

from duly_core.lambdas import store as lambdas
from duly_core.lambdas.names import QueueKey
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.postgres.prepared import Prepared
from duly_store_consumer.consumer import Consumer
from duly_store_consumer.settings import StoreConsumerSettings
from duly_wire.enums import Priority
from tests.fixtures.task_states import SECOND

POLL = 60 * SECOND
DEADLINE = 10


@pytest.fixture
def statements(monkeypatch):
    """What was asked of Postgres, in order."""
    asked = []
    execute = psycopg.AsyncCursor.execute

    async def noted(self, query, *arguments, **options):
        asked.append(" ".join(str(query).split()))
        return await execute(self, query, *arguments, **options)

    monkeypatch.setattr(psycopg.AsyncCursor, "execute", noted)
    fetch = Prepared.fetch

    async def noted_without_cursor(self, shape, sql, parameters):
        asked.append(" ".join(sql.split()))
        return await fetch(self, shape, sql, parameters)

    monkeypatch.setattr(Prepared, "fetch", noted_without_cursor)
    return asked


@pytest.fixture
def make_consumer(store, sender):
    def make(**settings):
        chosen = StoreConsumerSettings(**{"poll_interval": POLL} | settings)
        return Consumer(store, sender, chosen)

    return make


@pytest.fixture
async def consumer(make_consumer, task_states):
    """One that has made its first round, and sleeps."""
    made = make_consumer()
    await made.run_once()
    later(made)
    return made


def later(consumer):
    """As if the poll interval had passed: nothing that was read lately counts as fresh."""
    consumer._timeouts._handled_at = float("-inf")
    consumer._live_config._read_at -= POLL.total_seconds()


# ---- when --------------------------------------------------------------------------------------------------


async def test_it_sleeps_until_the_next_due_instant(consumer, task_states):
    await task_states.new(delay=30 * SECOND)
    await task_states.new(delay=7 * SECOND)

    assert 6 * SECOND < await consumer.run_once() <= 7 * SECOND


async def test_at_that_instant_it_finds_the_task_without_a_hint(consumer, task_states, clock):
    task = await task_states.new(delay=7 * SECOND)
    await consumer.run_once()
    await clock.tick(7 * SECOND)

    await consumer.run_once()

    assert await task_states.status(task.task_id) == "enqueued"


async def test_what_is_due_in_a_moment_is_not_taken_for_a_queue_that_is_full(consumer, task_states, clock):
    task = await task_states.new(delay=7 * SECOND)
    await consumer.run_once()
    later(consumer)
    await clock.tick(7 * SECOND - timedelta(milliseconds=15))

    pause = await consumer.run_once()

    assert pause <= timedelta(milliseconds=15) or await task_states.status(task.task_id) == "enqueued"


async def test_with_every_hint_lost_the_poll_finds_what_is_due(consumer, task_states):
    """Nobody listens: not for the task, and not for its lambda, which is new as well."""
    await consumer.run_once()
    await task_states.register("report.make")
    tasks = [await task_states.new(), await task_states.new(lambda_name="report.make")]
    later(consumer)

    await consumer.run_once()

    assert [await task_states.status(task.task_id) for task in tasks] == ["enqueued", "enqueued"]


async def test_a_hint_that_comes_during_a_round_is_of_the_next(consumer, task_states, monkeypatch):
    read = consumer._live_config.read

    async def read_while_something_gets_due(now):
        consumer.note_due(timedelta())
        return await read(now)

    monkeypatch.setattr(consumer._live_config, "read", read_while_something_gets_due)

    await consumer.run_once()

    assert consumer.wake.is_set()
    assert consumer._wake_timer._due_at == float("-inf")


async def test_a_hint_of_something_ahead_wakes_it_then(consumer):
    consumer._wake_timer._wake_at = asyncio.get_running_loop().time() + 60

    consumer.note_due(timedelta(milliseconds=20))

    assert not consumer.wake.is_set()
    await asyncio.wait_for(consumer.wake.wait(), DEADLINE)


async def test_without_exactness_nothing_but_the_interval_wakes_it(make_consumer, task_states, clock):
    consumer = make_consumer(exact=False)
    await consumer.run_once()
    task = await task_states.new(delay=5 * SECOND)

    assert await consumer.run_once() == POLL
    consumer.note_due(timedelta())
    assert not consumer.wake.is_set()
    await clock.tick(POLL)
    assert await consumer.run_once() == POLL

    assert await task_states.status(task.task_id) == "enqueued"


async def test_without_exactness_a_backlog_beyond_the_room_waits_for_the_interval_too(
    make_consumer, task_states
):
    tasks = [await task_states.new() for _ in range(3)]
    consumer = make_consumer(exact=False, batch=2)

    assert await consumer.run_once() == POLL

    statuses = sorted([await task_states.status(task.task_id) for task in tasks])
    assert statuses == ["enqueued", "enqueued", "new"]


async def test_what_is_left_beyond_the_batch_is_taken_at_once(make_consumer, task_states):
    for _ in range(3):
        await task_states.new()
    consumer = make_consumer(batch=2)

    assert await consumer.run_once() == timedelta()


async def test_a_round_that_failed_looks_for_what_is_due_again(consumer, task_states, monkeypatch):
    async def fail(_now):
        raise RuntimeError("as the test said")

    consumer.note_due(timedelta())
    with monkeypatch.context() as patch:
        patch.setattr(consumer._live_config, "read", fail)
        with pytest.raises(RuntimeError):
            await consumer.run_once()

    assert consumer._wake_timer._due_at == float("-inf")


# ---- what it costs -----------------------------------------------------------------------------------------


async def test_an_idle_round_asks_four_things_and_is_the_only_one_of_its_interval(consumer, statements):
    pause = await consumer.run_once()

    assert len(statements) == 4, statements
    assert pause > POLL - SECOND
    later(consumer)
    await consumer.run_once()
    assert len(statements) == 8, statements


async def test_an_idle_round_asks_as_few_things_of_a_hundred_lambdas(consumer, store, statements):
    await lambdas.register(store, [LambdaPolicy(f"many.{number}") for number in range(100)])
    later(consumer)
    await consumer.run_once()  # sees them, and how deep their queues are
    later(consumer)
    statements.clear()

    await consumer.run_once()

    assert len(consumer._live_config.queues) == 101 * len(Priority)
    assert len(statements) == 4, statements


async def test_what_is_due_goes_before_everything_that_can_wait(consumer, task_states, statements):
    await consumer.run_once()
    task = await task_states.new()
    consumer.note_due(timedelta())
    consumer._timeouts._handled_at = float("-inf")
    statements.clear()

    await consumer.run_once()

    assert "set status = 'enqueued'" in statements[0]
    assert await task_states.status(task.task_id) == "enqueued"


async def test_a_lost_reference_gets_the_room_that_newer_ones_take_in_the_same_round(
    make_consumer, task_states, clock, memory_queue, receiver
):
    consumer = make_consumer(max_depth=2, min_depth=2, enqueue_timeout=5 * SECOND)
    lost = await task_states.new()
    await consumer.run_once()
    memory_queue.queues.lose_all()
    for _ in range(5):
        await task_states.new()
    await clock.tick(6 * SECOND)
    consumer._queue_room.limits._queue(QueueKey("mail.send", Priority.NORMAL)).bound = 2
    later(consumer)

    await consumer.run_once()

    received = await receiver.receive(QueueKey("mail.send", Priority.NORMAL), 10, SECOND)
    assert lost.task_id in {task_id for message in received for task_id in message.task_ids}
