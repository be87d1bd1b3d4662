"""When processes in which a callback does not end stop taking work, and when they are killed."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from duly_core.host.slot_board import SlotBoard
from duly_executor.claims.ledger import HeldClaims
from duly_executor.processes.process import Overdue
from duly_executor.processes.watchdog import Watchdog
from duly_executor.results.failures import cancelled
from duly_executor.settings import ExecutorSettings
from tests.fixtures.host import SECOND, claimed

LATE, LATE_TOO, NEIGHBOUR, ANOTHER_NEIGHBOUR = (bytes([number]) * 16 for number in range(4))


class Process:
    """As much of a callback process as decisions look at."""

    process = SimpleNamespace(pid=1)

    def __init__(self, *tasks: bytes) -> None:
        self.tasks = set(tasks)
        self.overdue: dict[bytes, Overdue] = {}
        self.lingers_since: float | None = None
        self.recall_sent_at: float | None = None
        self.killed_for: bytes | None = None
        self.recalls = 0

    def interrupted(self, task: bytes, at: float) -> None:
        self.overdue[task] = Overdue(at, "max_runtime", cancelled(claimed()))

    def recall(self) -> None:
        self.recalls += 1

    def kill(self, for_task: bytes) -> None:
        self.killed_for = for_task


class FakeCrew:
    """Does what it is told, and nothing by itself."""

    def __init__(self, *processes: Process) -> None:
        self.all = [*processes]
        self.reassigned_at: list[float | None] = []
        """Since when the first process lingered then."""

    def processes(self) -> list[Process]:
        return self.all

    def reassign(self) -> None:
        self.reassigned_at.append(self.all[0].lingers_since)

    def kill_for(self, task_id: bytes, process: Process, reason: str) -> None:
        process.kill(task_id)


def looking_at(*processes: Process, neighbour_grace: timedelta = 1000 * SECOND) -> Watchdog:
    return watching(FakeCrew(*processes), neighbour_grace)


def watching(crew: FakeCrew, neighbour_grace: timedelta = 1000 * SECOND) -> Watchdog:
    pool: Any = crew
    settings = ExecutorSettings(
        interrupt_grace=SECOND, neighbour_grace=neighbour_grace, answer_timeout=5 * SECOND, processes=1
    )
    return Watchdog(SlotBoard.create(1, 1), HeldClaims(), pool, settings, SECOND)


@pytest.fixture
def shared() -> Process:
    process = Process(LATE, NEIGHBOUR)
    process.interrupted(LATE, 10.0)
    return process


def test_within_the_grace_nothing_happens_and_then_the_process_takes_no_more_work(shared: Process) -> None:
    watchdog = looking_at(shared)

    watchdog.end_lingering(10.9)
    assert shared.lingers_since is None
    watchdog.end_lingering(11.1)

    assert shared.lingers_since == 11.1
    assert shared.killed_for is None


def test_what_it_has_not_started_is_called_back_and_goes_elsewhere(shared: Process) -> None:
    crew = FakeCrew(shared)
    watchdog = watching(crew)

    watchdog.end_lingering(11.1)
    watchdog.end_lingering(11.2)

    assert shared.recalls == 1
    assert crew.reassigned_at == [11.1]


def test_it_is_killed_when_its_neighbours_have_ended(shared: Process) -> None:
    watchdog = looking_at(shared)
    watchdog.end_lingering(11.1)

    shared.tasks.discard(NEIGHBOUR)
    watchdog.end_lingering(500.0)

    assert shared.killed_for == LATE


def test_it_is_killed_when_it_lets_no_thread_of_its_own_run(shared: Process) -> None:
    watchdog = looking_at(shared)
    watchdog.end_lingering(11.1)
    shared.recall_sent_at = 11.1

    watchdog.end_lingering(16.0)
    assert shared.killed_for is None
    watchdog.end_lingering(16.2)

    assert shared.killed_for == LATE


def test_it_ends_when_what_was_overdue_and_all_else_has_ended_after_all(shared: Process) -> None:
    watchdog = looking_at(shared)
    watchdog.end_lingering(11.1)

    shared.overdue.clear()
    watchdog.end_lingering(12.0)
    assert shared.killed_for is None
    shared.tasks.clear()
    watchdog.end_lingering(12.1)

    assert shared.killed_for == b""


def test_of_more_than_may_linger_the_oldest_is_killed_after_a_while(shared: Process) -> None:
    other = Process(LATE_TOO, ANOTHER_NEIGHBOUR)
    other.interrupted(LATE_TOO, 20.0)
    watchdog = looking_at(shared, other)

    for now in (11.1, 21.1, 41.0):
        watchdog.end_lingering(now)
    assert shared.killed_for is None
    watchdog.end_lingering(41.2)

    assert shared.killed_for == LATE
    assert other.killed_for is None


def test_it_is_killed_when_its_neighbours_have_had_their_grace(shared: Process) -> None:
    watchdog = looking_at(shared, neighbour_grace=10 * SECOND)
    watchdog.end_lingering(11.1)

    watchdog.end_lingering(21.0)
    assert shared.killed_for is None
    watchdog.end_lingering(21.2)

    assert shared.killed_for == LATE


def test_neighbours_are_left_alone_once_what_was_overdue_has_ended(shared: Process) -> None:
    watchdog = looking_at(shared, neighbour_grace=10 * SECOND)
    watchdog.end_lingering(11.1)

    shared.overdue.clear()
    shared.tasks.discard(LATE)
    watchdog.end_lingering(500.0)

    assert shared.killed_for is None


def test_who_is_late_after_another_ended_has_a_grace_of_its_own_and_so_have_its_neighbours(
    shared: Process,
) -> None:
    watchdog = looking_at(shared, neighbour_grace=10 * SECOND)
    watchdog.end_lingering(11.1)
    shared.overdue.clear()
    shared.tasks = {LATE_TOO, NEIGHBOUR}

    shared.interrupted(LATE_TOO, 500.0)
    watchdog.end_lingering(500.5)  # it may still end by its interruption
    watchdog.end_lingering(510.9)
    assert shared.killed_for is None
    watchdog.end_lingering(511.1)

    assert shared.killed_for == LATE_TOO
