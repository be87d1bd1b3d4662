"""The Executors of this host: what each serves and holds, and what is done when one dies."""

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from duly.v1 import hsc_pb2
from duly_core.board import Board
from duly_core.task import TaskId


@dataclass(slots=True, eq=False)
class Executor:
    """One attached Executor process."""

    executor_id: str
    pid: int
    lambdas: frozenset[str]
    board: Board | None
    pidfd: int
    held: dict[TaskId, hsc_pb2.Claim] = field(default_factory=dict)
    """Claims handed to it and not settled as far as it has told."""

    def settle(self, task_ids: Iterable[TaskId]) -> None:
        """Their results are acknowledged, or their claims lost."""
        for task_id in task_ids:
            self.held.pop(task_id, None)

    def started_tasks(self) -> set[TaskId]:
        """What had started, by the board; without a board everything may have."""
        if self.board is None:
            return set(self.held)
        return {running.task_id for running in self.board.running()}


class Executors:
    """Watches the attached processes by pidfd: their end is known at once, whoever is their parent."""

    def __init__(self, on_end: Callable[[Executor], None]) -> None:
        self._on_end = on_end
        self._attached: dict[str, Executor] = {}

    def __len__(self) -> int:
        return len(self._attached)

    def get(self, executor_id: str) -> Executor | None:
        """The Executor of this id, while its process lives."""
        return self._attached.get(executor_id)

    def all_lambdas(self) -> frozenset[str]:
        """Every lambda that somebody here serves."""
        return frozenset().union(*(executor.lambdas for executor in self._attached.values()))

    def held(self) -> int:
        """How many tasks are with Executors."""
        return sum(len(executor.held) for executor in self._attached.values())

    def attach(self, executor_id: str, pid: int, lambdas: frozenset[str], board_fd: int) -> Executor:
        """Take note of a process.

        Raises:
            ProcessLookupError: there is no such process.
        """
        known = self._attached.get(executor_id)
        if known is not None:
            known.lambdas = lambdas
            return known
        executor = Executor(executor_id, pid, lambdas, _open_board(pid, board_fd), os.pidfd_open(pid))
        self._attached[executor_id] = executor
        asyncio.get_running_loop().add_reader(executor.pidfd, self._ended, executor)
        return executor

    def _ended(self, executor: Executor) -> None:
        asyncio.get_running_loop().remove_reader(executor.pidfd)
        os.close(executor.pidfd)
        self._attached.pop(executor.executor_id, None)
        self._on_end(executor)


def _open_board(pid: int, board_fd: int) -> Board | None:
    """Map the Executor's board through its file descriptor; None if that is not permitted."""
    if board_fd <= 0:
        return None
    with suppress(OSError, ValueError):
        descriptor = os.open(f"/proc/{pid}/fd/{board_fd}", os.O_RDWR)
        try:
            return Board(descriptor)
        finally:
            os.close(descriptor)  # the mapping keeps the memory
    return None
