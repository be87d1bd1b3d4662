"""Postgres fails over to a standby that lagged: nobody loses a claim that may still be alive, and no task is lost."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta

import psycopg
import pytest

from duly_core.config.timing import Timing
from duly_core.errors import QueueUnavailableError, StoreUnavailableError
from duly_core.postgres.pool import Store
from duly_core.postgres.schema.check import check_store
from duly_core.postgres.schema.migrate import migrate
from duly_core.postgres.settings import StoreSettings
from duly_core.process.clock import since_boot_ns
from duly_core.queues.port import QueueSender
from duly_core.tasks import claims
from duly_core.tasks.task import HeartbeatAnswer, TaskHeartbeat
from duly_local.postgres.embedded import EmbeddedPostgres
from duly_local.testing.owned_folder import owned_folder
from duly_store_consumer.consumer import Consumer
from duly_store_consumer.reclaim_guard import ReclaimGuard
from duly_store_consumer.settings import StoreConsumerSettings
from tests.fixtures.clock import REPLACED
from tests.fixtures.memory_queue import MemoryQueues
from tests.fixtures.queues import MemoryInstallation
from tests.fixtures.standby import Standby, either_of
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, SECOND, TaskStates

TIMING = Timing(profile="embedded")
LEASE = TIMING.heartbeat_timeout
QUICK = {"fsync": "off"}


@dataclass
class Pair:
    """A primary and its standby, and the hand on their one clock."""

    primary: EmbeddedPostgres
    standby: Standby
    ahead: timedelta = timedelta()

    @property
    def dsn(self) -> str:
        return either_of(self.primary, self.standby)

    def tick(self, duration: timedelta) -> None:
        """Time passes, for the store and for its Store Consumers alike."""
        self.ahead += duration
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("update test_clock set ahead = %s", [self.ahead])

    def fail_over(self) -> None:
        self.primary.stop()
        self.standby.promote()


@pytest.fixture
def pair() -> Iterator[Pair]:
    """The standby knows the schema and what the primary has committed so far."""
    with owned_folder() as folder, EmbeddedPostgres(folder / "primary", settings=QUICK) as primary:
        migrate(primary.dsn)
        with psycopg.connect(primary.dsn, autocommit=True) as connection:
            connection.execute(REPLACED)
        standby = Standby(primary, folder / "standby", QUICK)
        try:
            standby.start()
            yield Pair(primary, standby)
        finally:
            standby.stop()


@dataclass
class Fleet:
    """Store Consumers on the pair; each has been there since it was made."""

    pair: Pair
    store: Store
    sender: QueueSender
    queues: MemoryQueues

    def consumer(self) -> Consumer:
        def since_boot() -> int:
            return since_boot_ns() + int(self.pair.ahead / timedelta(microseconds=1)) * 1000

        settings = StoreConsumerSettings()
        reclaim_guard = ReclaimGuard(TIMING, since_boot)
        return Consumer(self.store, self.sender, settings, reclaim_guard)

    async def turn(self, *consumers: Consumer) -> None:
        """A round of each, that takes up silences; the first after an outage has to find the new primary."""
        for consumer in consumers:
            async with asyncio.timeout(20):
                while not await self._turned(consumer):
                    pass

    async def _turned(self, consumer: Consumer) -> bool:
        consumer._timeouts._handled_at = float("-inf")
        try:
            await consumer.run_once()
        except (StoreUnavailableError, QueueUnavailableError):
            return False
        return True

    def read(self, query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.pair.dsn) as connection:
            return connection.execute(query.encode()).fetchall()


@pytest.fixture
async def fleet(pair: Pair, memory_queue: MemoryInstallation) -> AsyncIterator[Fleet]:
    async with Store(StoreSettings(dsn=pair.dsn, acquire_timeout=10 * SECOND)) as store:
        yield Fleet(pair, store, await memory_queue.open_sender(), memory_queue.queues)


SILENT = "select task_id from task_assoc where status = 'processing' and next_trigger_at <= duly_now()"


@pytest.mark.long  # two servers of Postgres, made for this test; test_reclaim_guard.py has the rule
async def test_heartbeats_that_a_failover_loses_cost_nobody_his_claim_and_no_task_is_lost(
    pair: Pair, fleet: Fleet
) -> None:
    task_states = TaskStates(fleet.store)
    await task_states.register()
    running, dead = await task_states.processing(), await task_states.processing()
    on_its_way = await task_states.enqueued()
    seasoned, other = fleet.consumer(), fleet.consumer()
    await fleet.turn(seasoned, other)
    pair.standby.catch_up()
    pair.standby.cut_off()

    pair.tick(LEASE - 5 * SECOND)
    beat = TaskHeartbeat(running.task_id, running.token)
    assert await claims.heartbeat(task_states.store, [beat], HEARTBEAT_TIMEOUT) == [
        HeartbeatAnswer.KEPT
    ]  # and this is lost
    pair.fail_over()
    await check_store(
        StoreSettings(dsn=pair.dsn), None
    )  # as a service that starts now would: it finds the new primary
    pair.tick(6 * SECOND)
    newcomer = fleet.consumer()
    assert len(fleet.read(SILENT)) == 2  # both look dead, and one of them is not

    await fleet.turn(seasoned, newcomer, other)
    pair.tick(LEASE - 2 * SECOND)
    await fleet.turn(other, seasoned, newcomer, fleet.consumer())
    assert [await task_states.status(task.task_id) for task in (running, dead)] == ["processing"] * 2
    assert await claims.heartbeat(task_states.store, [beat], HEARTBEAT_TIMEOUT) == [HeartbeatAnswer.KEPT]

    pair.tick(3 * SECOND)
    await fleet.turn(newcomer)
    assert await task_states.status(running.task_id) == "processing"
    assert [await task_states.status(task.task_id) for task in (dead, on_its_way)] == ["enqueued"] * 2
    assert fleet.queues.references(LAMBDA) == Counter([dead.task_id])

    pair.tick(ENQUEUE_TIMEOUT)
    await fleet.turn(newcomer)
    assert fleet.queues.references(LAMBDA)[on_its_way.task_id] == 1


@pytest.mark.long  # two servers of Postgres, made for this test; test_reclaim_guard.py has the rule
async def test_a_claim_that_a_failover_loses_is_given_again_and_new_tasks_go_on(
    pair: Pair, fleet: Fleet
) -> None:
    task_states = TaskStates(fleet.store)
    await task_states.register()
    consumer = fleet.consumer()
    tasks = [await task_states.new() for _ in range(20)]
    await fleet.turn(consumer)
    pair.standby.catch_up()
    pair.standby.cut_off()
    lost = await task_states.claim(tasks[0])  # the standby will never know of this claim
    pair.fail_over()
    pair.tick(timedelta())

    await fleet.turn(consumer)  # which finds the new primary
    new = await task_states.new()
    async with asyncio.timeout(10):
        while await task_states.status(new.task_id) != "enqueued":
            await fleet.turn(consumer)
    pair.tick(ENQUEUE_TIMEOUT + SECOND)
    await fleet.turn(consumer)

    assert fleet.queues.references(LAMBDA)[tasks[0].task_id] == 2  # the first one is gone with the claim
    again = await task_states.claim(tasks[0])
    beats = [TaskHeartbeat(lost.task_id, lost.token), TaskHeartbeat(again.task_id, again.token)]
    assert await claims.heartbeat(task_states.store, beats, HEARTBEAT_TIMEOUT) == [
        HeartbeatAnswer.LOST,
        HeartbeatAnswer.KEPT,
    ]
