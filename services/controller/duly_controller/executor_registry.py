"""The Executors attached to this Controller: what each serves, and when its process ends.

It keeps no account of their claims: each Executor journals its own, and the journal outlives it.
"""

import asyncio
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from google.protobuf.timestamp_pb2 import Timestamp

from duly_core.host.claim_journal import read
from duly_core.host.slot_board import SlotBoard
from duly_core.process.identity import started
from duly_core.rpc.requests.times import boot_to_timestamp
from duly_wire.queue_names import QueueName, queues_for
from duly_wire.v1 import controller_pb2

_TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
"""What the kernel counts the starts of processes in."""


@dataclass(slots=True, eq=False)
class AttachedExecutor:
    """One attached Executor process."""

    executor_id: str
    lambdas: frozenset[str]
    pidfd: int
    journal_fd: int
    """Its claim journal, opened while it lived; -1: that is not permitted."""
    board_fd: int = -1
    """Its slot board, likewise."""
    open_calls: dict[bytes, bool] = field(default_factory=dict)
    """Its calls of NextWork that are under way, by token prefix; True: it gave the call up."""
    pid: int = 0
    version: str = ""
    processes: int = 0
    slots: int = 0
    started_at: Timestamp | None = None
    """By this host's clock."""
    declared: tuple[tuple[str, str], ...] = ()
    """Its lambdas and their versions, by name."""
    labels: tuple[str, ...] = ()
    """What it says of this host."""
    served: frozenset[str] = frozenset()
    """What it serves in any case: `lambdas` without the queues of tasks that require labels."""
    board: SlotBoard | None = None
    """A view of `board_fd`; None: it cannot be read."""

    def describe(self, request: controller_pb2.AttachExecutorRequest) -> None:
        """Note what operators are to see of it."""
        self.pid = request.pid
        self.version = request.version
        self.processes = request.processes
        self.slots = request.slots
        self.served = served_by(request)
        self.labels = tuple(sorted({*request.labels}))
        self.declared = tuple(
            sorted((each.name, each.version) for each in request.lambdas if each.name in self.served)
        )
        if (ticks := started(request.pid)) is not None:
            self.started_at = boot_to_timestamp(ticks * _TICK_NS)

    def serve_label_queues(self, known: Iterable[str]) -> bool:
        """Serve those of these queues whose labels this host has, too; return whether they are others than before."""
        versions = {name: version for name, version in self.declared if name in self.served}
        queues = queues_for(self.labels, self.served, known) if self.labels else []
        before = self.lambdas
        self.lambdas = self.served.union(queues)
        self.declared = tuple(
            sorted([*versions.items(), *((name, versions[QueueName.parse(name).base]) for name in queues)])
        )
        return self.lambdas != before

    def busy_slots(self) -> int | None:
        """Return how many callbacks it runs now; None: its board cannot be read."""
        return None if self.board is None else sum(1 for _ in self.board.running())

    def starts(self) -> int | None:
        """Return how many tasks its callback processes have started, so far as is known; None: its board cannot be read."""
        if self.board is None:
            return None
        return sum(self.board.starts(process) for process in range(self.board.processes))

    def close_files(self) -> None:
        """Close the journal and the board."""
        for descriptor in (self.journal_fd, self.board_fd):
            if descriptor >= 0:
                os.close(descriptor)
        self.journal_fd = self.board_fd = -1

    def give_up(self, prefixes: Iterable[bytes]) -> list[bytes]:
        """Note calls whose answer it does not get. Return those that are over: they may have been answered."""
        over = [prefix for prefix in prefixes if prefix not in self.open_calls]
        self.open_calls |= dict.fromkeys(self.open_calls.keys() & set(prefixes), True)
        return over


def served_by(request: controller_pb2.AttachExecutorRequest) -> frozenset[str]:
    """Return the queues whose tasks an Executor runs."""
    return frozenset(request.served or (declared.name for declared in request.lambdas))


class ExecutorRegistry:
    """Watches the attached processes by pidfd: their end is known at once, whoever is their parent."""

    def __init__(self, on_end: Callable[[AttachedExecutor], None]) -> None:
        """Args: `on_end` is called when a process has ended, and owns its descriptors from then on."""
        self._on_end = on_end
        self._attached: dict[str, AttachedExecutor] = {}
        self.label_queues: tuple[str, ...] = ()
        """The queues of tasks that require labels, as the Frontend answered last."""

    def take_label_queues(self, known: Iterable[str]) -> bool:
        """Serve those of these queues whose labels the Executors have; return whether some Executor serves others than before."""
        self.label_queues = tuple(known)
        served = [executor.serve_label_queues(self.label_queues) for executor in self.all()]  # each of them
        return any(served)

    def __len__(self) -> int:
        return len(self._attached)

    def get(self, executor_id: str) -> AttachedExecutor | None:
        """Return the Executor of this id, while its process lives."""
        return self._attached.get(executor_id)

    def all(self) -> list[AttachedExecutor]:
        """Return those whose processes live."""
        return [*self._attached.values()]

    def all_lambdas(self) -> frozenset[str]:
        """Return every lambda that somebody here serves."""
        return frozenset().union(*(executor.lambdas for executor in self._attached.values()))

    def attach(
        self, request: controller_pb2.AttachExecutorRequest, lambdas: frozenset[str]
    ) -> AttachedExecutor:
        """Watch a process.

        Raises:
            ProcessLookupError: there is no such process.
        """
        executor = self._attached.get(request.executor_id)
        if executor is None:
            pidfd = os.pidfd_open(request.pid)
            journal_fd = _open_file(request.pid, request.journal_fd)
            board_fd = _open_file(request.pid, request.board_fd)
            executor = AttachedExecutor(request.executor_id, lambdas, pidfd, journal_fd, board_fd)
            if journal_fd >= 0 and board_fd >= 0:
                with suppress(ValueError, OSError):  # it is no journal
                    executor.board = read(journal_fd, board_fd).board
            self._attached[request.executor_id] = executor
            asyncio.get_running_loop().add_reader(pidfd, self._ended, executor)
        executor.lambdas = lambdas
        executor.describe(request)
        executor.serve_label_queues(self.label_queues)
        return executor

    def _ended(self, executor: AttachedExecutor) -> None:
        self._forget(executor)
        self._on_end(executor)

    def close(self) -> None:
        """Watch nobody any more: whatever ends from now on is another Controller's."""
        for executor in list(self._attached.values()):
            self._forget(executor)
            executor.close_files()

    def _forget(self, executor: AttachedExecutor) -> None:
        asyncio.get_running_loop().remove_reader(executor.pidfd)
        os.close(executor.pidfd)
        executor.board = None
        self._attached.pop(executor.executor_id, None)


def _open_file(pid: int, descriptor: int) -> int:
    """Open a file through the Executor's descriptor: its name may be gone when it is dead, or never have been.

    Return -1 if it cannot be opened, or if nobody like us made it.
    """
    if descriptor <= 0:
        return -1
    try:
        opened = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return -1
    found = os.fstat(opened)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
        return opened
    os.close(opened)
    return -1
