"""Callback processes that are stuck, stopped, or cannot start again: nothing waits for them for ever."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from duly_core.config.timing import Timing
from duly_core.host.slot_board import SlotBoard
from duly_executor.claims.heartbeat import HeartbeatLoop
from duly_executor.claims.lease_schedule import LeaseSchedule
from duly_executor.claims.ledger import HeldClaims
from duly_executor.processes.dispatch import Dispatcher
from duly_executor.processes.suspects import IsolatedLambdas
from duly_executor.processes.watchdog import Watchdog
from duly_executor.settings import ExecutorSettings
from duly_wire.v1 import hsc_pb2
from tests.chaos import process_tree
from tests.fixtures.forked_process import ROOT
from tests.fixtures.host import SECOND, Host, claimed, gone, value_of
from tests.fixtures.programs import is_alive

FLAKY = """
import pathlib, threading
from tests.fixtures.callbacks import app
if pathlib.Path(__file__).with_name("broken").exists():
    raise ValueError("half deployed")
if pathlib.Path(__file__).with_name("hangs").exists():
    threading.Event().wait()
"""


# ---- stopped processes -----------------------------------------------------------------------------------


@pytest.mark.long  # starts an Executor; test_callback_pool.py has the rule; the next test stops a process
async def test_what_a_stopped_idle_process_was_given_runs_in_another_one_here(host: Host) -> None:
    executor = await host.ready(
        "--slots",
        1,
        "--processes",
        2,
        DULY_EXECUTOR_RECALL_AFTER="200ms",
        DULY_EXECUTOR_ANSWER_TIMEOUT="500ms",
    )
    stopped = process_tree.children(executor.pid)[0]
    os.kill(stopped, signal.SIGSTOP)
    task = claimed("test.context")

    host.hand_out(task)  # the first process is the first to get one

    assert value_of(await host.hsc.end_of(task))["pid"] != stopped
    await gone(stopped)


async def test_a_stopped_idle_process_is_killed_and_its_task_handed_back_or_run_in_the_next(
    host: Host,
) -> None:
    executor = await host.ready(
        "--slots", 1, DULY_EXECUTOR_RECALL_AFTER="200ms", DULY_EXECUTOR_ANSWER_TIMEOUT="500ms"
    )
    stopped = process_tree.children(executor.pid)[0]
    os.kill(stopped, signal.SIGSTOP)
    task, after = claimed(), claimed("test.context")

    host.hand_out(task)  # the first process is the first to get one
    # which of both depends on how soon the next process is there
    hsc = host.hsc
    await hsc.until(
        lambda: task.claim in hsc.releases or task.claim in [result.claim for result in hsc.results]
    )
    await gone(stopped)
    host.hand_out(after)

    assert value_of(await host.hsc.end_of(after))["pid"] != stopped


async def test_a_task_that_still_runs_here_under_a_former_claim_ends_before_the_new_one_is_released(
    host: Host,
) -> None:
    old = host.stubborn()
    new = hsc_pb2.ClaimedTask()
    new.CopyFrom(old)
    new.claim.token = os.urandom(16)
    await host.ready("--slots", 2)
    pid = await host.running(old)

    host.hand_out(new)
    await host.hsc.release_of(new)

    assert not is_alive(pid)
    assert not host.hsc.results


# ---- starting again --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "complaint"), [("broken", "half deployed"), ("hangs", "was not imported within 3s")]
)
async def test_an_application_that_cannot_be_imported_again_is_tried_until_it_can(
    host: Host, tmp_path: Path, trouble: str, complaint: str
) -> None:
    (tmp_path / "flaky.py").write_text(FLAKY)
    executor = await host.ready(
        application="flaky:app",
        PYTHONPATH=f"{ROOT}:{tmp_path}",
        DULY_EXECUTOR_IMPORT_TIMEOUT="3s",
        DULY_EXECUTOR_RECALL_AFTER="1h",  # else a slow machine hands the task back before the process is there
    )
    (pid,) = process_tree.children(executor.pid)
    task = claimed()

    (tmp_path / trouble).touch()
    os.kill(pid, signal.SIGKILL)
    await executor.says(complaint)
    (tmp_path / trouble).unlink()
    host.hand_out(task)

    assert value_of(await host.hsc.end_of(task)) is None


async def test_an_application_that_hangs_at_the_first_start_is_fatal(host: Host, tmp_path: Path) -> None:
    (tmp_path / "flaky.py").write_text(FLAKY)
    (tmp_path / "hangs").touch()
    executor = host.start(
        application="flaky:app", PYTHONPATH=f"{ROOT}:{tmp_path}", DULY_EXECUTOR_IMPORT_TIMEOUT="500ms"
    )

    assert await executor.exit_code() == 78

    assert "was not imported within 500ms" in executor.output


# ---- each process by itself ------------------------------------------------------------------------------


class Process:
    """As much of a callback process as decisions look at."""

    def __init__(self, number: int, *, slow: bool) -> None:
        self.number = number
        self.slow = slow
        self.slow_slots = 0
        self.tasks: set[bytes] = set()
        self.alone = self.isolated = False
        self.separate = ""
        self.takes_others = self.takes_any = self.works = True
        self.killed_for: bytes | None = None
        self.recall_sent_at: float | None = None
        self.waits_since: float | None = None
        self.recalls = 0

    @property
    def load(self) -> int:
        return len(self.tasks)

    def recall(self) -> None:
        self.recalls += 1


class FakeCrew:
    """Two processes with a backlog; only the first is stuck."""

    def __init__(self) -> None:
        self.all = [Process(0, slow=True), Process(1, slow=False)]
        self.killed: list[Process] = []
        self.aside_before = self.aside_idle_since = 0.0
        self.running: set[bytes] = set()

    def running_in(self, process: Process) -> set[bytes]:
        return self.running

    def processes(self) -> list[Process]:
        return self.all

    def unstarted_in(self, process: Process) -> set[bytes]:
        return {b"waits"}

    def unassigned(self) -> int:
        return 0

    def hand_back_batches(self) -> None:
        """There are none."""

    def hand_back_isolated(self, came_before: float) -> None:
        self.aside_before = came_before

    def retire_isolated(self, idle_since: float) -> None:
        self.aside_idle_since = idle_since

    def kill_for(self, task_id: bytes, process: Process, reason: str) -> None:
        self.killed.append(process)


def assignment_of(slots: int, moving: Callable[[Any], bool]) -> Dispatcher:
    return Dispatcher(slots, moving, IsolatedLambdas(SECOND), 4)


@pytest.fixture
def pool() -> FakeCrew:
    return FakeCrew()


@pytest.fixture
def look(pool: FakeCrew) -> Callable[[float], None]:
    settings = ExecutorSettings(recall_after=SECOND, answer_timeout=5 * SECOND)
    board = SlotBoard.create(1, 1)
    return Watchdog(board, HeldClaims(), pool, settings, SECOND).limit_waits  # type: ignore[arg-type]


def test_what_waits_in_a_stuck_process_is_recalled_though_another_moves(
    pool: FakeCrew, look: Callable[[float], None]
) -> None:
    for now in (100.0, 100.6, 101.2):
        look(now)
        pool.all[1].waits_since = None  # something ended there

    assert [process.recalls for process in pool.all] == [1, 0]


def test_a_process_that_does_not_answer_a_recall_is_killed(
    pool: FakeCrew, look: Callable[[float], None]
) -> None:
    pool.all[0].recall_sent_at = 100.0

    look(104.9)
    assert not pool.killed
    look(105.1)

    assert pool.killed == [pool.all[0]]


def test_a_process_that_runs_a_callback_may_be_unable_to_answer_and_is_left_to_max_runtime(
    pool: FakeCrew, look: Callable[[float], None]
) -> None:
    pool.all[0].recall_sent_at = 100.0
    pool.running = {b"holds the GIL"}

    look(1000.0)

    assert not pool.killed


def test_suspects_wait_ten_seconds_for_a_process_of_their_own_and_it_a_minute_for_them(
    pool: FakeCrew, look: Callable[[float], None]
) -> None:
    look(100.0)

    assert (pool.aside_before, pool.aside_idle_since) == (90.0, 40.0)
    dispatcher = assignment_of(1, lambda _: True)
    early, late = claimed(crashes=1), claimed(crashes=1)
    dispatcher.add(early, 89.9)
    dispatcher.add(late, 90.1)
    assert dispatcher.take_back_isolated(pool.aside_before) == [early.claim.task_id]
    assert len(dispatcher) == 1


def test_only_a_process_that_moves_is_given_more_than_its_slots(pool: FakeCrew) -> None:
    dispatcher = assignment_of(2, lambda process: not process.slow)  # type: ignore[attr-defined]
    processes: Any = pool.all

    dispatcher.plan_prefetch(10, processes, len(processes))
    assert dispatcher.capacity(processes) == (2 + 2 + 5, 5)
    for _ in range(20):
        dispatcher.add(claimed(), 0.0)
    given = {process.number: len(batch) for process, batch in dispatcher.assign(processes, 0.0)}

    assert given == {0: 2, 1: 7}


def test_a_process_that_has_just_begun_gets_work_however_fast_tasks_ended_before(pool: FakeCrew) -> None:
    """It holds nothing ahead yet; nothing that runs would end, and have the Executor ask again."""
    dispatcher = assignment_of(2, lambda _: False)
    processes: Any = pool.all

    dispatcher.plan_prefetch(1_000, processes, len(processes))
    plan = dispatcher.capacity(processes)

    assert [plan.room(held) for held in (0, 1, 2, 3, 4)] == [4, 3, 2, 1, 0]


def test_while_short_tasks_stream_through_a_quarter_of_what_is_held_ahead_is_asked_for(
    pool: FakeCrew,
) -> None:
    dispatcher = assignment_of(2, lambda _: True)
    processes: Any = pool.all

    dispatcher.plan_prefetch(100, processes, len(processes))
    plan = dispatcher.capacity(processes)

    assert plan == (4 + 100, 100)
    assert [plan.room(held) for held in (0, 78, 79, 104, 200)] == [104, 26, 0, 0, 0]


def test_short_tasks_do_not_wait_for_the_last_free_slot_beside_long_ones(pool: FakeCrew) -> None:
    dispatcher = assignment_of(8, lambda _: True)
    processes: Any = pool.all
    held_up, free = pool.all
    held_up.tasks, held_up.slow_slots = {bytes([number]) for number in range(7)}, 7

    dispatcher.plan_prefetch(90, processes, len(processes))
    assert dispatcher.capacity(processes) == (8 + 8 + 90, 90)
    for _ in range(200):
        dispatcher.add(claimed(), 0.0)
    given = {process.number: len(batch) for process, batch in dispatcher.assign(processes, 0.0)}

    assert given == {held_up.number: 1 + 10, free.number: 8 + 80}


# ---- heartbeats ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("runs", "deadline"), [(False, None), (True, 1_000)])
async def test_a_lost_claim_whose_result_is_on_its_way_no_longer_limits_the_executors_life(
    runs: bool, deadline: int | None
) -> None:
    held_claims = HeldClaims()
    task = claimed()
    held_claims.add([task], 1_000)
    held_claims.report(task.claim.task_id)

    async def answer(request: Any, timeout: float) -> Any:
        return hsc_pb2.HeartbeatResponse(verdicts=[hsc_pb2.HEARTBEAT_VERDICT_LOST_CLAIM])

    stopped: list[bytes] = []
    hsc: Any = SimpleNamespace(Heartbeat=answer)
    kill_timer: Any = SimpleNamespace(arm=lambda _: None)
    callbacks: Any = SimpleNamespace(
        stop_lost=stopped.append, request_cancel=stopped.append, runs=lambda _: runs
    )
    heartbeat_loop = HeartbeatLoop(hsc, held_claims, LeaseSchedule(Timing()), kill_timer, callbacks)

    await heartbeat_loop.beat("executor")

    assert held_claims.earliest_deadline() == deadline
    assert len(held_claims) == 1  # the answer to its result settles it
    assert not stopped
