"""Health follows Postgres after the start, in both directions, and says when a Store Consumer gets nowhere."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from time import monotonic

import pytest
from structlog.testing import capture_logs

from duly_core.errors import StoreRefusedError, StoreUnavailableError
from duly_core.postgres import refusals as statement_refusals
from duly_core.postgres.health import HealthFollower
from duly_core.postgres.pool import Store, connect_arguments
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.statements import Statement
from duly_core.process.loop import repeat
from duly_core.process.pace import QUIET, USUAL, Pace
from duly_store_consumer import liveness
from duly_store_consumer.consumer import Consumer
from duly_store_consumer.settings import StoreConsumerSettings
from tests.fixtures.task_states import SECOND
from tests.fixtures.waiting import until

PATIENCE = SECOND
IMPATIENT = {"acquire_timeout": SECOND, "statement_timeout": SECOND, "connect_timeout": SECOND}


class Told:
    """What health checks would be told."""

    def __init__(self):
        self.history = []

    async def set_serving(self, *, serving):
        self.history.append(serving)


@pytest.fixture
async def far_store(line):
    async with Store(StoreSettings(dsn=line.dsn, **IMPATIENT)) as opened:
        await opened.ping()
        yield opened


@pytest.fixture
async def followed():
    """Starts followers, and ends them."""
    stop = asyncio.Event()
    running = []

    def follow(*stores, patience=PATIENCE, **more):
        told = Told()
        follower = HealthFollower(told, stores, patience, **more)
        running.append(asyncio.ensure_future(follower.run(stop)))
        return told

    yield follow
    stop.set()
    await asyncio.gather(*running)


@pytest.mark.parametrize("pace", [USUAL, Pace(QUIET)], ids=["sole store", "cell"])
@pytest.mark.parametrize("how", ["cut", "freeze"])
async def test_health_follows_an_outage_down_and_up_without_flapping(line, far_store, followed, how, pace):
    told = followed(far_store, pace=pace)
    await until(lambda: told.history == [True])
    if how == "cut":
        await line.cut()
    else:
        line.freeze()

    await until(lambda: told.history == [True, False], 8 * SECOND)
    if how == "cut":
        await line.restore()
    else:
        line.thaw()

    await until(lambda: told.history == [True, False, True], 15 * SECOND)


async def test_of_the_services_of_a_process_one_asks_the_postgres_of_a_cell(store, followed, monkeypatch):
    loop, asked_at, ping = asyncio.get_running_loop(), [], store.ping

    async def ask():
        asked_at.append(loop.time())
        await ping()

    monkeypatch.setattr(store, "ping", ask)
    told = [followed(store, patience=2 * SECOND, pace=Pace(QUIET)) for _ in range(3)]

    await until(lambda: len(asked_at) >= 3)

    assert min(later - before for before, later in pairwise(asked_at)) >= 0.4
    assert [each.history for each in told] == [[True]] * 3


@pytest.mark.long  # asks nothing for seconds
async def test_an_answer_to_any_of_its_pools_is_an_answer_and_makes_asking_needless(
    line, far_store, store, followed
):
    await line.cut()
    begun = monotonic()
    told = followed(far_store, store, patience=2 * SECOND)

    async def work_with(pool):
        while monotonic() - begun < 4:
            with suppress(StoreUnavailableError):
                await pool.ping()

    await asyncio.gather(
        work_with(store), work_with(far_store)
    )  # each for itself: a far one takes a second to fail

    assert told.history == [True]


async def test_a_consumer_that_completes_no_round_is_not_healthy(
    line, far_store, store, followed, memory_queue, monkeypatch
):
    monkeypatch.setattr(liveness, "_LONGEST_ROUND", 0.5)
    sender = await memory_queue.open_sender()
    consumer = Consumer(far_store, sender, StoreConsumerSettings(poll_interval=timedelta(milliseconds=100)))
    stop = asyncio.Event()
    rounds = asyncio.ensure_future(repeat("test", consumer.run_once, stop, consumer.wake))
    told = followed(store, trouble=consumer.unhealthy_reason)
    try:
        await until(lambda: told.history == [True])
        line.freeze()
        await until(lambda: told.history == [True, False])
        line.thaw()
        await until(lambda: told.history == [True, False, True], 20 * SECOND)
    finally:
        stop.set()
        consumer.wake.set()
        await rounds


async def test_what_postgres_refuses_for_good_is_not_healthy_and_is_said_at_error_level(
    store, followed, monkeypatch
):
    monkeypatch.setattr(statement_refusals, "_LASTS", 0.05)
    monkeypatch.setattr(statement_refusals, "_REMEMBERED", 0.5)
    told = followed(store)
    await store.run(Statement("s", "select 1"), {})
    await until(lambda: told.history == [True])

    with capture_logs() as logs:
        refused = []

        async def ask():
            try:
                await store.run(Statement("s", "select 1 from no_such_table"), {})
            except StoreRefusedError as error:
                refused.append(str(error))
            return told.history == [True, False]

        async with asyncio.timeout(10):
            while not await ask():
                await store.ping()

    assert "no_such_table" in refused[0]
    assert "run `duly migrate`" in refused[0]
    (line,) = (line for line in logs if line["log_level"] == "error")
    assert line["event"] == "statement refused by Postgres"
    assert "no_such_table" in line["reason"]
    await until(lambda: told.history == [True, False, True], 10 * SECOND)


async def test_a_schema_that_is_not_made_yet_is_no_error(store):
    with capture_logs() as logs, pytest.raises(StoreUnavailableError, match="has no schema of Duly yet"):
        await store.run(Statement("s", "select 1 from no_such_table"), {})

    assert not logs


def test_a_peer_that_is_gone_is_noticed_within_fifteen_seconds_on_every_connection():
    arguments = connect_arguments(StoreSettings())

    last_probe = (
        arguments["keepalives_idle"] + arguments["keepalives_interval"] * arguments["keepalives_count"]
    )
    assert last_probe <= 15
    assert arguments["tcp_user_timeout"] <= 15_000


@pytest.mark.long  # waits until a dead connection is noticed
async def test_a_black_hole_is_noticed_within_fifteen_seconds_though_its_connection_stays_open(
    line, far_store
):
    line.freeze()
    begun = monotonic()

    with pytest.raises(StoreUnavailableError):
        await far_store.ping()

    assert monotonic() - begun < 15
