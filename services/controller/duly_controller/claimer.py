"""Claims what was picked, with tokens of its own, and tells the queue what is settled."""

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
from duly_core.clock import since_boot_ns
from duly_core.rpc.retry import until_definite
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

    async def claim(self, references: Sequence[Reference], holder: str) -> Claimed:
        """Claim for this holder. A refused reference is forgotten; without a definite answer its message comes back."""
        tokens = os.urandom(_TOKEN_BYTES * len(references))
        request = hsc_pb2.ClaimTaskRequest(holder=holder)
        for place, reference in enumerate(_each_task_once(references)):
            request.proposals.add(
                claim=hsc_pb2.Claim(
                    task_id=reference.task_id, token=tokens[place * _TOKEN_BYTES : (place + 1) * _TOKEN_BYTES]
                ),
                **{"lambda": reference.lambda_name},
            )
        sent = since_boot_ns()  # before sending: the store's lease begins later, never earlier
        try:
            response = await until_definite(
                lambda timeout: self._hsc.ClaimTask(request, timeout=timeout),
                within=self._timing.process_deadline,  # later it could not be started any more
                attempt_timeout=self._call_timeout,
            )
        except grpc.aio.AioRpcError as error:
            events.claim_unknown(len(references), f"{error.code().name}: {error.details()}")
            return Claimed([], sent, hsc_pb2.LeaseTerms())
        self._disposal.delete(self._buffer.answered(references))
        tasks = [
            answer.task for answer in response.answers if answer.verdict == hsc_pb2.CLAIM_VERDICT_CLAIMED
        ]
        events.claimed(len(tasks), len(references) - len(tasks))
        return Claimed(tasks, sent, response.terms)

    async def release(self, tasks: Sequence[hsc_pb2.ClaimedTask]) -> None:
        """Hand tasks back that never reached an Executor; if that fails their claims run out."""
        if not tasks:
            return
        request = hsc_pb2.ReleaseRequest(claims=[task.claim for task in tasks])
        try:
            await until_definite(
                lambda timeout: self._hsc.Release(request, timeout=timeout),
                within=self._timing.claim_timeout,
                attempt_timeout=self._call_timeout,
            )
        except grpc.aio.AioRpcError as error:
            events.claim_unknown(len(tasks), f"release: {error.code().name}: {error.details()}")


def _each_task_once(references: Sequence[Reference]) -> list[Reference]:
    """A duplicate in the buffer is answered together with its twin."""
    return list({reference.task_id: reference for reference in references}.values())
