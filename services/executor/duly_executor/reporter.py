"""Brings results and releases to the HSC, many at a time, until each has a definite answer."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc

from duly.v1 import hsc_pb2
from duly_core.coalesce import Coalescer
from duly_core.rpc.retry import until_definite
from duly_executor import events

if TYPE_CHECKING:
    from duly.v1.hsc_pb2_grpc import HscServiceAsyncStub

_BATCH = 1_000
_IN_FLIGHT = 2
_FRAMING_BYTES = 16
"""What a result costs in a request beyond its own size, at most."""
_FOREVER = timedelta(days=1)
"""As long as the claims are alive: heartbeats go on meanwhile, and end the process if the HSC stays away."""


class Reporter:
    """`settled` is told of every claim whose answer is definite, whatever it was."""

    def __init__(
        self,
        hsc: "HscServiceAsyncStub",
        call_timeout: timedelta,
        most_bytes: int,
        settled: Callable[[Sequence[hsc_pb2.Claim]], None],
    ) -> None:
        """Args: `most_bytes` is how large a request may be."""
        self._hsc = hsc
        self._most_bytes = most_bytes
        self._call_timeout = call_timeout
        self._settled = settled
        self._set = Coalescer(self._set_results, max_items=_BATCH, concurrency=_IN_FLIGHT)
        self._release = Coalescer(self._release_claims, max_items=_BATCH)
        self._running: set[asyncio.Task[object]] = set()

    def results(self, results: Sequence[hsc_pb2.TaskResult]) -> None:
        """Report these; returns at once."""
        if results:
            self._run(self._set(results))

    def release(self, claims: Sequence[hsc_pb2.Claim]) -> None:
        """Hand these back, uncharged; returns at once."""
        if claims:
            self._run(self._release(claims))

    def _run(self, work: Coroutine[object, object, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _set_results(self, results: list[hsc_pb2.TaskResult]) -> list[None]:
        for part in _parts(results, self._most_bytes):
            await self._set_part(part)
        return [None] * len(results)

    async def _set_part(self, results: Sequence[hsc_pb2.TaskResult]) -> None:
        request = hsc_pb2.SetResultsRequest(results=results)
        try:
            response = await until_definite(
                lambda timeout: self._hsc.SetResults(request, timeout=timeout),
                within=_FOREVER,
                attempt_timeout=self._call_timeout,
            )
        except grpc.aio.AioRpcError as error:
            # refused as a whole: one bad result must not take the others with it
            if len(results) > 1:
                for result in results:
                    await self._set_part([result])
                return
            events.unreported("result", 1, f"{error.code().name}: {error.details()}")
        else:
            lost = sum(verdict == hsc_pb2.RESULT_VERDICT_LOST_CLAIM for verdict in response.verdicts)
            if lost:
                events.claims_lost(lost, "SetResults")
        self._settled([result.claim for result in results])

    async def _release_claims(self, claims: list[hsc_pb2.Claim]) -> list[None]:
        request = hsc_pb2.ReleaseRequest(claims=claims)
        try:
            await until_definite(
                lambda timeout: self._hsc.Release(request, timeout=timeout),
                within=_FOREVER,
                attempt_timeout=self._call_timeout,
            )
            events.handed_back(len(claims))
        except grpc.aio.AioRpcError as error:
            events.unreported("release", len(claims), f"{error.code().name}: {error.details()}")
        self._settled(claims)
        return [None] * len(claims)

    async def finish(self) -> None:
        """Wait until everything that was given is settled."""
        while self._running:
            await asyncio.gather(*self._running, return_exceptions=True)


def _parts(results: Sequence[hsc_pb2.TaskResult], most_bytes: int) -> Iterator[Sequence[hsc_pb2.TaskResult]]:
    """As few as fit into requests of this size; a single one that does not fit goes alone."""
    start, size = 0, 0
    for place, result in enumerate(results):
        bytes_of_this = result.ByteSize() + _FRAMING_BYTES
        if size + bytes_of_this > most_bytes and place > start:
            yield results[start:place]
            start, size = place, 0
        size += bytes_of_this
    yield results[start:]
