"""One callback process as the Executor sees it: what it was given, what it told, and its end."""

import asyncio
import contextlib
import os
import socket
from asyncio.subprocess import Process
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import NamedTuple

from google.protobuf.message import DecodeError

from duly_core.errors import ApplicationError
from duly_core.host.slot_board import SlotBoard
from duly_executor.containment.process_group import ProcessTree, kill_all
from duly_executor.events import log
from duly_executor.processes import frames
from duly_executor.processes.environment import CallbackEnvironment
from duly_executor.processes.exit_record import ExitRecord
from duly_executor.processes.given_batches import GivenBatches
from duly_executor.processes.report_reader import ReportReader
from duly_executor.processes.spawn import spawn
from duly_wire.ids import TaskId
from duly_wire.v1 import callback_pb2, hsc_pb2, registry_pb2, task_pb2

_AFTER_EXIT = timedelta(milliseconds=500)
"""Between the end of a process and that of its socket, whichever comes first."""

_MOST_REASON = 10_000
"""Characters of why the application cannot be imported."""


_MOST_UNREAD = 256 << 20
"""Bytes of orders that a process has not read. One that takes tasks, hands them back unread and reads nothing would have its
Executor keep them all."""

_SO_PASSRIGHTS = 83
"""Of Linux 6.16; `socket` does not name it yet."""


def refuse_descriptors(link: socket.socket) -> None:
    """Let the other side of a link send no descriptors; older kernels cannot, and the kill timer ends what hangs.

    Whoever reads a descriptor closes it, and the last one to close a TCP socket waits for as long as the socket lingers.
    """
    with contextlib.suppress(OSError):
        link.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)


class StartKilledError(ApplicationError):
    """A signal ended a callback process while it imported the application: that may pass."""


class Overdue(NamedTuple):
    """A callback that was interrupted."""

    since: float
    """When that was (the loop's time)."""
    reason: str
    verdict: hsc_pb2.TaskResult
    """What is to be reported of it if it ends with its process."""


class CallbackProcess:
    """Started, fed in batches, and killed as a whole, with all that it started."""

    def __init__(
        self,
        number: int,
        process: Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        tree: ProcessTree,
        exit_record: ExitRecord,
        environment: CallbackEnvironment,
    ) -> None:
        self.environment = environment
        self.exit_record = exit_record
        self.number = number
        self.process = process
        self.tasks: set[TaskId] = set()
        """Given to it and not answered."""
        self.batches = GivenBatches()
        """Which of these share a call."""
        self.told = 0
        """How many results it has told."""
        self.alone = False
        """Whether it runs a task that must have it for itself."""
        self.separate = ""
        """The lambda that misbehaved lately whose tasks alone it runs; empty: any."""
        self.isolated = False
        """Whether it runs such tasks only: those that must be alone, and those of such lambdas."""
        self.overdue: dict[TaskId, Overdue] = {}
        """What runs in it longer than it may."""
        self.began_at = asyncio.get_running_loop().time()
        """When it was started (the loop's time)."""
        self.is_old = False
        """Whether another is to take its place: it has ended many tasks, or uses much memory."""
        self.lingers_since: float | None = None
        """Since when it takes no more work and lives only for what it runs (the loop's time)."""
        self.ended_at: float | None = None
        """When an attempt last ended in it (the loop's time)."""
        self.waits_since: float | None = None
        """Since when something waits in it for a slot and nothing has ended (the loop's time)."""
        self.slow_slots = 0
        """How many of its slots run callbacks that take long: what waits for a slot gets none of these soon."""
        self.recall_sent_at: float | None = None
        """When it was asked to give back what waits, if it has not answered since (the loop's time)."""
        self.killed_for: TaskId | None = None
        """The task for whose sake it was killed, if it was."""
        self.killed_because = ""
        """Why it was killed."""
        self.fault: str | None = None
        """Why it was killed as if it had crashed, if it was."""
        self._was_strange = False
        self._reports = ReportReader(reader)
        self._writer = writer
        self._tree = tree
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    @classmethod
    async def start(
        cls,
        number: int,
        executor_id: str,
        application: str,
        board: SlotBoard,
        tree: ProcessTree,
        user: str = "",
        environment: CallbackEnvironment | None = None,
        note_process: Callable[[int, int], None] = lambda number, pid: None,  # noqa: ARG005
    ) -> "CallbackProcess":
        """Start the process, as `user` if one is named; it says hello when the application is imported.

        Its callbacks see `environment`; None: what they see without a setting. `note_process` is told its place on the
        board and its pid once it lives, and pid 0 when it does not live any more.

        Raises:
            OSError: it cannot be started (no memory, no descriptors); nothing is left of it then.
        """
        environment = environment or CallbackEnvironment(os.environ)
        process = None
        with contextlib.ExitStack() as on_failure:
            try:
                board.make_room()  # a callback of this user may have truncated it
                exit_record = ExitRecord()
                on_failure.callback(exit_record.read)
                ours, theirs = socket.socketpair()
                on_failure.callback(ours.close)
                refuse_descriptors(ours)
                with theirs:
                    process = await spawn(
                        number,
                        executor_id,
                        application,
                        theirs,
                        board,
                        tree,
                        exit_record,
                        user,
                        environment.variables,
                    )
                tree.holds(process.pid)
                note_process(number, process.pid)
                reader, writer = await asyncio.open_connection(sock=ours)
            except BaseException:
                if process is not None:
                    kill_all(process.pid, tree)
                    await process.wait()
                await tree.emptied()
                board.clear(number)
                note_process(number, 0)
                raise
            on_failure.pop_all()
        return cls(number, process, reader, writer, tree, exit_record, environment)

    @property
    def takes_others(self) -> bool:
        """Whether it may be given any task: not while it owes an answer, for it may never give one."""
        return not (self.alone or self.isolated or self.separate) and self.takes_any

    @property
    def takes_any(self) -> bool:
        """Whether it may be given a task at all."""
        return self.works and self.recall_sent_at is None

    @property
    def works(self) -> bool:
        """Whether it is one of those that take work: it was not killed, and does not linger."""
        return self.killed_for is None and self.lingers_since is None

    @property
    def blocks_others(self) -> bool:
        """Whether something overdue may keep others in it from ending: it owes an answer since that was interrupted."""
        return bool(self.overdue) and self.recall_sent_at is not None

    @property
    def is_free(self) -> bool:
        """Whether it takes work and has none."""
        return not self.tasks and not self.alone and self.takes_any

    @property
    def load(self) -> int:
        """How many slots its tasks take, and wait for."""
        return len(self.tasks) - self.batches.beyond_slots

    def end(self, task_id: TaskId) -> bool:
        """Note that a task has ended or will not start; return whether others of its batch are left."""
        self.tasks.discard(task_id)
        return bool(self.batches) and self.batches.end(task_id)

    def idles_since(self, instant: float) -> bool:
        """Whether no attempt has ended in it since then (the loop's time)."""
        return self.ended_at is None or self.ended_at < instant

    async def hello(self) -> list[registry_pb2.Lambda]:
        """Wait for the application; its lambdas.

        Raises:
            ApplicationError: it cannot be imported, declares nothing, or ended the process.
        """
        report = await self.read()
        if report is None:
            code = await self.ended()
            killed = code < 0
            ending = f"was killed by signal {-code}" if killed else f"ended with exit code {code}"
            error = StartKilledError if killed else ApplicationError
            raise error(f"the callback process {ending} while it imported the application")
        if report.import_error:
            await self.ended()
            raise ApplicationError(self.environment.with_hint(report.import_error[:_MOST_REASON]))
        return list(report.hello.lambdas)

    async def read(self) -> callback_pb2.CallbackReport | None:
        """What it tells next; None when it is gone, or says what nobody understands, which is a misdeed."""
        try:
            return await self._reports.read()
        except DecodeError:
            self.fault = "sent its Executor what nobody understands"
            return None

    def own(self, task_ids: Collection[TaskId]) -> set[TaskId]:
        """Those of these that it was given and has not told the end of; that it told of others is logged once."""
        own = self.tasks.intersection(task_ids)
        if len(own) < len(task_ids) and not self._was_strange:
            self._was_strange = True
            log.warning("callback process reported on a task that it was not given", pid=self.process.pid)
        return own

    def share_if_idle(self) -> None:
        """With nothing to run, it is no longer for one task or one lambda only."""
        if not self.tasks:
            self.alone = False
            self.separate = ""

    async def _watch(self) -> int:
        """Its exit code. Descendants of user code may hold the socket open: they end, or nobody listens to them."""
        code = await self.process.wait()
        self._kill_group()
        loop = asyncio.get_running_loop()
        loop.call_later(_AFTER_EXIT.total_seconds(), self._writer.transport.abort)
        return code

    def give(self, tasks: Mapping[TaskId, hsc_pb2.ClaimedTask], start_before_boot_ns: int) -> None:
        """Have these run, in their order; they must start before that instant."""
        self.tasks.update(tasks)
        for part in frames.divided(list(tasks.values()), hsc_pb2.ClaimedTask.ByteSize):
            self._write(callback_pb2.CallbackOrder(tasks=part, start_before_boottime_ns=start_before_boot_ns))

    def give_batch(self, tasks: Mapping[TaskId, hsc_pb2.ClaimedTask], start_before_boot_ns: int) -> None:
        """Have these run in one call; they must start before that instant."""
        self.tasks.update(tasks)
        self.batches.add(tasks.keys())
        order = callback_pb2.CallbackOrder(start_before_boottime_ns=start_before_boot_ns)
        order.batches.add(tasks=tasks.values())
        self._write(order)

    def cancel(self, task_ids: Iterable[TaskId]) -> None:
        """Ask these to stop."""
        self._write(callback_pb2.CallbackOrder(cancel=task_ids))

    def interrupt(self, overdue: Mapping[TaskId, Overdue]) -> None:
        """Raise an exception in the callback of these, which share a call if they are several, or cancel its asyncio task."""
        self.overdue.update(overdue)
        self._write(callback_pb2.CallbackOrder(interrupt=overdue))

    def retire(self) -> None:
        """Let it take no more work, and live for what it runs. What it has not started goes to others."""
        self.lingers_since = asyncio.get_running_loop().time()
        self.recall()

    def recall(self) -> None:
        """Have it give back what it has not started; it answers even if that is nothing."""
        if self.recall_sent_at is None:
            self.recall_sent_at = asyncio.get_running_loop().time()
        self._write(callback_pb2.CallbackOrder(recall=True))

    def answer(self, answer: callback_pb2.AttachmentAnswer) -> None:
        """Answer a call for an attachment."""
        self._write(callback_pb2.CallbackOrder(attachment_answers=[answer]))

    def _write(self, order: callback_pb2.CallbackOrder) -> None:
        if not self._writer.is_closing():
            self._writer.write(frames.write(order))
            if self._writer.transport.get_write_buffer_size() > _MOST_UNREAD and self.killed_for is None:
                self.fault = "does not read what its Executor sends"
                self.kill(b"")

    def kill(self, for_task: TaskId | None = None, because: str = "") -> None:
        """End it at once, with what it started."""
        if self.killed_for is None:
            self.killed_for = for_task
            self.killed_because = because
        self._kill_group()

    def _kill_group(self) -> None:
        kill_all(self.process.pid, self._tree)

    def keeps_back(self, result: hsc_pb2.TaskResult) -> bool:
        """Whether this end of a callback that was interrupted is told only when the process is dead.

        So it is while something lives that a callback here has started: it may be this one's, and goes with the process.
        """
        overdue = self.overdue.get(result.claim.task_id)
        interrupted = result.outcome == hsc_pb2.OUTCOME_CANCELLED or (
            result.failure_kind == task_pb2.FAILURE_KIND_MAX_RUNTIME
        )
        if overdue is None or not interrupted or not self._tree.holds_others():
            return False
        self.overdue[result.claim.task_id] = Overdue(float("-inf"), overdue.reason, result)
        return True

    async def ended(self) -> int:
        """Wait for its end and for that of what it started, having killed both; the exit code, negative for a signal.

        What is certain then of what it started, the containment says; where that promises little, its process
        group was sent SIGKILL at least.
        """
        await asyncio.wait([self._watching], timeout=_AFTER_EXIT.total_seconds())
        self._kill_group()  # it has closed its socket: even if it lives, it is of no more use
        code = await self._watching
        await self._tree.emptied()
        self._writer.close()
        self.exit_record.read(code)
        return code
