"""What services of one process share in a cell that is quiet: one connection listens, and one runs the statements of loops."""

import asyncio
from datetime import timedelta

import psycopg
import pytest

from duly_core.postgres.channels import DUE_CHANNEL, GATE_CHANNEL
from duly_core.postgres.listener_group import ListenerGroup
from duly_core.postgres.loop_store import LoopStore
from duly_core.postgres.notifications import Listener
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.statements import Statement
from duly_core.process import pace as paces
from duly_core.process.pace import Pace
from tests.fixtures.database import ask
from tests.fixtures.waiting import until

SECOND = timedelta(seconds=1)
DEADLINE = 10
OWN = Statement("own_backend", "select pg_backend_pid()")
SLOW = Statement("slow", "select pg_advisory_xact_lock(7)")
LISTENERS = "select pid from pg_stat_activity where datname = current_database() and query ilike 'listen %'"


class Hears:
    """A service that listens to a store, by the connection of its group."""

    def __init__(self, dsn, group):
        self.heard = asyncio.Queue()
        self.stop = asyncio.Event()
        listener = Listener(
            StoreSettings(dsn=dsn),
            lambda ahead, _lambdas: self.heard.put_nowait(ahead),
            lambda: self.heard.put_nowait("all"),
            on_gate=lambda: self.heard.put_nowait("gates"),
            group=group,
        )
        self.running = asyncio.ensure_future(listener.run(self.stop))

    async def hears(self, *expected):
        async with asyncio.timeout(DEADLINE):
            assert [await self.heard.get() for _ in expected] == list(expected)

    async def end(self):
        self.stop.set()
        await self.running


async def tell(dsn, channel, payload=""):
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("select pg_notify(%s, %s)", (channel, payload))


async def test_a_service_that_fails_to_hear_ends_the_listening_of_no_other():
    class Fails:
        def begin(self):
            raise ValueError

        def hear(self, channel, payload):
            raise ValueError

    class Notes:
        def __init__(self):
            self.heard = []

        def begin(self):
            self.heard.append("all")

        def hear(self, channel, payload):
            self.heard.append((channel, payload))

    group, notes = ListenerGroup(), Notes()
    with group.joined(Fails()), group.joined(notes), group.listening():
        group.hear(DUE_CHANNEL, "{}")

    assert notes.heard == ["all", (DUE_CHANNEL, "{}")]


@pytest.fixture
async def services(dsn):
    """Two services of one process that hear of the same store; the first of them began to listen."""
    group = ListenerGroup()
    first, second = Hears(dsn, group), Hears(dsn, group)
    await first.hears("all", "gates")
    await second.hears("all", "gates")
    yield first, second
    await first.end()
    await second.end()


async def test_services_of_one_process_hear_all_by_one_connection(services, dsn):
    await tell(dsn, DUE_CHANNEL, "7000")
    await tell(dsn, GATE_CHANNEL)

    for service in services:
        await service.hears(7 * SECOND, "gates")
    assert len(ask(dsn, LISTENERS)) == 1


async def test_the_service_that_listened_ends_and_another_goes_on_and_looks_at_what_it_may_have_missed(
    services, dsn
):
    first, second = services
    await first.end()

    await second.hears("all", "gates")
    await tell(dsn, DUE_CHANNEL, "7000")
    await second.hears(7 * SECOND)
    assert len(ask(dsn, LISTENERS)) == 1


async def test_all_look_again_after_their_connection_was_lost(services, dsn):
    ((pid,),) = ask(dsn, LISTENERS)
    with psycopg.connect(dsn) as connection:
        connection.execute("select pg_terminate_backend(%s)", (pid,))

    for service in services:
        await service.hears("all", "gates")


async def test_a_service_that_comes_later_looks_at_what_was_told_before(dsn):
    group = ListenerGroup()
    first = Hears(dsn, group)
    await first.hears("all", "gates")

    later = Hears(dsn, group)

    await later.hears("all", "gates")
    await later.end()
    await first.end()


@pytest.fixture
async def quiet(monkeypatch):
    """The pace of a cell in which nothing was due lately."""
    monkeypatch.setattr(paces, "_LIVELY_FOR", 0.0)
    pace = Pace(SECOND)
    with pace.listening():
        yield pace


@pytest.fixture
async def loops(dsn, quiet):
    """The connections of loops that look at such a cell."""
    async with LoopStore(quiet).lend(StoreSettings(dsn=dsn)) as store:
        yield store


async def backends_of(store, statements=5):
    found = await asyncio.gather(*(store.run(OWN, {}) for _ in range(statements)))
    return {pid for ((pid,),) in found}


async def test_statements_of_a_quiet_cell_take_turns_on_one_connection(loops):
    assert len(await backends_of(loops)) == 1


async def test_a_statement_that_takes_long_holds_up_no_other(loops, dsn):
    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute(SLOW.sql)
        slow = asyncio.ensure_future(loops.run(SLOW, {}))
        await until(loops._turn.locked)

        await backends_of(loops, 1)

        assert not slow.done()
    await slow


async def test_a_statement_that_fails_ends_its_turn(loops):
    with pytest.raises(psycopg.errors.DivisionByZero):
        await loops.run(Statement("fails", "select 1 / 0"), {})

    assert len(await backends_of(loops)) == 1
    assert not loops._turn.locked()


async def test_statements_of_a_lively_cell_and_of_a_sole_store_do_not_wait_for_each_other(
    dsn, quiet, loops, monkeypatch
):
    monkeypatch.setattr(paces, "_LIVELY_FOR", 60.0)
    quiet.stir()
    assert not await loops.take_turn()

    async with Store(StoreSettings(dsn=dsn)) as sole:
        assert not await sole.take_turn()
