"""Where an Executor's work comes from: its Controller, where there are queues, or else the HSC itself."""

import itertools
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

import grpc

from duly.v1 import controller_pb2, hsc_pb2
from duly_core import failpoints
from duly_core.claim_journal import ClaimJournal
from duly_core.claim_tokens import new_prefix
from duly_core.clock import nanoseconds, since_boot_ns
from duly_core.rpc.convert import to_duration
from duly_core.rpc.hsc_client import HscCalls
from duly_core.timing import RATE_ERROR, Timing
from duly_executor.held_claims import HeldClaims

if TYPE_CHECKING:
    from duly.v1.controller_pb2_grpc import ControllerServiceAsyncStub

_ANSWER_MARGIN = timedelta(seconds=10)
_LAST_WORD = timedelta(seconds=1)
_MOST_LOST = 500
"""Lost requests that are asked for again. The HSC refuses more than 1,000; claims under older ones run out."""
_PARTIAL_POLL = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Work:
    """Claimed tasks."""

    tasks: Sequence[hsc_pb2.ClaimedTask]
    claims_sent_boot_ns: int
    """Since when the claims live, at the earliest (CLOCK_BOOTTIME)."""
    terms: hsc_pb2.LeaseTerms
    token_prefix: bytes
    """Of their claims; it stays journaled until these are."""


class WorkSource(Protocol):
    """Whoever is asked for work; two calls may be open at a time."""

    async def next_work(self, most: int, without: Collection[str]) -> Work:
        """Wait for up to `most` tasks, none of them of the lambdas `without`; none came in time if there are none.

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
        held_claims: HeldClaims,
        journal: ClaimJournal,
        poll_timeout: timedelta,
    ) -> None:
        self._controller = controller
        self._executor_id = executor_id
        self._held_claims = held_claims
        self._journal = journal
        self._poll_timeout = poll_timeout
        self._calls = itertools.count(1)
        self._unanswered: dict[int, bytes] = {}
        """Calls that failed here, with their token prefixes; the Controller may have answered them with claims."""

    async def next_work(self, most: int, without: Collection[str]) -> Work:
        settled = self._held_claims.take_settled()
        poll_timeout = _shorter(self._poll_timeout, without)
        request = controller_pb2.NextWorkRequest(
            executor_id=self._executor_id,
            max_tasks=most,
            timeout=to_duration(poll_timeout),
            settled=settled,
            call=next(self._calls),
            unanswered_calls=self._unanswered,
            token_prefix=new_prefix(),
            except_lambdas=without,
        )
        given_up, self._unanswered = self._unanswered, {}
        self._journal.note_prefix(request.token_prefix)
        timeout = self._poll_timeout + _ANSWER_MARGIN
        try:
            response = await self._controller.NextWork(request, timeout=timeout.total_seconds())
            await _came(response.tasks)
        except BaseException:
            self._held_claims.settled_untold(settled)
            self._unanswered |= {**given_up, request.call: request.token_prefix}
            raise
        self._forget(given_up.values())
        sent = response.claim_sent_since_boot.ToNanoseconds()
        return Work(response.tasks, sent, response.terms, request.token_prefix)

    async def finish(self) -> None:
        if not self._unanswered:
            return
        request = controller_pb2.NextWorkRequest(
            executor_id=self._executor_id,
            settled=self._held_claims.take_settled(),
            unanswered_calls=self._unanswered,
        )
        with suppress(grpc.aio.AioRpcError):  # then they are handed back when this process has ended
            await self._controller.NextWork(request, timeout=_LAST_WORD.total_seconds())
            self._forget(self._unanswered.values())

    def _forget(self, prefixes: Iterable[bytes]) -> None:
        """The Controller hands back what these calls were answered."""
        for prefix in prefixes:
            self._journal.forget_prefix(prefix)


class HscSource:
    """ClaimWork: the HSC claims what is due. A reply that was lost is asked for again under the same tokens."""

    def __init__(
        self,
        hsc: HscCalls,
        executor_id: str,
        lambdas: Collection[str],
        held_claims: HeldClaims,
        journal: ClaimJournal,
        timing: Timing,
        poll_timeout: timedelta,
    ) -> None:
        """Make one.

        Args:
            hsc: who is asked.
            executor_id: who will hold the claims.
            lambdas: what this Executor serves.
            held_claims: what it holds.
            journal: where the prefixes of requests are noted before they are sent.
            timing: how long a claim lives.
            poll_timeout: how long a call stays open.
        """
        self._hsc = hsc
        self._executor_id = executor_id
        self._lambdas = sorted(lambdas)
        self._held_claims = held_claims
        self._journal = journal
        self._timing = timing
        self._poll_timeout = poll_timeout
        self._was_answered = False
        self._lost: dict[bytes, int] = {}
        """Token prefixes of requests without a reply, with when they were sent."""

    async def next_work(self, most: int, without: Collection[str]) -> Work:
        self._held_claims.take_settled()  # for a Controller that has to know; here nobody has
        lost, self._lost = self._take_lost(), {}
        request = hsc_pb2.ClaimWorkRequest(
            holder=self._executor_id,
            lambdas=[name for name in self._lambdas if name not in without],
            max_tasks=most,
            # the first answer comes at once: it says whether this host's timing fits the HSC's
            timeout=to_duration(_shorter(self._poll_timeout, without) if self._was_answered else timedelta()),
            token_prefix=new_prefix(),
            lost_prefixes=lost,
        )
        self._journal.note_prefix(request.token_prefix)
        sent = since_boot_ns()  # before sending: the store's lease begins later, never earlier
        timeout = self._poll_timeout + _ANSWER_MARGIN
        try:
            response = await self._hsc.ClaimWork(request, timeout=timeout.total_seconds())
            await _came(response.tasks)
        except BaseException:
            self._note_lost({**lost, request.token_prefix: sent})
            raise
        self._was_answered = True
        self._forget(lost)
        # by the HSC's clock, which may be fast
        waited = int(response.waited.ToNanoseconds() * (1 - 2 * RATE_ERROR))
        return Work(response.tasks, sent + waited, response.terms, request.token_prefix)

    def _take_lost(self) -> dict[bytes, int]:
        """Return the requests without a reply whose claims, if they made any, may still live."""
        longest = self._poll_timeout + _ANSWER_MARGIN + self._timing.claim_timeout
        oldest = since_boot_ns() - nanoseconds(longest)
        lost = {prefix: sent for prefix, sent in self._lost.items() if sent >= oldest}
        self._forget(self._lost.keys() - lost.keys())
        return lost

    def _note_lost(self, lost: dict[bytes, int]) -> None:
        self._lost |= lost
        oldest = sorted(self._lost, key=self._lost.__getitem__)[:-_MOST_LOST]
        for prefix in oldest:
            del self._lost[prefix]
        self._forget(oldest)

    def _forget(self, prefixes: Iterable[bytes]) -> None:
        for prefix in prefixes:
            self._journal.forget_prefix(prefix)

    async def finish(self) -> None:
        if not self._lost:
            return
        request = hsc_pb2.ReleaseRequest(token_prefixes=list(self._lost))
        with suppress(grpc.aio.AioRpcError):  # then they run out
            await self._hsc.Release(request, timeout=_LAST_WORD.total_seconds())
            for prefix in self._lost:
                self._journal.forget_prefix(prefix)


def _shorter(poll_timeout: timedelta, without: Collection[str]) -> timedelta:
    """How long to wait: a call that leaves lambdas out must end soon, for there may be room for them again."""
    return min(poll_timeout, _PARTIAL_POLL) if without else poll_timeout


async def _came(tasks: Sequence[hsc_pb2.ClaimedTask]) -> None:
    if failpoints.on and tasks:
        await failpoints.hit("executor.take.before")
