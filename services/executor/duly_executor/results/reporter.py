"""Brings results and releases to the HSC, many at a time, until each has a definite answer."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import NamedTuple, TypeVar

import structlog

from duly_core.process import failpoints
from duly_core.process.loop import backoff
from duly_core.rpc.hsc_client import HscCallStream
from duly_core.traffic.group_commit import GroupCommit
from duly_executor import events
from duly_executor.processes.frames import divided
from duly_executor.processes.report_checks import MOST_RESULT_FIELDS, fields_of
from duly_executor.results.batch_sender import BatchSender
from duly_executor.results.failures import bad_result
from duly_wire.ids import TaskId
from duly_wire.v1 import hsc_pb2

log = structlog.get_logger()

_REST = 0.005
_STREAM_REST = 0.02
"""Seconds between the starts of calls that are not full, the longer one after a call of several results. A result that
comes alone goes at once, and so does the next, if tasks take as long as a lone one does."""
_BATCH = 1_000
_IN_FLIGHT = 2
_ALONE_AT_A_TIME = 16
_FRAMING_BYTES = 16
"""What a result costs in a request beyond its own size, at most."""


_FIELD_BYTES = 2
"""The least that a field takes."""
_result_of = attrgetter("result")
_cell_of = attrgetter("claim.cell")


class _Release(NamedTuple):
    claim: hsc_pb2.Claim
    stopped: hsc_pb2.StoppedRun | None


class _Lane(NamedTuple):
    """The way of what is reported to one cell."""

    set: GroupCommit[hsc_pb2.TaskResult, None]
    release: GroupCommit[_Release, None]
    alone: asyncio.Semaphore


Reported = TypeVar("Reported", hsc_pb2.TaskResult, _Release)


class ResultReporter:
    """`settled` is told of every claim whose answer is definite, whatever it was."""

    def __init__(
        self,
        hsc: HscCallStream,
        call_timeout: timedelta,
        most_bytes: int,
        settled: Callable[[Sequence[hsc_pb2.Claim]], None],
    ) -> None:
        """Args: `most_bytes` is how large a request may be."""
        self._hsc = hsc
        self._most_bytes = most_bytes
        self._bytes_of_field = most_bytes // MOST_RESULT_FIELDS
        self._settled = settled
        self._results = BatchSender(
            self._send_results, call_timeout, lambda result: self._run(lambda: self._insist(result))
        )
        self._releases = BatchSender(
            self._send_releases, call_timeout, lambda each: self._run(lambda: self._release_alone(each))
        )
        self._lanes: dict[str, _Lane] = {}
        """By the cell of the claims: results for one that is away hold up no others."""
        self._running: set[asyncio.Task[None]] = set()

    def results(self, results: Sequence[hsc_pb2.TaskResult]) -> None:
        """Report these; returns at once."""
        for cell, some in _by_cell(results):
            self._run(partial(self._lane(cell).set, some))

    def release(
        self, claims: Sequence[hsc_pb2.Claim], stopped: Mapping[TaskId, hsc_pb2.StoppedRun] | None = None
    ) -> None:
        """Hand these back, uncharged; `stopped` says of those that had started when and why. Returns at once."""
        if claims:
            told = stopped or {}
            releases = [_Release(claim, told.get(claim.task_id)) for claim in claims]
            for cell, some in _by_cell(releases):
                self._run(partial(self._lane(cell).release, some))

    def _lane(self, cell: str) -> "_Lane":
        lane = self._lanes.get(cell)
        if lane is None:
            lane = self._lanes[cell] = _Lane(
                GroupCommit(
                    self._set_all,
                    max_items=_BATCH,
                    concurrency=_IN_FLIGHT,
                    rest=_REST,
                    stream_rest=_STREAM_REST,
                ),
                GroupCommit(self._release_all, max_items=_BATCH),
                asyncio.Semaphore(_ALONE_AT_A_TIME),
            )
        return lane

    async def finish(self) -> None:
        """Wait until everything that was given is settled."""
        while self._running:
            await asyncio.gather(*self._running, return_exceptions=True)

    def _run(self, work: Callable[[], Coroutine[object, object, object]]) -> None:
        task = asyncio.get_running_loop().create_task(_until_done(work))
        self._running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("result reporter ended unexpectedly", exc_info=error)

    # ---- results -----------------------------------------------------------------------------------------

    async def _set_all(self, results: list[hsc_pb2.TaskResult]) -> list[None]:
        parts = [results] if self._are_few(results) else divided(results, self._weigh, self._most_bytes)
        for part in parts:
            await self._results.send_batch(part)
        return [None] * len(results)

    def _are_few(self, results: Sequence[hsc_pb2.TaskResult]) -> bool:
        """Whether one request takes them, by their bytes alone: to count the fields of each takes four times as long."""
        size = sum(map(hsc_pb2.TaskResult.ByteSize, results)) + _FRAMING_BYTES * len(results)
        within = size - sum(map(len, map(_result_of, results)))
        return size <= self._most_bytes and within <= _FIELD_BYTES * MOST_RESULT_FIELDS

    def _weigh(self, result: hsc_pb2.TaskResult) -> int:
        """Return how much of a request a result takes, of its bytes or of its fields, in bytes."""
        return max(result.ByteSize() + _FRAMING_BYTES, fields_of(result) * self._bytes_of_field)

    async def _send_results(self, results: Sequence[hsc_pb2.TaskResult], timeout: float) -> None:
        async with failpoints.around("executor.set_results"):
            request = hsc_pb2.SetResultsRequest(results=results)
            request.DiscardUnknownFields()  # callbacks can add some, and the HSC counts them
            response = await self._hsc.SetResults(request, timeout=timeout)
        lost = sum(verdict == hsc_pb2.RESULT_VERDICT_LOST_CLAIM for verdict in response.verdicts)
        if lost:
            events.claims_lost(lost, "SetResults")
        self._settled([result.claim for result in results])

    async def _insist(self, result: hsc_pb2.TaskResult) -> None:
        """One that does not go with others. Dropped, it would run again and again: it ends as what it is, a bad one."""
        async with self._lane(result.claim.cell).alone:
            reason = await self._results.alone(result)
            if reason is None:
                return
            events.unreported("result", 1, reason)
            reason = await self._results.alone(
                bad_result(result.claim, f"the HSC refused the result: {reason}")
            )
        if reason is not None:
            events.unreported("the word that a result was refused", 1, reason)
            self._settled([result.claim])

    # ---- releases ----------------------------------------------------------------------------------------

    async def _release_all(self, releases: list[_Release]) -> list[None]:
        await self._releases.send_batch(releases)
        return [None] * len(releases)

    async def _send_releases(self, releases: Sequence[_Release], timeout: float) -> None:
        await failpoints.hit("executor.release.before_send")
        claims = [release.claim for release in releases]
        stopped = [release.stopped for release in releases if release.stopped is not None]
        await self._hsc.Release(hsc_pb2.ReleaseRequest(claims=claims, stopped=stopped), timeout=timeout)
        log.info("tasks released", count=len(claims))
        self._settled(claims)

    async def _release_alone(self, release: _Release) -> None:
        """One that does not go with others; if it does not go at all, it runs out."""
        async with self._lane(release.claim.cell).alone:
            reason = await self._releases.alone(release)
        if reason is not None:
            events.unreported("release", 1, reason)
            self._settled([release.claim])


def _by_cell(reported: Sequence[Reported]) -> list[tuple[str, Sequence[Reported]]]:
    """Return these by the cell of their claims, in their order; most are of one."""
    cells = dict.fromkeys(map(_cell_of, reported))
    if len(cells) == 1:
        return [(cell, reported) for cell in cells]
    return [(cell, [each for each in reported if _cell_of(each) == cell]) for cell in cells]


async def _until_done(work: Callable[[], Coroutine[object, object, object]]) -> None:
    """Log what goes wrong and go on: claims that nobody reports would stay held."""
    failures = 0
    while True:
        try:
            await work()
        except Exception:
            # whatever it was: nobody waits for this task, and a result that is not reported runs its task again
            failures += 1
            log.exception("result report failed unexpectedly; trying again", failures=failures)
        else:
            return
        await asyncio.sleep(backoff(failures).total_seconds())
