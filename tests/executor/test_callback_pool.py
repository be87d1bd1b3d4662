"""What an Executor tells of tasks whose callback process is dying."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from duly_core.host.slot_board import SlotBoard, SlotWriter
from duly_core.process.clock import since_boot_ns
from duly_executor.claims.ledger import HeldClaims
from duly_executor.processes.exit_handler import ExitHandler
from duly_executor.processes.given_batches import GivenBatches
from duly_executor.processes.process import Overdue
from duly_executor.results.failures import cancelled
from duly_wire.ids import TaskId
from duly_wire.v1 import hsc_pb2
from tests.fixtures.host import claimed


class Dead:
    """As much of a callback process as its burial looks at."""

    number = 0
    killed_for = fault = None
    killed_because = ""
    process = SimpleNamespace(pid=1)

    def __init__(self, *tasks: hsc_pb2.ClaimedTask) -> None:
        self.tasks = {task.claim.task_id for task in tasks}
        self.batches = GivenBatches()
        self.told = 0
        self.overdue: dict[TaskId, Overdue] = {}
        self.exit_record = SimpleNamespace(slot=None, traceback="", stack="")


class Told:
    """What a reporter was told."""

    def __init__(self) -> None:
        self.outcomes: dict[bytes, hsc_pb2.TaskResult] = {}
        self.released: list[bytes] = []
        self.stopped: dict[bytes, hsc_pb2.StoppedRun] = {}

    def results(self, results: Sequence[hsc_pb2.TaskResult]) -> None:
        self.outcomes.update((result.claim.task_id, result) for result in results)

    def release(self, claims: Sequence[hsc_pb2.Claim], stopped: Mapping[TaskId, hsc_pb2.StoppedRun]) -> None:
        self.released += [claim.task_id for claim in claims]
        self.stopped.update(stopped)


class Burial:
    """Three tasks that were given to a process; the last one has not started."""

    def __init__(self) -> None:
        self.told = Told()
        self.board = SlotBoard.create(1, 4)
        self.held_claims = HeldClaims()
        self.tasks = [claimed(), claimed("test.wait"), claimed()]
        self.ids = [task.claim.task_id for task in self.tasks]
        self.held_claims.add(self.tasks, 0)
        for slot, task_id in enumerate(self.ids):
            held = self.held_claims.get(task_id)
            assert held is not None
            held.process = 0
            if slot < 2:
                SlotWriter(self.board.descriptor, 0, 4).started(slot, task_id, since_boot_ns())
        self.process: Any = Dead(*self.tasks)

    def take_place(self, *, died: bool) -> Any:
        told: Any = self.told
        return ExitHandler(self.board, self.held_claims, told).report(self.process, -9, died=died)


@pytest.fixture
def burial() -> Burial:
    return Burial()


def test_all_that_ran_in_a_process_that_died_crashed_and_the_rest_may_run_here(burial: Burial) -> None:
    outcome = burial.take_place(died=True)

    outcomes = {task_id: result.outcome for task_id, result in burial.told.outcomes.items()}
    assert outcomes == dict.fromkeys(burial.ids[:2], hsc_pb2.OUTCOME_CRASHED)
    assert all(result.started_at.seconds for result in burial.told.outcomes.values())
    assert outcome == (2, burial.ids[2:], "")
    assert not burial.told.released


def test_what_may_have_ended_untold_is_handed_back_and_not_run_here_under_the_same_claim(
    burial: Burial,
) -> None:
    slots = SlotWriter(burial.board.descriptor, 0, 4)
    slots.started(2, burial.ids[2], since_boot_ns())
    slots.ended(2)

    outcome = burial.take_place(died=True)

    assert outcome.unstarted == []
    assert burial.told.released == [burial.ids[2]]


def test_what_was_told_before_casts_no_doubt_on_what_waits(burial: Burial) -> None:
    slots = SlotWriter(burial.board.descriptor, 0, 4)
    slots.started(2, b"o" * 16, since_boot_ns())
    slots.ended(2)
    burial.process.told = 1

    assert burial.take_place(died=True).unstarted == burial.ids[2:]


def test_where_last_words_name_the_cause_the_others_are_handed_back(burial: Burial) -> None:
    burial.process.exit_record.slot = 1

    outcome = burial.take_place(died=True)

    assert list(burial.told.outcomes) == [burial.ids[1]]
    assert burial.told.released == [burial.ids[0]]
    assert burial.told.stopped[burial.ids[0]].reason == "its callback process was ended by another task"
    assert burial.told.stopped[burial.ids[0]].started_at.seconds
    assert outcome.culprit == "test.wait"


def test_the_verdict_on_what_is_overdue_is_told_when_its_process_is_dead(burial: Burial) -> None:
    burial.process.killed_for = burial.ids[0]
    burial.process.killed_because = "cancel"
    burial.process.overdue[burial.ids[0]] = Overdue(0.0, "cancel", cancelled(burial.tasks[0]))

    outcome = burial.take_place(died=False)

    assert burial.told.outcomes == {burial.ids[0]: cancelled(burial.tasks[0])}
    assert burial.told.released == [burial.ids[1]]
    assert "did not stop when it was cancelled" in burial.told.stopped[burial.ids[1]].reason
    assert outcome.unstarted == burial.ids[2:]


def test_a_claim_that_came_anew_while_a_process_ran_its_task_is_released(burial: Burial) -> None:
    newer = hsc_pb2.ClaimedTask()
    newer.CopyFrom(burial.tasks[0])
    newer.claim.token = b"n" * 16
    burial.held_claims.add([newer], 0)

    burial.take_place(died=False)

    assert set(burial.told.released) == set(burial.ids[:2])
    assert burial.ids[0] not in burial.told.stopped
