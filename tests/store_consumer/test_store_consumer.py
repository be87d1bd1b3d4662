"""The Store Consumer, its rounds turned by hand: what is due goes to its queue, in time, once, and never lost."""

import asyncio
from collections import Counter
from datetime import timedelta

import psycopg
import pytest
from prometheus_client import REGISTRY

from duly_core.errors import QueueUnavailableError
from duly_core.gates.cache import GateCache
from duly_core.lambdas.names import QueueKey
from duly_core.limits.store import ResourceLimit
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.tasks import polling
from duly_core.tasks.task import ResourceNeed
from duly_store_consumer.consumer import Consumer
from duly_store_consumer.counting.backlog_watch import BacklogWatch
from duly_store_consumer.settings import StoreConsumerSettings
from duly_wire.enums import Priority
from tests.fixtures import whole
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, LAMBDA, SECOND

QUEUE = QueueKey(LAMBDA, Priority.NORMAL)
OTHER = "report.make"
FIRST_BOUND = 1_000
"""How deep a queue may be before anything is known of its hosts."""

MANY = """
with made as (
    insert into task (task_id, lambda, collection, priority, payload_encoding, payload, created_at, scheduled_at)
    select gen_random_uuid(), %s, '', 3, 1, '', now(), now() from generate_series(1, %s) returning task_id, lambda
)
insert into task_assoc (task_id, lambda, collection, priority, status, next_trigger_at, due_at)
select task_id, lambda, '', 3, 'new', now() - interval '1 h', now() from made
"""


class Tampered:
    """A sender that a test makes fail, and that tells what the store said when it sent."""

    def __init__(self, sender, store):
        self._sender = sender
        self._store = store
        self.depth_age = sender.depth_age
        self.refuse = lambda _: False
        self.error = None
        self.status_when_sent = Counter()

    async def send(self, messages):
        if self.error:
            raise self.error
        async with self._store.connection() as connection:
            cursor = await connection.execute("select status::text, count(*) from task_assoc group by status")
            self.status_when_sent.update(dict(await cursor.fetchall()))
        refused = [message for message in messages if self.refuse(message)]
        return refused + await self._sender.send([each for each in messages if each not in refused])

    async def depth(self, queues):
        return await self._sender.depth(queues)


def oldest_ready(lambda_name):
    labels = {"lambda": lambda_name, "priority": "normal"}
    return REGISTRY.get_sample_value("duly_oldest_ready_seconds", labels)


def backlog(lambda_name):
    labels = {"lambda": lambda_name, "priority": "normal"}
    return REGISTRY.get_sample_value("duly_backlog_tasks", labels)


@pytest.fixture
async def tampered(sender, store):
    return Tampered(sender, store)


@pytest.fixture
def make_consumer(consumer_store, tampered):
    """A Store Consumer on the queue; each remembers nothing of the others' rounds."""

    def make(on=consumer_store, **settings):
        return Consumer(on, tampered, StoreConsumerSettings(**{"poll_interval": 90 * SECOND} | settings))

    return make


@pytest.fixture
def references(memory_queue):
    """What the queues hold: how often each task is referred to."""

    def count(lambda_name=LAMBDA):
        return memory_queue.queues.references(lambda_name)

    return count


@pytest.fixture
def make_many(dsn):
    """Thousands of due tasks, written faster than through the Frontend."""

    def make(count, lambda_name=LAMBDA):
        with psycopg.connect(dsn) as connection:
            connection.execute(MANY, [lambda_name, count])

    return make


async def test_a_due_task_goes_to_the_queue_of_its_lambda_and_priority(task_states, make_consumer, receiver):
    task = await task_states.new(priority=Priority.HIGH)

    await make_consumer().run_once()

    (received,) = await receiver.receive(QueueKey(LAMBDA, Priority.HIGH), 10, SECOND)
    assert received.task_ids == (task.task_id,)
    assert await task_states.status(task.task_id) == "enqueued"


async def test_the_row_says_enqueued_before_its_message_can_be_received(task_states, make_consumer, tampered):
    for _ in range(3):
        await task_states.new()

    await make_consumer().run_once()

    assert tampered.status_when_sent == {"enqueued": 3}


async def test_only_what_the_queue_refused_is_put_back_and_it_is_sent_soon_after(
    task_states, clock, make_consumer, tampered, references
):
    tasks = [(await task_states.new()).task_id for _ in range(6)]
    tampered.refuse = lambda message: tasks[2] in message.task_ids
    await make_consumer().run_once()
    assert references() == Counter(tasks) - Counter([tasks[2]])

    tampered.refuse = lambda _: False
    await clock.tick(6 * SECOND)
    await make_consumer().run_once()

    assert references() == Counter(tasks)


async def test_what_waited_for_the_units_of_a_refused_message_is_sent_at_once(
    task_states, make_consumer, tampered, references
):
    await whole.put_resource(task_states.store, ResourceLimit("database", 1))
    first, second = [(await task_states.new(resources=(ResourceNeed("database"),))).task_id for _ in range(2)]
    tampered.refuse = lambda message: first in message.task_ids
    consumer = make_consumer()

    await consumer.run_once()

    assert consumer.wake.is_set()
    await consumer.run_once()
    assert references() == Counter([second])


async def test_it_measures_how_many_tasks_of_each_lambda_are_due_and_how_long_the_first_has_been(
    task_states, clock, make_consumer, tampered
):
    await task_states.register(OTHER)
    await task_states.new()
    tampered.refuse = lambda _: True
    consumer = make_consumer(put_back_delay=0 * SECOND)
    await consumer.run_once()
    await clock.tick(100 * SECOND)

    pause = await BacklogWatch(
        task_states.store, lambda: consumer.live_config.queues, GateCache(task_states.store)
    ).run_once()

    assert oldest_ready(LAMBDA) >= 100
    assert oldest_ready(OTHER) == 0
    assert backlog(LAMBDA) == 1
    assert backlog(OTHER) == 0
    assert pause < 5 * SECOND


async def test_nothing_is_lost_while_the_queue_is_away(
    task_states, clock, make_consumer, tampered, references
):
    tasks = [(await task_states.new()).task_id for _ in range(6)]
    tampered.error = QueueUnavailableError("gone")
    with pytest.raises(QueueUnavailableError):
        await make_consumer().run_once()
    assert references() == {}

    tampered.error = None
    await clock.tick(6 * SECOND)
    await make_consumer().run_once()

    assert references() == Counter(tasks)


async def test_a_queue_that_does_not_tell_its_depth_is_sent_nothing(
    task_states, installation, store, new_task
):
    away = await installation.unreachable().open_sender()
    consumer = Consumer(store, away, StoreConsumerSettings())

    with pytest.raises(QueueUnavailableError):
        await consumer.run_once()

    assert await task_states.status(new_task.task_id) == "new"


async def test_with_exact_triggering_off_it_polls_at_the_interval(task_states, make_consumer, references):
    consumer = make_consumer(exact=False)
    task = await task_states.new()
    await task_states.new(delay=10 * SECOND)

    assert await consumer.run_once() == 90 * SECOND
    consumer.note_due(timedelta())

    assert references() == Counter([task.task_id])
    assert not consumer.wake.is_set()


async def test_a_full_queue_leaves_the_backlog_in_the_store(
    task_states, make_consumer, make_many, references
):
    make_many(FIRST_BOUND + 5)
    consumer = make_consumer()

    await consumer.run_once()
    await consumer.run_once()

    assert (references().total(), len(references())) == (FIRST_BOUND, FIRST_BOUND)
    async with task_states.store.connection() as connection:
        cursor = await connection.execute("select count(*) from task_assoc where status = 'new'")
        assert await cursor.fetchone() == (5,)


async def test_the_backlog_follows_as_the_queue_drains(task_states, make_consumer, make_many, receiver):
    make_many(FIRST_BOUND + 5)
    await make_consumer().run_once()
    taken = await receiver.receive(QUEUE, 10, SECOND)
    await receiver.delete(taken)

    await make_consumer().run_once()

    async with task_states.store.connection() as connection:
        cursor = await connection.execute("select count(*) from task_assoc where status = 'new'")
        assert await cursor.fetchone() == (0,)


async def test_a_lambda_whose_queue_is_full_does_not_stand_before_another(
    task_states, make_consumer, make_many, references
):
    await task_states.register(OTHER)
    make_many(2 * FIRST_BOUND)
    consumer = make_consumer()
    await consumer.run_once()  # fills the queue; the other thousand rows have been due for an hour
    task = await task_states.new(lambda_name=OTHER)

    await consumer.run_once()

    assert references().total() == FIRST_BOUND
    assert references(OTHER) == Counter([task.task_id])


async def test_a_lost_message_is_sent_again(
    task_states, clock, make_consumer, memory_queue, references, new_task
):
    await make_consumer().run_once()
    memory_queue.queues.lose_all()
    await clock.tick(ENQUEUE_TIMEOUT - SECOND)
    await make_consumer().run_once()
    assert references() == {}

    await clock.tick(2 * SECOND)
    await make_consumer().run_once()

    assert references() == Counter([new_task.task_id])


async def test_a_task_whose_holder_fell_silent_is_sent_again(
    task_states, clock, make_consumer, references, claimed_task
):
    await clock.tick(CLAIM_TIMEOUT + SECOND)

    await make_consumer().run_once()

    assert references() == Counter([claimed_task.task_id])
    assert (await task_states.row(claimed_task.task_id))["crashes"] == 1


async def test_an_expired_task_ends_and_does_not_keep_the_loop_spinning(
    task_states, clock, make_consumer, references
):
    created_at = (await task_states.row((await task_states.new(delay=timedelta(days=1))).task_id))[
        "created_at"
    ]
    task = await task_states.new(delay=5 * SECOND, expires_at=created_at + 5 * SECOND)
    await clock.tick(6 * SECOND)
    consumer = make_consumer()

    await consumer.run_once()
    consumer._timeouts._handled_at = float("-inf")

    assert await consumer.run_once() > 60 * SECOND
    assert await task_states.status(task.task_id) == "fatal_failure"
    assert references() == {}


async def test_several_consumers_send_each_task_once(task_states, dsn, make_consumer, make_many, references):
    make_many(900)
    async with Store(StoreSettings(dsn=dsn)) as other:
        consumers = [make_consumer(on=on, batch=50, min_depth=1_000) for on in (task_states.store, other) * 2]
        for _ in range(6):
            await asyncio.gather(*(consumer.run_once() for consumer in consumers))

    assert len(references()) == 900
    assert set(references().values()) == {1}


@pytest.mark.sqs
async def test_sqs_carries_the_tasks_and_sends_lost_ones_again(task_states, clock, store, sqs_queue):
    installation = sqs_queue
    sender, receiver = await installation.open_sender(), await installation.open_receiver()
    tasks = [(await task_states.new()).task_id for _ in range(20)]

    for _ in range(2):
        await Consumer(store, sender, StoreConsumerSettings()).run_once()
        received = []
        while len(received) < len(tasks):
            messages = await receiver.receive(QUEUE, 10, 5 * SECOND)
            await receiver.delete(messages)
            received += [task_id for message in messages for task_id in message.task_ids]
        assert sorted(received) == sorted(tasks)
        await clock.tick(ENQUEUE_TIMEOUT + SECOND)
    assert await polling.next_timeout(store) < timedelta()
