"""Claims what was picked, with tokens of its own, and tells the queue what is settled."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

import grpc

from duly_controller import events
from duly_controller.message_acks import MessageAcks
from duly_controller.reference_buffer import ReferenceBuffer, ReferenceSlice
from duly_core.config.timing import Timing
from duly_core.process import failpoints
from duly_core.process.clock import since_boot_ns
from duly_core.process.loop import backoff
from duly_core.rpc.requests.lease_terms import shorter
from duly_core.rpc.retry import TRANSIENT, is_overloaded, until_definite
from duly_core.tasks.claim_tokens import Tokens
from duly_core.tasks.task import Token
from duly_wire.ids import TaskId
from duly_wire.v1 import hsc_pb2

if TYPE_CHECKING:
    from duly_wire.v1.hsc_pb2_grpc import HscServiceAsyncStub

_Asked: TypeAlias = tuple[TaskId, Token, str]
"""A claim that is asked for, and the lambda."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """What came of a claim: the tasks, when it was sent, and the terms they run under."""

    tasks: Sequence[hsc_pb2.ClaimedTask]
    sent_boot_ns: int
    terms: hsc_pb2.LeaseTerms

    def claims(self) -> list[hsc_pb2.Claim]:
        """Return the claims to the tasks."""
        return [task.claim for task in self.tasks]


class Claimer:
    """Brings references to the HSC; a lost reply is asked for again with the same tokens."""

    def __init__(
        self,
        hsc: "HscServiceAsyncStub",
        buffer: ReferenceBuffer,
        message_acks: MessageAcks,
        timing: Timing,
        call_timeout: timedelta,
    ) -> None:
        self._hsc = hsc
        self._buffer = buffer
        self._message_acks = message_acks
        self._timing = timing
        self._call_timeout = call_timeout
        self._refusals = 0
        """Calls in a row that were refused as a whole."""

    async def claim(self, slices: Sequence[ReferenceSlice], holder: str, tokens: Tokens) -> Claimed:
        """Claim for this holder. A refused reference is forgotten; without a definite answer its message comes back."""
        # each task once: a duplicate in the buffer is answered together with its twin
        lambdas = {
            task_id: message.received.queue.lambda_name
            for message, task_ids in slices
            for task_id in task_ids
        }
        proposals = list(zip(lambdas, tokens.take(len(lambdas)), lambdas.values(), strict=True))
        sent = since_boot_ns()  # before sending: the store's lease begins later, never earlier
        terms = hsc_pb2.LeaseTerms()
        # within that time: later than that it could not be started any more
        end = asyncio.get_running_loop().time() + self._timing.process_deadline.total_seconds()
        refused: set[TaskId] = set()
        hidden: set[TaskId] = set()
        """Of cells that are away: given back, they would go round and round."""
        tasks: list[hsc_pb2.ClaimedTask] = []
        answered = 0
        async with failpoints.around("controller.claim"):
            responses = await self._ask(proposals, holder, end, refused)
        for response, asked in responses:
            for (task_id, _, _), answer in zip(asked, response.answers, strict=True):
                if answer.verdict == hsc_pb2.CLAIM_VERDICT_ASK_AGAIN:
                    continue  # a later response has the answer
                if answer.verdict == hsc_pb2.CLAIM_VERDICT_CELL_AWAY:
                    hidden.add(task_id)
                    continue
                if answer.verdict == hsc_pb2.CLAIM_VERDICT_CLAIMED:
                    tasks.append(answer.task)
                del lambdas[task_id]  # what is left has no answer
                answered += 1
            terms = shorter(terms, response.terms)
        self._dispose(slices, lambdas.keys(), refused | hidden)
        self._refusals = self._refusals + 1 if refused else 0
        if refused:
            await asyncio.sleep(backoff(self._refusals).total_seconds())
        events.claimed(len(tasks), answered - len(tasks))
        return Claimed(tasks, sent, terms)

    def _dispose(
        self, slices: Sequence[ReferenceSlice], unknown: AbstractSet[TaskId], hidden: AbstractSet[TaskId]
    ) -> None:
        """Delete what is answered to the end, and give back what is not answered at all, except messages with one of `hidden`."""
        if not unknown:
            self._message_acks.delete(self._buffer.answered(slices))
            return
        definite = [
            ReferenceSlice(message, tuple(task_id for task_id in task_ids if task_id not in unknown))
            for message, task_ids in slices
        ]
        self._message_acks.delete(self._buffer.answered(slice_ for slice_ in definite if slice_.task_ids))
        # asked without an answer for so long that the claims, if they were made, are running out already; but what was refused
        # at once would go round and round, to be refused again: those messages stay hidden
        back = {message.received for message, task_ids in slices if not unknown.isdisjoint(task_ids)}
        kept = {message.received for message, task_ids in slices if not hidden.isdisjoint(task_ids)}
        self._message_acks.give_back(back - kept)

    async def _ask(
        self, proposals: Sequence[_Asked], holder: str, end: float, refused: set[TaskId]
    ) -> list[tuple[hsc_pb2.ClaimTaskResponse, Sequence[_Asked]]]:
        """Ask until the answer is definite; in parts if it is too large for one message.

        What the HSC does not even look at, nor will, is added to `refused`.
        """
        request = _request(proposals, holder)
        divisible = len(proposals) > 1
        try:
            response = await until_definite(
                lambda timeout: self._hsc.ClaimTask(request, timeout=timeout),
                within=timedelta(seconds=end - asyncio.get_running_loop().time()),
                attempt_timeout=self._call_timeout,
                definite=frozenset({grpc.StatusCode.RESOURCE_EXHAUSTED} if divisible else ()),
            )
        except grpc.aio.AioRpcError as error:
            is_too_much = error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and not is_overloaded(error)
            if divisible and is_too_much:
                middle = len(proposals) // 2
                first = await self._ask(proposals[:middle], holder, end, refused)
                return first + await self._ask(proposals[middle:], holder, end, refused)
            reason = f"{error.code().name}: {error.details()}"
            if error.code() in TRANSIENT:
                events.claim_unknown(len(proposals), reason)
            else:
                events.claim_refused(len(proposals), reason)
                refused.update(task_id for task_id, _, _ in proposals)
            return []
        rest = [
            proposal
            for proposal, answer in zip(proposals, response.answers, strict=True)
            if answer.verdict == hsc_pb2.CLAIM_VERDICT_ASK_AGAIN
        ]
        answers = [(response, proposals)]
        # as many as fitted, then twice as many: the HSC reads the payloads of all that it is asked for
        size, place = len(proposals) - len(rest), 0
        while size and place < len(rest):
            answers += await self._ask(rest[place : place + size], holder, end, refused)
            size, place = 2 * size, place + size
        return answers

    async def release(self, claims: Sequence[hsc_pb2.Claim] = (), prefixes: Sequence[bytes] = ()) -> None:
        """Hand back claims that never reached an Executor, and all under these prefixes; if that fails they run out."""
        if not claims and not prefixes:
            return
        by_cell: defaultdict[str, list[hsc_pb2.Claim]] = defaultdict(list)
        for claim in claims:
            by_cell[claim.cell].append(claim)
        requests = [hsc_pb2.ReleaseRequest(claims=of_cell) for of_cell in by_cell.values()]
        if prefixes and len(requests) != 1:
            requests.append(hsc_pb2.ReleaseRequest(token_prefixes=prefixes))
        elif prefixes:
            requests[0].token_prefixes.extend(prefixes)
        await asyncio.gather(*map(self._release, requests))

    async def _release(self, request: hsc_pb2.ReleaseRequest) -> None:
        try:
            await until_definite(
                lambda timeout: self._hsc.Release(request, timeout=timeout),
                within=self._timing.claim_timeout,
                attempt_timeout=self._call_timeout,
            )
        except grpc.aio.AioRpcError as error:
            events.claim_unknown(len(request.claims), f"release: {error.code().name}: {error.details()}")


def _request(proposals: Sequence[_Asked], holder: str) -> hsc_pb2.ClaimTaskRequest:
    """The messages are made where they are sent from, field by field: half the cost of a copy."""
    request = hsc_pb2.ClaimTaskRequest(holder=holder, keeps_cells=True)
    add = request.proposals.add
    for task_id, token, lambda_name in proposals:
        proposal = add()
        setattr(proposal, "lambda", lambda_name)
        claim = proposal.claim
        claim.task_id = task_id
        claim.token = token
    return request
