"""An autoscaler of an installation with cells: one leads, needs of all cells are summed, and a cell that is away ends no worker."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from duly_autoscaler.__main__ import build
from duly_autoscaler.leadership import Leadership
from duly_autoscaler.loads import CellLoads
from duly_autoscaler.pool_cells import cells_of
from duly_autoscaler.rounds import Rounds
from duly_core.cells.directory import Cell, Directory
from duly_core.errors import StoreUnavailableError
from duly_core.gates.cache import FixedGates
from duly_core.pools import store as pools
from duly_core.pools.lease import NO_FENCE, PlanToWrite, read_leader, take_lease, write_plans
from duly_core.pools.planner import Memory, Plan
from duly_core.pools.rules import Pool
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_local.ports import free_ports
from duly_wire.v1 import explain_pb2, explain_pb2_grpc
from tests.fixtures.database import ask
from tests.fixtures.routed_cells import serves
from tests.fixtures.service_processes import poll
from tests.fixtures.services import BreakableConnection
from tests.fixtures.task_states import TaskStates

SECOND = timedelta(seconds=1)
LAMBDAS = {"a": "send", "b": "mail/send"}
BOTH = Pool(name="both", lambdas=("*",), maximum=9, idle_time=timedelta(), driver="none", target_age=SECOND)


@dataclass
class Cells:
    """Two cells, the second behind a line that a test can cut, and an autoscaler that takes its turns when it is told."""

    directory: Directory
    stores: dict[str, Store]
    line: BreakableConnection
    loads: CellLoads
    rounds: Rounds

    async def schedule(self, cell: str, tasks: int) -> None:
        """Write tasks that are due now; with the target age of the pool each needs a worker."""
        states = TaskStates(self.stores[cell])
        for _ in range(tasks):
            await states.new(lambda_name=LAMBDAS[cell])

    async def end(self, cell: str) -> None:
        """Take out the tasks of a cell, as if they had never been."""
        async with self.stores[cell].connection() as connection:
            await connection.execute("delete from task_assoc")
            await connection.execute("delete from task")

    async def planned(self, pool: str = "both") -> tuple[int, str]:
        """Plan; return how many workers there are to be, and the first reason."""
        await self.rounds.run_once()
        plan = (await pools.list_plans(self.stores["a"], [pool]))[pool]
        return plan.desired, plan.reasons[0]


@pytest.fixture
async def cells(two_cells):
    line = BreakableConnection(two_cells.dsn("b"))
    await line.restore()
    async with AsyncExitStack() as stack:
        stores = {cell: await stack.enter_async_context(Store(two_cells.settings(cell))) for cell in LAMBDAS}
        for cell, name in LAMBDAS.items():
            await TaskStates(stores[cell]).register(name)
        patient = StoreSettings(  # a round must not wait for a cell until its store gives up
            dsn=line.dsn, schema_name="public", acquire_timeout=30 * SECOND, statement_timeout=30 * SECOND
        )
        far = await stack.enter_async_context(Store(patient))
        loads = CellLoads(lambda: two_cells.directory)
        stack.enter_context(loads.reading("a", stores["a"], FixedGates()))
        stack.enter_context(loads.reading("b", far, FixedGates()))
        await pools.put_pool(stores["a"], BOTH.name, lambda _: BOTH)
        leadership = Leadership(stores["a"], "one", timedelta(minutes=5))
        await leadership.run_once()
        rounds = Rounds(stores["a"], leadership, {}, loads, 2 * SECOND, SECOND, home="a")
        yield Cells(two_cells.directory, stores, line, loads, rounds)
        await rounds.close()
        await leadership.give_up()
        await line.cut()


async def test_the_needs_of_all_cells_are_summed_for_a_pool_and_a_pool_of_one_cell_has_that_of_its_own(cells):
    await pools.delete_pools(cells.stores["a"], ["both"])  # which would share with those of one cell
    for (cell, name), tasks in zip(LAMBDAS.items(), (2, 4), strict=True):
        own = replace(BOTH, name=cell, lambdas=(name,))
        await pools.put_pool(cells.stores["a"], cell, lambda _, own=own: own)
        await cells.schedule(cell, tasks)

    alone = [(await cells.planned(name))[0] for name in LAMBDAS]
    await pools.delete_pools(cells.stores["a"], [*LAMBDAS])
    await pools.put_pool(cells.stores["a"], "both", lambda _: BOTH)
    both = await cells.planned()

    assert (alone, both[0]) == ([2, 4], 6), both
    assert "6 tasks are due" in both[1]


async def test_what_a_cell_said_last_counts_while_it_is_away_and_no_worker_ends_for_it(cells):
    await cells.schedule("b", 4)
    before = await cells.planned()
    await cells.line.cut()
    await cells.schedule("a", 2)

    more = await cells.planned()
    await cells.end("a")
    kept = await cells.planned()
    await cells.end("b")
    await cells.line.restore()

    async def fewer():
        return (await cells.planned())[0] == 0

    assert (before[0], more[0]) == (4, 6)
    assert kept == (6, "6 workers are kept: cell b does not answer, and may have tasks")
    await poll(fewer)


async def test_an_autoscaler_that_begins_while_a_cell_is_away_ends_no_worker_and_starts_what_the_others_need(
    cells,
):
    await cells.schedule("b", 3)
    await cells.planned()
    await cells.line.cut()
    with cells.loads.reading("b", Store(cells.stores["b"].settings), FixedGates()):
        cells.loads._known.clear()
        cells.loads._units.pop("b")  # the process is another one: it never read that cell
        kept = await cells.planned()
        await cells.schedule("a", 5)
        more = await cells.planned()

    assert kept[0] == 3
    assert more[0] == 5


async def test_a_budget_and_a_lower_maximum_hold_while_a_cell_is_away(cells):
    await cells.schedule("b", 4)
    await cells.planned()
    await cells.line.cut()
    await pools.put_pool(cells.stores["a"], "both", lambda _: replace(BOTH, maximum=2))

    assert (await cells.planned())[0] == 2


async def test_a_round_does_not_wait_until_a_cell_that_hangs_answers_and_its_late_answer_counts(cells):
    await cells.schedule("b", 4)
    cells.line.freeze()
    await cells.schedule("a", 1)

    alone = await cells.planned()
    reading = cells.loads._units["b"].reading
    assert reading is not None
    assert not reading.done()
    cells.line.thaw()
    await asyncio.wait({reading})
    both = await cells.planned()

    assert (alone[0], both[0]) == (1, 5)


async def test_without_the_home_cell_nothing_is_planned(cells):
    cells.loads._units.pop("a")

    with pytest.raises(StoreUnavailableError, match="cell a"):
        await cells.rounds.run_once()


async def test_due_times_of_a_cell_whose_clock_goes_ahead_are_told_by_the_home_clock(cells, two_cells):
    ahead = timedelta(minutes=30)
    for cell, by in (("a", timedelta()), ("b", ahead)):
        async with cells.stores[cell].connection() as connection:
            await connection.execute(
                "create or replace function duly_now() returns timestamptz language sql volatile as "
                f"$$ select clock_timestamp() + interval '{by.total_seconds()} s' $$".encode()
            )
        await TaskStates(cells.stores[cell]).new(lambda_name=LAMBDAS[cell], delay=timedelta(minutes=4))

    found = await cells.loads.read("a", [BOTH], timedelta(minutes=10))

    own, far = ([due.at for due in load.due] for load in found.loads["both"])
    assert len(own) == len(far) == 1
    assert abs(far[0] - own[0]) < 20 * SECOND


@pytest.mark.parametrize(
    ("lambdas", "cells"),
    [
        (["send"], ["a"]),
        (["send.*", "sort/*"], ["a"]),
        (["mail/send"], ["b"]),
        (["mail/*", "send"], ["a", "b"]),
        (["*"], ["a", "b"]),
        (["ma*"], ["a"]),
        (["mailing*"], ["a"]),
    ],
)
def test_a_pool_is_of_the_cells_in_which_its_patterns_may_have_lambdas(lambdas, cells):
    cell = Cell("a", "host=a", "public")
    directory = Directory(UUID(int=7), 1, {"a": cell, "b": replace(cell, name="b")}, {"mail": "b"}, "a")

    assert sorted(cells_of(replace(BOTH, lambdas=tuple(lambdas)), directory)) == cells


async def test_processes_whose_own_cells_differ_have_one_leader_which_plans_for_the_tasks_of_all_cells(
    two_cells, monkeypatch
):
    for cell, name in LAMBDAS.items():
        async with Store(two_cells.settings(cell)) as store:
            states = TaskStates(store)
            await states.register(name)
            await states.new(lambda_name=name)
            await pools.put_pool(store, BOTH.name, lambda _: BOTH)
    monkeypatch.setenv("DULY_RPC_SHUTDOWN_GRACE", "100ms")
    stop = asyncio.Event()
    running = []
    for cell, port in zip("ab", free_ports(2), strict=True):
        monkeypatch.setenv("DULY_STORE_DSN", two_cells.dsn(cell))
        running.append(asyncio.ensure_future(build(listen=f"127.0.0.1:{port}", interval="200ms")(stop)))

    async def planned():
        return ask(two_cells.dsn("a"), "select desired from pool_plan") == [(2,)]

    await poll(planned)
    async with Store(two_cells.settings("a")) as store:
        leader = await read_leader(store)
    plans_of_b = ask(two_cells.dsn("b"), "select desired from pool_plan")
    leaders_of_b = ask(two_cells.dsn("b"), "select holder from autoscaler_lease")
    reported = ask(two_cells.dsn("a"), "select service from service_instance")
    stop.set()
    await asyncio.gather(*running)

    assert leader.leads
    assert (plans_of_b, leaders_of_b) == ([], [("",)])
    assert reported == [("autoscaler",)] * 2


async def test_a_task_of_another_cell_is_explained_by_the_plans_of_the_default_cell(
    routed_cells, channel_of_cells
):
    async with Store(StoreSettings(dsn=routed_cells.dsns["b"])) as far:
        states = TaskStates(far)
        await states.register("b/send")
        task = await states.new(lambda_name="b/send")
        await pools.put_pool(far, BOTH.name, lambda _: BOTH)
    async with Store(StoreSettings(dsn=routed_cells.dsns["a"])) as home:
        await pools.put_pool(home, BOTH.name, lambda _: BOTH)
        fence = await take_lease(home, "one", NO_FENCE, timedelta(minutes=5))
        assert fence is not None
        plan = Plan(3, ("three",), Memory(desired=3), 3)
        assert await write_plans(home, "one", fence, datetime.now(UTC), [PlanToWrite(BOTH.name, plan)], [])
    stub = explain_pb2_grpc.ExplainServiceStub(channel_of_cells)
    request = explain_pb2.ExplainTaskRequest(task_id=str(UUID(bytes=task.task_id)))

    (found,) = [each for each in (await stub.ExplainTask(request)).reasons if "pool both" in each.text]
    await routed_cells.lines["a"].cut()
    await serves(channel_of_cells, "a", expected=False)
    without = (await stub.ExplainTask(request)).reasons

    assert "the pool both serves it: it wants 3 workers, 0 are alive" in found.text
    assert "the autoscaler says why" in found.action
    assert without[0].kind == found.kind
    assert "pool" not in without[0].text
