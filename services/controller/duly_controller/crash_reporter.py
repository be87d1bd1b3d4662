"""What is done for the tasks of an Executor that died: those that had started crashed, the others are handed back."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING

import grpc

from duly_controller import events
from duly_controller.events import log
from duly_controller.executor_registry import AttachedExecutor
from duly_controller.process_cleanup import kill_leftover_processes
from duly_core.host.claim_journal import JournalContents
from duly_core.host.journal_folder import JournalFolder, TakenJournal
from duly_core.process.identity import boot_id
from duly_core.rpc.requests.times import boot_to_timestamp
from duly_core.rpc.retry import until_definite
from duly_wire.ids import TaskId
from duly_wire.v1 import hsc_pb2, task_pb2

if TYPE_CHECKING:
    from duly_wire.v1.hsc_pb2_grpc import HscServiceAsyncStub

_MOST_CLAIMS = 1_000
"""In one call; the HSC takes no more than a few thousand."""
_TAKEOVER_LEASES = 4
"""Reporting is tried for so long: after an outage of everything, the store's leases begin anew."""
_OTHERS_WITHIN = timedelta(seconds=5)
"""How long lost requests wait for the reports to several cells."""
_ANSWERED_BY = timedelta(seconds=1)
"""A request for claims that was under way when its Executor died is over by then."""


class _Death(Enum):
    """What is known of the end of an Executor's process."""

    SEEN = auto()
    """It was attached here, and has ended just now."""
    UNSEEN = auto()
    """It ended at some time: its journal has no owner."""
    WITH_ITS_HOST = auto()
    """The host was started again since: no process of before lives."""


class CrashReporter:
    """Reports at once, so that nobody has to wait for a heartbeat timeout. Stale claims are refused by their tokens."""

    def __init__(
        self, hsc: "HscServiceAsyncStub", journals: JournalFolder, lease: timedelta, call_timeout: timedelta
    ) -> None:
        """Args: `lease` is how long the store leaves a claim alone before it takes the task back by itself."""
        self._hsc = hsc
        self._journals = journals
        self._within = lease * _TAKEOVER_LEASES
        self._call_timeout = call_timeout
        self._running: set[asyncio.Task[None]] = set()

    def report_crash(self, executor: AttachedExecutor, attached: int) -> None:
        """Called when the process of an attached Executor has ended; `attached` Executors are left."""
        journal = self._journals.take(self._journals.name_of(executor.executor_id))
        if journal is None and executor.journal_fd >= 0:  # it has no file
            journal = TakenJournal.in_memory(executor.journal_fd, executor.board_fd)
            executor.journal_fd = executor.board_fd = -1
        executor.close_files()

        def tell(crashed: int, released: int) -> None:
            events.executor_ended(executor.executor_id, crashed, released, attached)

        if journal is None or journal.left is None:  # what it held waits for the end of its leases
            tell(0, 0)
            if journal is not None:
                journal.leave()
        else:
            self._begin(journal, self._report(journal.left, tell, _Death.SEEN))

    def take_over(self, journal: TakenJournal, left: JournalContents, *, host_restarted: bool) -> None:
        """Called with the journal of an Executor of which nothing else is known here, and what it says."""

        def tell(crashed: int, released: int) -> None:
            events.taken_over(left.owner.executor_id, crashed, released)

        self._begin(
            journal, self._report(left, tell, _Death.WITH_ITS_HOST if host_restarted else _Death.UNSEEN)
        )

    def _begin(self, journal: TakenJournal, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._to_the_end(journal, work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _to_the_end(self, journal: TakenJournal, work: Coroutine[object, object, None]) -> None:
        """Only a Controller that ends leaves a journal to others: the next one takes it over."""
        assert journal.left is not None  # noqa: S101 (both callers have looked)
        executor_id, held = journal.left.owner.executor_id, len(journal.left.claims)
        try:
            async with asyncio.timeout(self._within.total_seconds()):
                await work
        except asyncio.CancelledError:
            journal.leave()
            raise
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            log.error("crash report failed", executor=executor_id, tasks=held, reason=reason)
        except Exception:  # noqa: BLE001 (nobody waits for this task: it would be lost without a word)
            log.exception("crash report failed unexpectedly", executor=executor_id, tasks=held)
        journal.remove()

    async def _report(self, left: JournalContents, tell: Callable[[int, int], None], death: _Death) -> None:
        """Report once all of its processes are dead; before that, its callback processes might have started more."""
        if death is not _Death.WITH_ITS_HOST:
            await kill_leftover_processes(left, end_was_seen=death is _Death.SEEN)
        this_boot = left.owner.boot_id == boot_id()
        started = {running.task_id: running.started_boot_ns * this_boot for running in left.board.running()}
        if left.batches:
            started = _with_neighbours(started, left.batches)
        crashed, unstarted = _split(left, started)
        tell(len(crashed), len(unstarted))
        worker_died = death is not _Death.SEEN
        cells = dict.fromkeys(claim.cell for claim in (*crashed, *unstarted))
        reporting = [
            asyncio.get_running_loop().create_task(
                self._report_to(
                    _of_cell(crashed, cell), _of_cell(unstarted, cell), started, worker_died=worker_died
                )
            )
            for cell in cells
        ]
        try:
            # a cell that is away holds up no other, and what is done for lost requests not for long
            if reporting:
                within = None if len(reporting) == 1 else _OTHERS_WITHIN.total_seconds()
                await asyncio.wait(reporting, timeout=within)
            if left.prefixes:  # last: they may be those of tasks that had started, too
                request = hsc_pb2.ReleaseRequest(token_prefixes=left.prefixes)
                await self._call(self._hsc.Release, request)
                await asyncio.sleep(_ANSWERED_BY.total_seconds())
                await self._call(self._hsc.Release, request)
            for failure in await asyncio.gather(*reporting, return_exceptions=True):
                if failure is not None:
                    raise failure
        finally:
            for task in reporting:
                task.cancel()

    async def _report_to(
        self,
        crashed: list[hsc_pb2.Claim],
        unstarted: list[hsc_pb2.Claim],
        started: Mapping[TaskId, int],
        *,
        worker_died: bool,
    ) -> None:
        """Report to one cell."""
        for some in _batches(crashed):
            await self._call(self._hsc.SetResults, _crashes(some, started, worker_died=worker_died))
        for some in _batches(unstarted):
            await self._call(self._hsc.Release, hsc_pb2.ReleaseRequest(claims=some))

    async def _call(self, method: Callable[..., Awaitable[object]], request: object) -> None:
        await until_definite(
            lambda timeout: method(request, timeout=timeout),
            within=self._within,
            attempt_timeout=self._call_timeout,
        )

    async def finish(self, within: timedelta) -> None:
        """Wait for the reports that are under way; what is not reported by then is left to the next Controller here."""
        if self._running:
            _, unfinished = await asyncio.wait(set(self._running), timeout=within.total_seconds())
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)


def _split(
    left: JournalContents, started: Collection[TaskId]
) -> tuple[list[hsc_pb2.Claim], list[hsc_pb2.Claim]]:
    """Those of tasks that had started, and the others."""
    crashed: list[hsc_pb2.Claim] = []
    unstarted: list[hsc_pb2.Claim] = []
    for task_id, token in left.claims.items():
        claim = hsc_pb2.Claim(task_id=task_id, token=token, cell=left.cells.get(task_id, ""))
        (crashed if task_id in started else unstarted).append(claim)
    return crashed, unstarted


def _of_cell(claims: Sequence[hsc_pb2.Claim], cell: str) -> list[hsc_pb2.Claim]:
    return [claim for claim in claims if claim.cell == cell]


def _with_neighbours(started: Mapping[TaskId, int], batches: Mapping[TaskId, int]) -> dict[TaskId, int]:
    """Add to the tasks that had started those that shared a call with them: the board names one of each batch."""
    calls = {batches[task_id]: at for task_id, at in started.items() if task_id in batches}
    found = {task_id: calls[batch] for task_id, batch in batches.items() if batch in calls}
    return {**started, **found}


def _batches(claims: list[hsc_pb2.Claim]) -> Iterator[list[hsc_pb2.Claim]]:
    return (claims[start : start + _MOST_CLAIMS] for start in range(0, len(claims), _MOST_CLAIMS))


def _crashes(
    claims: Sequence[hsc_pb2.Claim], started: Mapping[TaskId, int], *, worker_died: bool
) -> hsc_pb2.SetResultsRequest:
    return hsc_pb2.SetResultsRequest(
        results=[
            hsc_pb2.TaskResult(
                claim=claim,
                outcome=hsc_pb2.OUTCOME_CRASHED,
                failure_kind=task_pb2.FAILURE_KIND_CRASH,
                failure_message="its worker died, with all that it ran"
                if worker_died
                else "the Executor's process died",
                worker_died=worker_died,
                started_at=boot_to_timestamp(at) if (at := started[claim.task_id]) else None,
            )
            for claim in claims
        ]
    )
