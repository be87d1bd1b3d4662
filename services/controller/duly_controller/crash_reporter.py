"""What is done for the tasks of an Executor that died: those that had started crashed, the others are handed back."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc

from duly.v1 import hsc_pb2, task_pb2
from duly_controller import events
from duly_controller.executor_registry import AttachedExecutor
from duly_controller.process_cleanup import kill_leftover_processes
from duly_core.journal_folder import JournalFolder, TakenJournal
from duly_core.rpc.convert import boot_to_timestamp
from duly_core.rpc.retry import until_definite
from duly_core.task import TaskId, Token

if TYPE_CHECKING:
    from duly.v1.hsc_pb2_grpc import HscServiceAsyncStub

_MOST_CLAIMS = 1_000
"""In one call; the HSC takes no more than a few thousand."""
_TAKEOVER_LEASES = 4
"""What was taken over is reported for so long: after an outage of everything, the store's leases begin anew."""
_ANSWERED_BY = timedelta(seconds=1)
"""A request for claims that was under way when its Executor died is over by then."""


class CrashReporter:
    """Reports at once, so that nobody has to wait for a heartbeat timeout. Stale claims are refused by their tokens."""

    def __init__(
        self, hsc: "HscServiceAsyncStub", journals: JournalFolder, lease: timedelta, call_timeout: timedelta
    ) -> None:
        """Args: `lease` is how long reporting makes sense: after that the store has taken the tasks back by itself."""
        self._hsc = hsc
        self._journals = journals
        self._lease = lease
        self._call_timeout = call_timeout
        self._running: set[asyncio.Task[None]] = set()

    def report_crash(self, executor: AttachedExecutor, attached: int) -> None:
        """Called when the process of an attached Executor has ended; `attached` Executors are left."""
        executor.journal = self._journals.take(self._journals.name_of(executor.executor_id))
        if executor.journal is None and executor.journal_fd >= 0:
            executor.journal = TakenJournal.in_memory(executor.journal_fd)
        if executor.board is None and executor.journal is not None and executor.journal.left is not None:
            executor.board = executor.journal.left.board
        # without a journal nobody will know later what it held, nor is anything kept from the store that long
        within = self._lease * (_TAKEOVER_LEASES if executor.journal is not None else 1)

        async def work() -> None:
            await kill_leftover_processes(executor)
            await self._report(
                executor,
                within,
                lambda crashed, released: events.executor_ended(
                    executor.executor_id, crashed, released, attached
                ),
            )

        self._begin(executor, within, work())

    def take_over(self, executor: AttachedExecutor, *, host_restarted: bool) -> None:
        """Called with an Executor of which nothing but its journal is known here."""
        within = self._lease * _TAKEOVER_LEASES

        async def work() -> None:
            if not host_restarted:
                await kill_leftover_processes(executor)
            await self._report(
                executor,
                within,
                lambda crashed, released: events.taken_over(executor.executor_id, crashed, released),
            )

        self._begin(executor, within, work())

    def _begin(
        self, executor: AttachedExecutor, within: timedelta, work: Coroutine[object, object, None]
    ) -> None:
        task = asyncio.get_running_loop().create_task(self._to_the_end(executor, within, work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    @staticmethod
    async def _to_the_end(
        executor: AttachedExecutor, within: timedelta, work: Coroutine[object, object, None]
    ) -> None:
        """Only a Controller that ends leaves a journal to others: the next one takes it over."""
        held = len(executor.held) + len(executor.journaled())
        try:
            async with asyncio.timeout(within.total_seconds()):
                await work
        except asyncio.CancelledError:
            if executor.journal is not None:
                executor.journal.leave()
            raise
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            events.unreported(executor.executor_id, held, str(error) or type(error).__name__)
        except Exception as error:  # noqa: BLE001 (nobody waits for this task: it would be lost without a word)
            events.crash_report_failed(executor.executor_id, held, error)
        if executor.journal is not None:
            executor.journal.remove()

    async def _report(
        self, executor: AttachedExecutor, within: timedelta, tell: Callable[[int, int], None]
    ) -> None:
        """All of its processes are dead; before that, its callback processes might have started more."""
        started = executor.started_tasks()
        # a task may be in both, under two claims, and a call takes it once
        both = [_split(claims, started) for claims in (executor.held, executor.journaled())]
        tell(sum(len(crashed) for crashed, _ in both), sum(len(unstarted) for _, unstarted in both))
        for crashed, unstarted in both:
            for some in _batches(crashed):
                await self._call(self._hsc.SetResults, _crashes(some, started), within)
            for some in _batches(unstarted):
                await self._call(self._hsc.Release, hsc_pb2.ReleaseRequest(claims=some), within)
        prefixes = executor.prefixes()
        if prefixes:  # last: they may be those of tasks that had started, too
            request = hsc_pb2.ReleaseRequest(token_prefixes=prefixes)
            await self._call(self._hsc.Release, request, within)
            await asyncio.sleep(_ANSWERED_BY.total_seconds())
            await self._call(self._hsc.Release, request, within)

    async def _call(
        self, method: Callable[..., Awaitable[object]], request: object, within: timedelta
    ) -> None:
        await until_definite(
            lambda timeout: method(request, timeout=timeout),
            within=within,
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
    claims: Mapping[TaskId, Token], started: Collection[TaskId]
) -> tuple[list[hsc_pb2.Claim], list[hsc_pb2.Claim]]:
    """Those of tasks that had started, and the others."""
    crashed: list[hsc_pb2.Claim] = []
    unstarted: list[hsc_pb2.Claim] = []
    for task_id, token in claims.items():
        claim = hsc_pb2.Claim(task_id=task_id, token=token)
        (crashed if task_id in started else unstarted).append(claim)
    return crashed, unstarted


def _batches(claims: list[hsc_pb2.Claim]) -> Iterator[list[hsc_pb2.Claim]]:
    return (claims[start : start + _MOST_CLAIMS] for start in range(0, len(claims), _MOST_CLAIMS))


def _crashes(claims: Sequence[hsc_pb2.Claim], started: Mapping[TaskId, int]) -> hsc_pb2.SetResultsRequest:
    return hsc_pb2.SetResultsRequest(
        results=[
            hsc_pb2.TaskResult(
                claim=claim,
                outcome=hsc_pb2.OUTCOME_CRASHED,
                failure_kind=task_pb2.FAILURE_KIND_CRASH,
                failure_message="the Executor's process died",
                started_at=boot_to_timestamp(at) if (at := started[claim.task_id]) else None,
            )
            for claim in claims
        ]
    )
