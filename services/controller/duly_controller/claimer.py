"""Claims what was picked, with tokens of its own, and tells the queue what is settled."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc

from duly.v1 import hsc_pb2
from duly_controller import events
from duly_controller.buffer import Buffer, Reference
from duly_controller.disposal import Disposal
from duly_core import failpoints
from duly_core.clock import since_boot_ns
from duly_core.loop import backoff
from duly_core.rpc.retry import TRANSIENT, until_definite
from duly_core.task import TaskId
from duly_core.timing import Timing

if TYPE_CHECKING:
    from duly.v1.hsc_pb2_grpc import HscServiceAsyncStub

_TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True)
class Claimed:
    """What came of a claim: the tasks, when it was sent, and the terms they run under."""

    tasks: Sequence[hsc_pb2.ClaimedTask]
    sent_boot_ns: int
    terms: hsc_pb2.LeaseTerms


class Claimer:
    """Brings references to the HSC; a lost reply is asked for again with the same tokens."""

    def __init__(
        self,
        hsc: "HscServiceAsyncStub",
        buffer: Buffer,
        disposal: Disposal,
        timing: Timing,
        call_timeout: timedelta,
    ) -> None:
        self._hsc = hsc
        self._buffer = buffer
        self._disposal = disposal
        self._timing = timing
        self._call_timeout = call_timeout
        self._refusals = 0
        """Calls in a row that were refused as a whole."""

    async def claim(self, references: Sequence[Reference], holder: str) -> Claimed:
        """Claim for this holder. A refused reference is forgotten; without a definite answer its message comes back."""
        proposals = [
            hsc_pb2.ClaimProposal(
                claim=hsc_pb2.Claim(task_id=reference.task_id, token=os.urandom(_TOKEN_BYTES)),
                **{"lambda": reference.lambda_name},
            )
            for reference in _each_task_once(references)
        ]
        sent = since_boot_ns()  # before sending: the store's lease begins later, never earlier
        answered: dict[TaskId, hsc_pb2.ClaimAnswer] = {}
        terms = hsc_pb2.LeaseTerms()
        # within that time: later than that it could not be started any more
        end = asyncio.get_running_loop().time() + self._timing.process_deadline.total_seconds()
        if failpoints.on:
            await failpoints.hit("controller.claim.before")
        refused: set[TaskId] = set()
        for response, asked in await self._ask(proposals, holder, end, refused):
            answered.update(
                (each.claim.task_id, answer) for each, answer in zip(asked, response.answers, strict=True)
            )
            terms = response.terms
        if failpoints.on:
            await failpoints.hit("controller.claim.after")
        definite = [reference for reference in references if reference.task_id in answered]
        self._disposal.delete(self._buffer.answered(definite))
        # asked in vain for so long that the claims, if they were made, are running out already; but what was refused
        # at once would go round and round, to be refused again: those messages stay hidden
        hidden = {each.message.received for each in references if each.task_id in refused}
        unknown = {each.message.received for each in references if each.task_id not in answered}
        self._disposal.give_back(unknown - hidden)
        self._refusals = self._refusals + 1 if refused else 0
        if refused:
            await asyncio.sleep(backoff(self._refusals).total_seconds())
        tasks = [
            answer.task for answer in answered.values() if answer.verdict == hsc_pb2.CLAIM_VERDICT_CLAIMED
        ]
        events.claimed(len(tasks), len(definite) - len(tasks))
        return Claimed(tasks, sent, terms)

    async def _ask(
        self, proposals: Sequence[hsc_pb2.ClaimProposal], holder: str, end: float, refused: set[TaskId]
    ) -> list[tuple[hsc_pb2.ClaimTaskResponse, Sequence[hsc_pb2.ClaimProposal]]]:
        """Ask until the answer is definite; in two halves if it is too large for one message.

        What the HSC does not even look at, nor will, is added to `refused`.
        """
        request = hsc_pb2.ClaimTaskRequest(proposals=proposals, holder=holder)
        divisible = len(proposals) > 1
        try:
            response = await until_definite(
                lambda timeout: self._hsc.ClaimTask(request, timeout=timeout),
                within=timedelta(seconds=end - asyncio.get_running_loop().time()),
                attempt_timeout=self._call_timeout,
                definite=frozenset({grpc.StatusCode.RESOURCE_EXHAUSTED} if divisible else ()),
            )
        except grpc.aio.AioRpcError as error:
            if divisible and error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                middle = len(proposals) // 2
                first = await self._ask(proposals[:middle], holder, end, refused)
                return first + await self._ask(proposals[middle:], holder, end, refused)
            reason = f"{error.code().name}: {error.details()}"
            if error.code() in TRANSIENT:
                events.claim_unknown(len(proposals), reason)
            else:
                events.claim_refused(len(proposals), reason)
                refused.update(proposal.claim.task_id for proposal in proposals)
            return []
        return [(response, proposals)]

    async def release(self, claims: Sequence[hsc_pb2.Claim]) -> None:
        """Hand claims back that never reached an Executor; if that fails they run out."""
        if not claims:
            return
        request = hsc_pb2.ReleaseRequest(claims=claims)
        try:
            await until_definite(
                lambda timeout: self._hsc.Release(request, timeout=timeout),
                within=self._timing.claim_timeout,
                attempt_timeout=self._call_timeout,
            )
        except grpc.aio.AioRpcError as error:
            events.claim_unknown(len(claims), f"release: {error.code().name}: {error.details()}")


def _each_task_once(references: Sequence[Reference]) -> list[Reference]:
    """A duplicate in the buffer is answered together with its twin."""
    return list({reference.task_id: reference for reference in references}.values())
