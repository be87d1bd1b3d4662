"""What an Executor tells of tasks whose callback process is dying."""

from types import SimpleNamespace
from typing import Any

from duly.v1 import hsc_pb2
from duly_core.board import Board
from duly_executor.crew import Crew
from duly_executor.holdings import Holdings
from duly_executor.leases import Leases
from duly_executor.settings import ExecutorSettings
from duly_executor.verdicts import cancelled
from tests.fixtures.host import claimed


class Dying:
    """As much of a callback process as its burial looks at."""

    number = 0
    killed_for = misdeed = None
    process = SimpleNamespace(pid=1)

    def __init__(self, task_id: bytes) -> None:
        self.tasks = {task_id}
        self.verdicts: list[hsc_pb2.TaskResult] = []


def test_nothing_is_told_of_a_task_while_its_process_is_dying() -> None:
    task = claimed()
    told: list[hsc_pb2.TaskResult] = []
    holdings = Holdings(Leases(1_000))
    reporter: Any = SimpleNamespace(results=told.extend, release=lambda claims: None)
    anything: Any = None
    board = Board.create(1, 1)
    crew = Crew(
        "app", "executor", board, anything, holdings, reporter, lambda count: None, ExecutorSettings()
    )
    process: Any = Dying(task.claim.task_id)
    holdings.add([task], 0)
    crew._dying.add(process)

    crew.stop_for(task.claim.task_id, "cancel", cancelled(task))

    assert not told
    crew._dying.discard(process)
    crew._bury(process, -9)
    assert told == [cancelled(task)]
