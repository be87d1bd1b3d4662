"""The Executors of this host: what each serves and holds, and what is done when one dies."""

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from duly.v1 import controller_pb2
from duly_controller.reply_log import HeldClaim, ReplyLog
from duly_core.claim_journal import is_in_memory
from duly_core.journal_folder import TakenJournal
from duly_core.process_identity import boot_id
from duly_core.slot_board import SlotBoard
from duly_core.task import TaskId, Token


@dataclass(slots=True, eq=False)
class AttachedExecutor:
    """One attached Executor process."""

    executor_id: str
    pid: int
    lambdas: frozenset[str]
    board: SlotBoard | None
    pidfd: int
    cgroup: Path | None = None
    """The folder of the cgroup of its callback processes."""
    held: dict[TaskId, Token] = field(default_factory=dict)
    """Claims handed to it and not settled as far as it has told."""
    calls: ReplyLog = field(default_factory=ReplyLog)
    """What its latest calls of NextWork were answered."""
    journal: TakenJournal | None = None
    """Its claim journal, once it is dead."""
    journal_fd: int = -1
    """Its claim journal, if that has no file; -1: it has one, as far as is known."""

    @classmethod
    def of_journal(cls, journal: TakenJournal) -> "AttachedExecutor | None":
        """A dead Executor that was not attached here; None: its journal cannot be read."""
        left = journal.left
        if left is None:
            return None
        owner = left.owner
        cgroup = _cgroup_of(owner.cgroup)
        return cls(owner.executor_id, owner.pid, frozenset(), left.board, -1, cgroup, journal=journal)

    def journaled(self) -> dict[TaskId, Token]:
        """Claims that it held by its own account, and that differ from those it was known here to hold."""
        if self.journal is None or self.journal.left is None:
            return {}
        return dict(self.journal.left.claims.items() - self.held.items())

    def prefixes(self) -> list[bytes]:
        """Of its requests for claims that had no answer."""
        return (
            self.journal.left.prefixes if self.journal is not None and self.journal.left is not None else []
        )

    def settle(self, claims: Iterable[HeldClaim]) -> list[HeldClaim]:
        """Their results are acknowledged, or they are lost; those of them that were held.

        By claim, not by task: a new claim of the same task may be on its way to this Executor.
        """
        settled = [claim for claim in claims if self.held.get(claim[0]) == claim[1]]
        for task_id, _ in settled:
            self.held.pop(task_id, None)
        return settled

    def settle_tasks(self, task_ids: Iterable[TaskId]) -> None:
        """Whatever claims of these are held. Executors of earlier versions tell no more than that."""
        for task_id in task_ids:
            self.held.pop(task_id, None)

    def started_tasks(self) -> dict[TaskId, int]:
        """What had started, by the board, and when (CLOCK_BOOTTIME, 0: unknown); without a board everything may have."""
        if self.board is None:
            return dict.fromkeys((*self.held, *self.journaled()), 0)
        left = self.journal.left if self.journal is not None else None
        this_boot = left is None or left.owner.boot_id == boot_id()
        return {running.task_id: running.started_boot_ns * this_boot for running in self.board.running()}


class ExecutorRegistry:
    """Watches the attached processes by pidfd: their end is known at once, whoever is their parent."""

    def __init__(self, on_end: Callable[[AttachedExecutor], None]) -> None:
        self._on_end = on_end
        self._attached: dict[str, AttachedExecutor] = {}

    def __len__(self) -> int:
        return len(self._attached)

    def get(self, executor_id: str) -> AttachedExecutor | None:
        """The Executor of this id, while its process lives."""
        return self._attached.get(executor_id)

    def all_lambdas(self) -> frozenset[str]:
        """Every lambda that somebody here serves."""
        return frozenset().union(*(executor.lambdas for executor in self._attached.values()))

    def held(self) -> int:
        """How many tasks are with Executors."""
        return sum(len(executor.held) for executor in self._attached.values())

    def attach(
        self, request: controller_pb2.AttachExecutorRequest, lambdas: frozenset[str]
    ) -> AttachedExecutor:
        """Take note of a process, and of what it holds.

        Raises:
            ProcessLookupError: there is no such process.
        """
        executor = self._attached.get(request.executor_id)
        if executor is None:
            board, journal_fd = _open_board(request.pid, request.board_fd)
            executor = AttachedExecutor(
                request.executor_id,
                request.pid,
                lambdas,
                board,
                os.pidfd_open(request.pid),
                _cgroup_of(request.cgroup),
                journal_fd=journal_fd,
            )
            self._attached[request.executor_id] = executor
            asyncio.get_running_loop().add_reader(executor.pidfd, self._ended, executor)
        executor.lambdas = lambdas
        executor.held.update((claim.task_id, claim.token) for claim in request.held)
        return executor

    def _ended(self, executor: AttachedExecutor) -> None:
        self._forget(executor)
        self._on_end(executor)

    def close(self) -> None:
        """Watch nobody any more: whatever ends from now on is another Controller's."""
        for executor in list(self._attached.values()):
            self._forget(executor)

    def _forget(self, executor: AttachedExecutor) -> None:
        asyncio.get_running_loop().remove_reader(executor.pidfd)
        os.close(executor.pidfd)
        self._attached.pop(executor.executor_id, None)


def _cgroup_of(folder: str) -> Path | None:
    """Only what is a cgroup, and named as Executors name theirs, is killed when somebody says it is his."""
    path = Path(folder)
    return path if path.name.startswith("duly-") and (path / "cgroup.procs").exists() else None


def _open_board(pid: int, board_fd: int) -> tuple[SlotBoard | None, int]:
    """Map the Executor's board through its file descriptor; None if that is not permitted.

    Also a descriptor of the claim journal behind it, if that is in memory: nobody can open it when its writer is dead.
    """
    if board_fd <= 0:
        return None, -1
    with suppress(OSError, ValueError):
        descriptor = os.open(f"/proc/{pid}/fd/{board_fd}", os.O_RDWR)
        try:
            board = SlotBoard(descriptor)
            kept = os.dup(descriptor) if is_in_memory(descriptor) else -1
        finally:
            os.close(descriptor)  # the mapping keeps the memory
        return board, kept
    return None, -1
