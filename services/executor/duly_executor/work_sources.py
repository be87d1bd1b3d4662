"""Where an Executor's work comes from: its Controller, where there are queues, or else the HSC itself."""

import itertools
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

import grpc

from duly.v1 import controller_pb2, hsc_pb2
from duly_core import failpoints
from duly_core.clock import nanoseconds, since_boot_ns
from duly_core.rpc.call_stream import HscCalls
from duly_core.rpc.convert import to_duration
from duly_core.task import TOKEN_PREFIX_BYTES
from duly_core.timing import RATE_ERROR, Timing
from duly_executor.holdings import Holdings

if TYPE_CHECKING:
    from duly.v1.controller_pb2_grpc import ControllerServiceAsyncStub

_ANSWER_MARGIN = timedelta(seconds=10)
_LAST_WORD = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Work:
    """Claimed tasks."""

    tasks: Sequence[hsc_pb2.ClaimedTask]
    claims_sent_boot_ns: int
    """Since when the claims live, at the earliest (CLOCK_BOOTTIME)."""
    terms: hsc_pb2.LeaseTerms


class WorkSource(Protocol):
    """Whoever is asked for work; two calls may be open at a time."""

    async def next_work(self, most: int) -> Work:
        """Wait for up to `most` tasks; none came in time if there are none.

        Raises:
            grpc.aio.AioRpcError: the outcome is unknown, or it is a refusal; ask again.
        """
        ...

    async def finish(self) -> None:
        """Say what was asked for and never arrived, so that nobody waits for the end of its claims."""
        ...


class ControllerSource:
    """NextWork: the Controller takes references from queues and claims them."""

    def __init__(
        self,
        controller: "ControllerServiceAsyncStub",
        executor_id: str,
        holdings: Holdings,
        poll_timeout: timedelta,
    ) -> None:
        self._controller = controller
        self._executor_id = executor_id
        self._holdings = holdings
        self._poll_timeout = poll_timeout
        self._calls = itertools.count(1)
        self._unanswered: list[int] = []
        """Calls that failed here; the Controller may have answered them with claims."""

    async def next_work(self, most: int) -> Work:
        settled = self._holdings.take_settled()
        request = controller_pb2.NextWorkRequest(
            executor_id=self._executor_id,
            max_tasks=most,
            timeout=to_duration(self._poll_timeout),
            settled=settled,
            call=next(self._calls),
            unanswered_calls=self._unanswered,
        )
        self._unanswered = []
        timeout = self._poll_timeout + _ANSWER_MARGIN
        try:
            response = await self._controller.NextWork(request, timeout=timeout.total_seconds())
            await _came(response.tasks)
        except BaseException:
            self._holdings.settled_untold(settled)
            self._unanswered += [*request.unanswered_calls, request.call]
            raise
        return Work(response.tasks, response.claim_sent_since_boot.ToNanoseconds(), response.terms)

    async def finish(self) -> None:
        if not self._unanswered:
            return
        request = controller_pb2.NextWorkRequest(
            executor_id=self._executor_id,
            settled=self._holdings.take_settled(),
            unanswered_calls=self._unanswered,
        )
        with suppress(grpc.aio.AioRpcError):  # then they are handed back when this process has ended
            await self._controller.NextWork(request, timeout=_LAST_WORD.total_seconds())


class HscSource:
    """ClaimWork: the HSC claims what is due. A reply that was lost is asked for again under the same tokens."""

    def __init__(
        self,
        hsc: HscCalls,
        executor_id: str,
        lambdas: Collection[str],
        holdings: Holdings,
        timing: Timing,
        poll_timeout: timedelta,
        note_prefix: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        """Make one.

        Args:
            hsc: who is asked.
            executor_id: who will hold the claims.
            lambdas: what this Executor serves.
            holdings: what it holds.
            timing: how long a claim lives.
            poll_timeout: how long a call stays open.
            note_prefix: called with a request's token prefix before it is sent.
        """
        self._hsc = hsc
        self._executor_id = executor_id
        self._lambdas = sorted(lambdas)
        self._holdings = holdings
        self._timing = timing
        self._poll_timeout = poll_timeout
        self._note_prefix = note_prefix
        self._lost: dict[bytes, int] = {}
        """Token prefixes of requests without a reply, with when they were sent."""

    async def next_work(self, most: int) -> Work:
        self._holdings.take_settled()  # for a Controller that has to know; here nobody has
        prefix = os.urandom(TOKEN_PREFIX_BYTES)
        request = hsc_pb2.ClaimWorkRequest(
            holder=self._executor_id,
            lambdas=self._lambdas,
            max_tasks=most,
            timeout=to_duration(self._poll_timeout),
            token_prefix=prefix,
        )
        self._note_prefix(prefix)
        lost, self._lost = self._not_run_out(), {}
        request.lost_prefixes.extend(lost)
        sent = since_boot_ns()  # before sending: the store's lease begins later, never earlier
        timeout = self._poll_timeout + _ANSWER_MARGIN
        try:
            response = await self._hsc.ClaimWork(request, timeout=timeout.total_seconds())
            await _came(response.tasks)
        except BaseException:
            self._lost |= lost
            self._lost[prefix] = sent
            raise
        # by the HSC's clock, which may be fast
        waited = int(response.waited.ToNanoseconds() * (1 - 2 * RATE_ERROR))
        return Work(response.tasks, sent + waited, response.terms)

    def _not_run_out(self) -> dict[bytes, int]:
        """Return the requests without a reply whose claims, if they made any, may still live."""
        oldest = since_boot_ns() - nanoseconds(
            self._poll_timeout + _ANSWER_MARGIN + self._timing.claim_timeout
        )
        return {prefix: sent for prefix, sent in self._lost.items() if sent >= oldest}

    async def finish(self) -> None:
        if not self._lost:
            return
        request = hsc_pb2.ReleaseRequest(token_prefixes=list(self._lost))
        with suppress(grpc.aio.AioRpcError):  # then they run out
            await self._hsc.Release(request, timeout=_LAST_WORD.total_seconds())


async def _came(tasks: Sequence[hsc_pb2.ClaimedTask]) -> None:
    if failpoints.on and tasks:
        await failpoints.hit("executor.take.before")
