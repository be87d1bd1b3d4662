"""An Executor that holds claims of two cells: calls, strikes and deadlines of each, and what ends when one is away."""

import asyncio
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from duly_core.config.timing import Timing
from duly_core.process.clock import since_boot_ns
from duly_executor.claims import heartbeat
from duly_executor.claims.heartbeat import HeartbeatLoop
from duly_executor.claims.lease_schedule import LeaseSchedule
from duly_executor.claims.ledger import HeldClaims
from duly_wire.v1 import hsc_pb2
from tests.fixtures.host import Host, claimed, gone, value_of
from tests.fixtures.programs import is_alive
from tests.fixtures.waiting import until

BRISK = {
    "DULY_TIMING_HEARTBEAT_PERIOD": "500ms",
    "DULY_TIMING_HEARTBEAT_DEADLINE": "500ms",
    "DULY_TIMING_SCHEDULING_LATENESS": "1s",
    "DULY_TIMING_PROCESS_DEADLINE": "8s",
    "DULY_TIMING_HEARTBEAT_TIMEOUT": "10s",
    "DULY_TIMING_CLAIM_TIMEOUT": "10s",
    "DULY_TIMING_KILL_LATENCY": "500ms",
    "DULY_TIMING_CLOCK_STEP": "1s",
}
SECOND_NS = 1_000_000_000


def of_cell(cell: str, task: hsc_pb2.ClaimedTask) -> hsc_pb2.ClaimedTask:
    task.claim.cell = cell
    return task


def running(host: Host) -> dict[str, hsc_pb2.ClaimedTask]:
    """A task of each cell that runs until the test lets it go."""
    return {cell: of_cell(cell, claimed("test.wait", host.journal.payload())) for cell in "ab"}


# ---- the whole process ---------------------------------------------------------------------------------------


async def test_each_heartbeat_call_is_for_claims_of_one_cell(host: Host) -> None:
    tasks = running(host)
    await host.ready("--processes", 2)
    await host.running(*tasks.values())
    first = len(host.hsc.beats)

    await host.hsc.until(lambda: len(host.hsc.beats) >= first + 6)

    cells = [{item.claim.cell for item in beat.items} for beat in host.hsc.beats[first:]]
    assert {"a"} in cells
    assert {"b"} in cells
    assert {"a", "b"} not in cells


async def test_a_cell_that_is_away_ends_the_runs_of_its_own_tasks_and_no_others(host: Host) -> None:
    tasks = running(host)
    executor = await host.ready("--processes", 2, "--slots", 1, **BRISK)
    host.controller.hand_out([tasks["a"]])
    host.controller.hand_out([tasks["b"]])
    of_a = await host.journal.started(tasks["a"])
    of_b = await host.journal.started(tasks["b"])
    await host.hsc.beat_of(tasks["b"])

    host.hsc.away_cells.add("b")
    await gone(of_b)
    await executor.says("cell does not answer heartbeats")
    await host.hsc.beat_of(tasks["a"])

    assert is_alive(of_a)
    assert tasks["b"].claim not in host.hsc.releases
    host.hsc.away_cells.clear()
    await host.hsc.release_of(tasks["b"])
    assert "did not answer heartbeats" in host.hsc.stopped[tasks["b"].claim.task_id].reason
    host.journal.let_go()
    assert (await host.hsc.end_of(tasks["a"])).outcome == hsc_pb2.OUTCOME_SUCCESS
    assert is_alive(executor.pid)
    assert tasks["a"].claim not in host.hsc.releases


async def test_a_process_with_tasks_of_a_cell_that_does_not_answer_is_replaced_before_it_must_be_killed(
    host: Host,
) -> None:
    tasks = running(host)
    waiting = of_cell("b", claimed("test.wait", host.journal.payload()))
    executor = await host.ready("--processes", 1, "--slots", 2, DULY_EXECUTOR_RECALL_AFTER="10m")
    host.controller.hand_out([*tasks.values(), waiting])
    shared = await host.journal.started(tasks["a"])
    assert await host.journal.started(tasks["b"]) == shared

    host.hsc.away_cells.add("b")
    await executor.says("a process with its tasks is replaced")
    host.hsc.away_cells.clear()
    await host.hsc.release_of(waiting)
    later = of_cell("a", claimed("test.wait", host.journal.payload()))
    host.controller.hand_out([later])

    assert await host.journal.started(later) != shared
    assert is_alive(shared)
    host.journal.let_go()
    for task in (*tasks.values(), later):
        assert (await host.hsc.end_of(task)).outcome == hsc_pb2.OUTCOME_SUCCESS
    assert len(host.hsc.releases) == 1


async def test_results_for_a_cell_that_is_away_hold_up_no_others_and_are_brought_when_it_is_back(
    host: Host,
) -> None:
    await host.ready("--processes", 1)
    host.hsc.away_cells.add("b")
    of_b = [of_cell("b", claimed(payload=number)) for number in range(4)]
    for task in of_b:
        host.controller.hand_out([task])
    of_a = [of_cell("a", claimed(payload=number)) for number in range(4)]
    for task in of_a:
        host.controller.hand_out([task])

    for number, task in enumerate(of_a):
        assert value_of(await host.hsc.end_of(task)) == number
    assert all(host.hsc.result_of(task) is None for task in of_b)

    host.hsc.away_cells.clear()
    for number, task in enumerate(of_b):
        assert value_of(await host.hsc.end_of(task)) == number


async def test_an_executor_that_asks_the_hsc_says_that_it_knows_cells(host: Host) -> None:
    host.controller.ask_hsc = True
    host.start()

    await host.hsc.until(lambda: host.hsc.asked)

    assert host.hsc.asked[0].keeps_cells


# ---- strikes and deadlines -----------------------------------------------------------------------------------


class Line:
    """An HSC some of whose cells are away."""

    def __init__(self) -> None:
        self.away: set[str] = set()

    async def Heartbeat(self, request: Any, timeout: float) -> Any:  # noqa: N802
        if request.items[0].claim.cell in self.away:
            metadata = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.INVALID_ARGUMENT, metadata, metadata, "away")
        return hsc_pb2.HeartbeatResponse(verdicts=[hsc_pb2.HEARTBEAT_VERDICT_KEPT] * len(request.items))


class Loop:
    """A heartbeat loop whose callbacks and timer only remember."""

    def __init__(self) -> None:
        self.line = Line()
        self.claims = HeldClaims()
        self.armed: list[int | None] = []
        self.stopped: list[str] = []
        self.deadlines_when_stopped: list[int | None] = []
        self.parted: list[str] = []
        callbacks: Any = SimpleNamespace(
            stop_cell=self._stop_cell, part_from=self.parted.append, runs=lambda _: True
        )
        timer: Any = SimpleNamespace(arm=self.armed.append)
        line: Any = self.line
        self.timing = Timing()
        self.loop = HeartbeatLoop(line, self.claims, LeaseSchedule(self.timing), timer, callbacks)

    def _stop_cell(self, cell: str) -> list[bytes]:
        self.stopped.append(cell)
        self.deadlines_when_stopped.append(self.claims.earliest_deadline())
        return self.claims.give_up(cell)

    def hold(self, cell: str, seconds: float = 30) -> hsc_pb2.ClaimedTask:
        task = of_cell(cell, claimed())
        self.claims.add([task], since_boot_ns() + int(seconds * SECOND_NS))
        return task

    async def beat(self, times: int) -> None:
        for _ in range(times):
            await self.loop.beat("executor")


@pytest.fixture
def held() -> Loop:
    return Loop()


async def test_strikes_of_a_cell_give_up_that_cell_and_the_process_lives_by_the_others(held: Loop) -> None:
    held.hold("a")
    held.hold("b")
    held.line.away.add("b")

    await held.beat(2)
    assert held.stopped == []
    await held.beat(1)

    assert held.stopped == ["b"]
    earliest = held.claims.earliest_deadline()
    assert earliest is not None
    assert earliest > since_boot_ns() + 40 * SECOND_NS  # that of cell a, which was renewed
    assert held.armed[-1] == earliest


async def test_one_strike_before_the_last_the_processes_of_a_cell_get_nothing_else(held: Loop) -> None:
    held.hold("a")
    held.hold("b")
    held.line.away.add("b")

    await held.beat(1)
    assert held.parted == []
    await held.beat(1)
    assert held.parted == ["b"]
    await held.beat(1)

    assert held.parted == held.stopped == ["b"]


async def test_what_runs_for_a_cell_is_killed_before_its_deadlines_are_let_go_of(held: Loop) -> None:
    held.hold("b", seconds=5)
    deadline = held.claims.earliest_deadline()
    held.line.away.add("b")

    await held.beat(3)

    assert held.deadlines_when_stopped == [deadline]
    assert held.claims.earliest_deadline() is None


async def test_a_cell_that_answers_again_has_no_strikes(held: Loop) -> None:
    held.hold("a")
    held.hold("b")
    held.line.away.add("b")
    await held.beat(2)
    held.line.away.clear()
    await held.beat(1)
    held.line.away.add("b")

    await held.beat(2)

    assert held.stopped == []


async def test_a_heartbeat_brings_back_no_deadline_of_what_was_given_up(held: Loop) -> None:
    held.hold("b")
    held.line.away.add("b")
    await held.beat(3)
    held.line.away.clear()

    await held.beat(1)

    assert held.claims.earliest_deadline() is None
    assert len(held.claims) == 1  # until its release is answered


async def test_claims_of_a_sole_store_end_the_process_at_the_last_strike_as_before(
    held: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(heartbeat.os, "kill", lambda _pid, number: killed.append(number))
    held.hold("")
    held.line.away.add("")

    await held.beat(2)
    assert killed == []
    await held.beat(1)

    assert killed == [9]
    assert held.stopped == []


async def test_a_cell_at_the_edge_of_its_deadline_is_given_up_whatever_its_strikes_are(held: Loop) -> None:
    stop = asyncio.Event()
    lateness = held.timing.scheduling_lateness.total_seconds()
    held.hold("a", seconds=60)
    held.hold("b", seconds=lateness / 4)
    held.hold("", seconds=lateness / 4)
    running_on = asyncio.ensure_future(held.loop.run("executor", stop))

    await until(lambda: held.stopped)
    stop.set()
    await running_on

    assert held.stopped == ["b"]  # a sole store's claims are left to the kernel's timer


def test_the_kernels_timer_follows_the_earliest_deadline_of_all_cells(held: Loop) -> None:
    held.hold("a", seconds=30)
    held.hold("b", seconds=5)

    held.loop.rearm()

    assert held.armed == [min(held.claims.earliest_by_cell().values())]
