"""Notifications that something is due: who looks for it looks sooner, and a notification can do no harm."""

import asyncio
from datetime import timedelta

import psycopg
import pytest

from duly_core.postgres.channels import DUE_CHANNEL
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.notifications import HORIZON, Listener, Notifier
from duly_core.postgres.pool import Store
from duly_core.postgres.rate_detector import STREAM_GAP
from duly_core.postgres.settings import StoreSettings
from duly_core.tasks.schedule import schedule
from duly_core.tasks.task import NewTask
from duly_store_consumer.consumer import Consumer
from duly_store_consumer.settings import StoreConsumerSettings
from duly_wire.enums import Priority
from duly_wire.ids import new_task_id
from tests.fixtures.task_states import CLAIM_TIMEOUT, LAMBDA, SECOND

DEADLINE = 10
ANY_TIME = StoreConsumerSettings(poll_interval=timedelta(minutes=2))


class Heard:
    """What a Listener was told."""

    def __init__(self):
        self.due = asyncio.Queue()
        self.lambdas = asyncio.Queue()

    async def next_due(self):
        return (await self.next_hint())[0]

    async def next_hint(self):
        return await asyncio.wait_for(self.due.get(), DEADLINE)

    async def next_lambda(self):
        return await asyncio.wait_for(self.lambdas.get(), DEADLINE)


class Served:
    """Somebody in this process who looks for tasks of one lambda."""

    def __init__(self, lambda_name):
        self._lambda_name = lambda_name
        self.told = []

    def serves(self, lambdas):
        return self._lambda_name in lambdas

    def note_due(self, ahead, lambdas):
        self.told.append((ahead, lambdas))


@pytest.fixture
async def heard(dsn):
    """What is heard on a connection that listens already."""
    heard, stop = Heard(), asyncio.Event()
    listener = Listener(
        StoreSettings(dsn=dsn),
        lambda ahead, lambdas: heard.due.put_nowait((ahead, set(lambdas))),
        lambda: heard.lambdas.put_nowait("look again"),
    )
    listening = asyncio.ensure_future(listener.run(stop))
    await heard.next_lambda()  # it looks again whenever it begins to listen
    yield heard
    stop.set()
    await listening


@pytest.fixture
async def consumer(store, sender):
    """A Store Consumer that has nothing to do, and sleeps for an hour."""
    made = Consumer(store, sender, ANY_TIME)
    assert await made.run_once() > timedelta(seconds=119)
    return made


def about(one, other):
    return abs(one - other) < SECOND


async def tell_of(dsn, *payloads):
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        for payload in payloads:
            await connection.execute("select pg_notify(%s, %s)", (DUE_CHANNEL, payload))


async def test_a_hint_says_how_far_ahead_something_is_due(heard, store):
    Notifier(store).due_in(3 * SECOND)

    assert await heard.next_due() == 3 * SECOND


async def test_many_hints_go_as_few_and_the_soonest_is_among_them(heard, store, dsn):
    notifier = Notifier(store)
    for seconds in range(60, 0, -1):
        notifier.due_in(seconds * SECOND)
    assert await heard.next_due() == SECOND

    await tell_of(dsn, "7")

    assert await heard.next_due() == timedelta(milliseconds=7)


async def test_while_tasks_stream_hints_go_as_often_as_store_consumers_look(heard, store):
    loop = asyncio.get_running_loop()
    notifier = Notifier(store)
    began_at = loop.time()
    while loop.time() < began_at + 15 * STREAM_GAP.total_seconds():
        notifier.due_in(timedelta(), tasks=50)
        await asyncio.sleep(0)
    await asyncio.wait_for(notifier._task, DEADLINE)
    elapsed = loop.time() - began_at
    notifier.due_in(7 * SECOND)  # the last

    notifications = 0
    while await heard.next_due() == timedelta():
        notifications += 1

    # in the first stretch nobody knows yet that it is a stream
    assert 2 <= notifications <= 2 * elapsed / STREAM_GAP.total_seconds() + 20


async def test_a_hint_names_the_lambdas_of_what_is_due(heard, store):
    Notifier(store).due_in(SECOND, {"report.make", "shop/report.make", LAMBDA})

    assert await heard.next_hint() == (SECOND, {"report.make", "shop/report.make", LAMBDA})


@pytest.mark.parametrize(
    "others", [set(), {f"many.{number}" for number in range(40)}], ids=["of any", "of too many to name"]
)
async def test_hints_that_go_together_name_no_lambdas_if_one_of_them_is_of_any(heard, store, others):
    notifier = Notifier(store)
    notifier.due_in(2 * SECOND, {LAMBDA})
    notifier.due_in(SECOND, others)

    assert await heard.next_hint() == (SECOND, set())


async def test_a_hint_that_this_process_serves_goes_to_no_other(heard, store, dsn):
    local, served = LocalNotifications(), Served(LAMBDA)
    local.subscribe(served)
    notifier = Notifier(store, local)

    notifier.due_in(timedelta(), {LAMBDA})
    notifier.due_in(SECOND, {"report.make"})

    assert await heard.next_hint() == (SECOND, {"report.make"})
    assert served.told == [(timedelta(), {LAMBDA}), (SECOND, {"report.make"})]


async def test_a_hint_of_a_later_time_goes_to_others_too_for_who_waits_here_may_be_busy_then(heard, store):
    local = LocalNotifications()
    local.subscribe(Served(LAMBDA))

    Notifier(store, local).due_in(SECOND, {LAMBDA})

    assert await heard.next_hint() == (SECOND, {LAMBDA})


async def test_a_hint_of_several_lambdas_goes_to_others_unless_all_are_served_here(heard, store):
    local = LocalNotifications()
    local.subscribe(Served(LAMBDA))

    Notifier(store, local).due_in(timedelta(), {LAMBDA, "report.make"})

    assert await heard.next_hint() == (timedelta(), {LAMBDA, "report.make"})


async def test_what_is_due_far_ahead_needs_no_hint(heard, store, dsn):
    Notifier(store).due_in(HORIZON + SECOND)

    await tell_of(dsn, "7")

    assert await heard.next_due() == timedelta(milliseconds=7)


async def test_a_registration_is_told(heard, task_states):
    await heard.next_lambda()


async def test_forged_hints_are_ignored(heard, dsn):
    await tell_of(dsn, "", "-5", "nonsense", "1e9", "9" * 12, "9" * 400, "\N{SUPERSCRIPT TWO}", "0")

    assert await heard.next_due() == timedelta()


async def test_a_connection_that_is_lost_is_opened_anew_and_what_was_missed_is_looked_for(heard, dsn):
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and query like 'listen %'"
        )
    await heard.next_lambda()

    await tell_of(dsn, "5")

    assert await heard.next_due() == timedelta(milliseconds=5)


async def test_hints_that_cannot_be_sent_disturb_nobody(line, dsn):
    async with Store(StoreSettings(dsn=line.dsn, acquire_timeout=SECOND)) as far:
        await line.cut()
        notifier = Notifier(far)
        notifier.due_in(timedelta())

        await asyncio.wait_for(notifier._task, DEADLINE)


async def test_a_round_answers_the_very_instant_at_which_something_is_due(task_states, store, sender):
    async def pause():
        return await Consumer(store, sender, ANY_TIME).run_once()

    await task_states.new(delay=40 * SECOND)
    assert about(await pause(), 40 * SECOND)
    await task_states.new(delay=30 * SECOND, priority=Priority.LOW)
    assert about(await pause(), 30 * SECOND)
    await task_states.claimed()
    assert about(await pause(), CLAIM_TIMEOUT)  # the next silence that would be suspicious


async def test_a_consumer_that_sleeps_is_woken_by_what_is_due_now(consumer):
    consumer.note_due(timedelta())

    assert consumer.wake.is_set()


async def test_a_consumer_is_woken_when_the_time_of_a_hint_comes(consumer):
    consumer.note_due(timedelta(milliseconds=50))
    assert not consumer.wake.is_set()

    await asyncio.wait_for(consumer.wake.wait(), DEADLINE)


async def test_a_hint_of_what_the_consumer_wakes_for_anyway_is_passed_over(consumer):
    loop = asyncio.get_running_loop()
    consumer.note_due(timedelta(milliseconds=50))
    soonest = consumer._wake_timer._wake_at

    consumer.note_due(SECOND)

    assert consumer._wake_timer._wake_at == soonest < loop.time() + 0.1


async def test_a_consumer_looks_at_lambdas_registered_meanwhile_once_that_was_told(consumer, task_states):
    task = await task_states.new()
    await consumer.run_once()
    assert await task_states.status(task.task_id) == "new"

    consumer.config_changed()
    assert consumer.wake.is_set()
    await consumer.run_once()

    assert await task_states.status(task.task_id) == "enqueued"


async def test_rounds_are_never_closer_together_than_the_gap(store, sender):
    consumer = Consumer(store, sender, StoreConsumerSettings(batching_gap=timedelta(milliseconds=60)))
    begun = asyncio.get_running_loop().time()

    for _ in range(3):
        await consumer.run_once()

    assert asyncio.get_running_loop().time() - begun >= 0.12


def new(count, **changes):
    return [NewTask(new_task_id().bytes, LAMBDA, b"1", **changes) for _ in range(count)]


async def test_a_task_that_is_due_is_told_of_by_the_statement_that_writes_it(heard, task_states):
    await schedule(task_states.store, new(1), tell=True)

    assert await heard.next_hint() == (timedelta(), {LAMBDA})


@pytest.mark.parametrize(
    ("delay", "tell"), [(SECOND, True), (None, False)], ids=["not due yet", "not to be told"]
)
async def test_other_tasks_are_left_to_the_hinter(heard, task_states, dsn, delay, tell):
    await schedule(task_states.store, new(3, delay=delay), tell=tell)

    await tell_of(dsn, "7")

    assert await heard.next_due() == timedelta(milliseconds=7)


async def test_a_notification_names_queues_of_pinned_versions(heard, store):
    Notifier(store).due_in(SECOND, {"team/mail.send@V1.2+b_3", "mail.sort"})

    assert await heard.next_hint() == (SECOND, {"team/mail.send@V1.2+b_3", "mail.sort"})
