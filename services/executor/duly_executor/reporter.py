"""Brings results and releases to the HSC, many at a time, until each has a definite answer."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc

from duly.v1 import hsc_pb2
from duly_core.coalesce import Coalescer
from duly_core.rpc.retry import until_definite
from duly_core.task import TaskId
from duly_executor import events

if TYPE_CHECKING:
    from duly.v1.hsc_pb2_grpc import HscServiceAsyncStub

_BATCH = 1_000
_IN_FLIGHT = 2
_FOREVER = timedelta(days=1)
"""As long as the claims are alive: heartbeats go on meanwhile, and end the process if the HSC stays away."""


class Reporter:
    """`settled` is told of every task whose answer is definite, whatever it was."""

    def __init__(
        self, hsc: "HscServiceAsyncStub", call_timeout: timedelta, settled: Callable[[Sequence[TaskId]], None]
    ) -> None:
        self._hsc = hsc
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
                    await self._set_results([result])
                return [None] * len(results)
            events.unreported("result", 1, f"{error.code().name}: {error.details()}")
        else:
            lost = sum(verdict == hsc_pb2.RESULT_VERDICT_LOST_CLAIM for verdict in response.verdicts)
            if lost:
                events.claims_lost(lost, "SetResults")
        self._settled([result.claim.task_id for result in results])
        return [None] * len(results)

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
        self._settled([claim.task_id for claim in claims])
        return [None] * len(claims)

    async def finish(self) -> None:
        """Wait until everything that was given is settled."""
        while self._running:
            await asyncio.gather(*self._running, return_exceptions=True)
