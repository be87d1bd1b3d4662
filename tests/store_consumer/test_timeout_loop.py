"""The Store Consumer where no queue is beside the store: what runs out is taken up, and HSCs hear of it."""

from datetime import timedelta

import psycopg
import pytest
from structlog.testing import capture_logs

from duly_core.errors import StatementTimeoutError
from duly_core.lambdas.names import QueueKey
from duly_core.process.pace import Pace
from duly_core.tasks import claims, polling
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.task import DueTask
from duly_store_consumer import events
from duly_store_consumer.reclaim_guard import ReclaimGuard
from duly_store_consumer.settings import StoreConsumerSettings
from duly_store_consumer.timeout_loop import TimeoutLoop
from duly_wire.enums import Priority
from tests.fixtures.simulated_host import TIMING, Time
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, SECOND

POLL = 90 * SECOND
QUEUE = QueueKey(LAMBDA, Priority.NORMAL)
DUE = DueTask(bytes(16), QUEUE)


class Told:
    """Takes notifications in the Notifier's place."""

    def __init__(self):
        self.notifications = []

    def due_in(self, ahead, lambdas=(), tasks=1):
        self.notifications.append((ahead, set(lambdas), tasks))


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def time(clock):
    return Time(clock)


@pytest.fixture
def loop(store, time, told):
    settings = StoreConsumerSettings(poll_interval=POLL)
    return TimeoutLoop(store, settings, ReclaimGuard(TIMING, time.since_boot), told)


async def turn(loop):
    """A round that takes up what ran out, as one does 200 ms after the last."""
    loop._timeouts._handled_at = float("-inf")
    return await loop.run_once()


async def claim_work(task_states):
    work = await claims.claim_work(
        task_states.store, [Pick(QUEUE, 10, 0)], [Caller("host", b"p" * 14)], 10, CLAIM_TIMEOUT
    )
    return work.tasks


async def test_a_claim_of_a_silent_holder_is_void_and_the_task_due_and_told_of(loop, task_states, time, told):
    await task_states.new()
    (held,) = await claim_work(task_states)
    await turn(loop)
    await time.tick(HEARTBEAT_TIMEOUT + SECOND)

    await turn(loop)

    row = await task_states.row(held.task_id)
    assert (row["status"], row["crashes"]) == ("retriable_failure", 1)
    assert told.notifications == [(timedelta(), {LAMBDA}, 1)]
    assert [task.task_id for task in await claim_work(task_states)] == [held.task_id]


async def test_what_is_due_again_is_told_of_though_a_part_of_the_round_took_too_long(
    loop, task_states, time, told, monkeypatch
):
    await task_states.new()
    await claim_work(task_states)
    await turn(loop)
    await time.tick(HEARTBEAT_TIMEOUT + SECOND)

    async def takes_too_long(*_):
        raise StatementTimeoutError("it takes too long")

    monkeypatch.setattr(polling, "end_waiting", takes_too_long)
    with pytest.raises(StatementTimeoutError):
        await turn(loop)

    assert told.notifications == [(timedelta(), {LAMBDA}, 1)]


async def test_a_quiet_cell_without_claims_is_asked_seldom_for_its_server_and_always_before_claims_are_void(
    store, task_states, time, told, monkeypatch
):
    checks = []

    class Guard(ReclaimGuard):
        async def left(self, connection):
            checks.append(connection)
            return await super().left(connection)

    pace = Pace(60 * SECOND)
    settings = StoreConsumerSettings(poll_interval=POLL)
    loop = TimeoutLoop(store, settings, Guard(TIMING, time.since_boot), told, pace=pace)
    with pace.listening():
        for _ in range(5):
            await turn(loop)
        assert len(checks) == 1
        await task_states.new()
        (held,) = await claim_work(task_states)
        await turn(loop)  # sees the claim
        checks.clear()
        await turn(loop)
        assert len(checks) == 1
        await time.tick(HEARTBEAT_TIMEOUT + SECOND)
        checks.clear()
        await turn(loop)

    assert len(checks) >= 2
    assert await task_states.status(held.task_id) == "retriable_failure"
    assert told.notifications == [(timedelta(), {LAMBDA}, 1)]


async def test_of_claims_that_are_renewed_nobody_is_told(loop, task_states, told):
    task = await task_states.processing()

    await turn(loop)

    assert await task_states.status(task.task_id) == "processing"
    assert told.notifications == []


async def test_a_task_that_expired_ends_and_is_told_to_nobody(loop, task_states, time, told):
    created_at = (await task_states.row((await task_states.new(delay=timedelta(days=1))).task_id))[
        "created_at"
    ]
    task = await task_states.new(delay=timedelta(hours=1), expires_at=created_at + 5 * SECOND)
    await time.tick(6 * SECOND)

    await turn(loop)

    assert await task_states.status(task.task_id) == "fatal_failure"
    assert told.notifications == []


async def test_what_a_queue_held_that_is_no_more_is_due_when_its_time_in_the_queue_is_over(
    loop, task_states, time
):
    task = await task_states.enqueued()
    await turn(loop)
    assert await task_states.status(task.task_id) == "enqueued"
    await time.tick(ENQUEUE_TIMEOUT + SECOND)

    await turn(loop)

    assert await task_states.status(task.task_id) == "new"
    assert [each.task_id for each in await claim_work(task_states)] == [task.task_id]


async def test_what_is_due_is_left_to_hosts(loop, task_states):
    task = await task_states.new()

    await turn(loop)

    assert await task_states.status(task.task_id) == "new"


async def test_it_comes_back_when_the_next_claim_may_be_silent_and_at_the_poll_interval_else(
    loop, task_states
):
    assert POLL - SECOND < await turn(loop) <= POLL

    await task_states.claimed()

    assert CLAIM_TIMEOUT - 5 * SECOND < await turn(loop) <= CLAIM_TIMEOUT


async def test_after_a_change_of_the_server_silent_claims_are_left_alone_for_a_lease(
    loop, task_states, time, dsn, told
):
    task = await task_states.processing()
    await turn(loop)
    await time.tick(HEARTBEAT_TIMEOUT + SECOND)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("update store_epoch set server = 'the one before'")

    await turn(loop)
    assert await task_states.status(task.task_id) == "processing"
    await time.tick(TIMING.heartbeat_timeout + SECOND)
    await turn(loop)

    assert await task_states.status(task.task_id) == "retriable_failure"
    assert len(told.notifications) == 1


async def test_a_loop_that_completes_no_round_says_so(loop, monkeypatch):
    await turn(loop)
    assert loop.unhealthy_reason() is None

    monkeypatch.setattr("duly_store_consumer.liveness._LONGEST_ROUND", -2 * POLL.total_seconds() - 1)

    assert "no round was completed" in str(loop.unhealthy_reason())


@pytest.mark.parametrize(
    ("found", "logged"),
    [
        (polling.TimedOut([DUE, DUE], reclaimed=2, ended=1, revoked=3), [("warning", 2, 1)]),
        (polling.TimedOut([], ended=1), [("info", None, 1)]),
    ],
    ids=["holders fell silent", "a node was skipped"],
)
def test_only_what_a_silent_holder_had_is_logged_as_silent(found, logged):
    with capture_logs() as logs:
        events.timeouts_handled(found)

    told = [(each["log_level"], each.get("reclaimed"), each.get("ended", each.get("count"))) for each in logs]
    assert told == logged
