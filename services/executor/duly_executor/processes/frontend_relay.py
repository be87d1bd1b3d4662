"""Makes the calls that callback processes ask of a Frontend: for tasks that run in them, and a few at a time.

What a process asks is hostile input: a callback can write to its link.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import grpc
from google.protobuf.message import DecodeError

from duly_core.errors import DulyError, InvalidRequestError
from duly_core.rpc.requests.field_count import check_field_count
from duly_core.rpc.stubs import attachment_stub, event_address_stub
from duly_executor.callback.frontend_calls import MOST_CALLS
from duly_executor.claims.ledger import HeldClaims
from duly_executor.events import log
from duly_executor.processes.frontend_channel import FrontendChannel
from duly_executor.processes.process import CallbackProcess
from duly_wire.retry_info import pause_of
from duly_wire.v1 import attachments_pb2, callback_pb2, event_addresses_pb2, task_pb2

if TYPE_CHECKING:
    from google.protobuf.message import Message

CALL_TIMEOUT_S = 60.0
"""Of a call with a part of 4 MiB: 0.6 Mbit/s are enough."""
_MOST_OF_ALL = 16
"""Calls of all processes under way; the others wait."""

_REQUESTS: Mapping[str, type["Message"]] = {
    "BeginUploads": attachments_pb2.BeginUploadsRequest,
    "UploadParts": attachments_pb2.UploadPartsRequest,
    "FinishUploads": attachments_pb2.FinishUploadsRequest,
    "FetchParts": attachments_pb2.FetchPartsRequest,
    "CreateEventAddresses": event_addresses_pb2.CreateEventAddressesRequest,
}


class _Refused(NamedTuple):
    code: grpc.StatusCode
    message: str


_TOO_MANY = _Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "this process has too many calls under way")
_AGAIN_AFTER = timedelta(milliseconds=200)


class FrontendRelay:
    """Between callback processes and a Frontend."""

    def __init__(self, held_claims: HeldClaims, frontend: FrontendChannel) -> None:
        self._held_claims = held_claims
        self._frontend = frontend
        self._turns = asyncio.Semaphore(_MOST_OF_ALL)
        self._under_way: Counter[CallbackProcess] = Counter()
        self._running: set[asyncio.Task[None]] = set()

    def take(self, process: CallbackProcess, calls: Iterable[callback_pb2.AttachmentCall]) -> None:
        """Make these calls of a process, and answer each."""
        for call in calls:
            if self._under_way[process] >= MOST_CALLS:
                answer = _refusal(call, _TOO_MANY)
                answer.error.retry_after.FromTimedelta(_AGAIN_AFTER)
                process.answer(answer)
                continue
            self._under_way[process] += 1
            task = asyncio.get_running_loop().create_task(self._make(process, call))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """End what is under way."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _make(self, process: CallbackProcess, call: callback_pb2.AttachmentCall) -> None:
        try:
            async with self._turns:
                answer = await self._answer(process, call)
            process.answer(answer)
        except Exception:  # noqa: BLE001 (the callback waits for an answer, and is told by its own timeout)
            log.exception("call of a callback failed unexpectedly", method=call.method[:32])
            process.answer(
                _refusal(call, _Refused(grpc.StatusCode.INTERNAL, "the Executor failed: see its log"))
            )
        finally:
            self._under_way[process] -= 1
            if not self._under_way[process]:
                del self._under_way[process]

    async def _answer(
        self, process: CallbackProcess, call: callback_pb2.AttachmentCall
    ) -> callback_pb2.AttachmentAnswer:
        request = self._request(process, call)
        if isinstance(request, _Refused):
            return _refusal(call, request)
        try:
            channel = self._frontend.channel()
        except DulyError as error:
            return _refusal(call, _Refused(grpc.StatusCode.FAILED_PRECONDITION, str(error)))
        if channel is None:
            refused = "this worker's Controller tells no Frontend to ask: update it"
            return _refusal(call, _Refused(grpc.StatusCode.FAILED_PRECONDITION, refused))
        try:
            stub = event_address_stub(channel) if _is_of_addresses(request) else attachment_stub(channel)
            response = await getattr(stub, call.method)(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            return _failure(call, error)
        return callback_pb2.AttachmentAnswer(call=call.call, response=response.SerializeToString())

    def _request(self, process: CallbackProcess, call: callback_pb2.AttachmentCall) -> Any:
        """Return the request as it may be made: of a task that runs in this process, and of nothing else."""
        kind = _REQUESTS.get(call.method)
        if kind is None:
            return _Refused(grpc.StatusCode.UNIMPLEMENTED, "callbacks cannot make this call")
        held = self._held_claims.get(call.task_id)
        if (
            held is None
            or call.task_id not in process.tasks
            or not self._held_claims.is_with(call.task_id, process.number)
        ):
            return _Refused(grpc.StatusCode.PERMISSION_DENIED, "this task does not run in this process")
        try:
            check_field_count(call.request, kind.DESCRIPTOR)
            request: Any = kind.FromString(call.request)
        except (InvalidRequestError, DecodeError) as error:
            return _Refused(grpc.StatusCode.INVALID_ARGUMENT, f"the request cannot be read: {error}")
        request.DiscardUnknownFields()
        if isinstance(request, attachments_pb2.FetchPartsRequest) or _is_of_addresses(request):
            request.task_id = str(UUID(bytes=call.task_id))
            request.claim_token = held.token
        else:
            setattr(request, "lambda", getattr(held.task, "lambda").partition("@")[0])
        return request


def _is_of_addresses(request: object) -> bool:
    return isinstance(request, event_addresses_pb2.CreateEventAddressesRequest)


def _refusal(call: callback_pb2.AttachmentCall, refused: _Refused) -> callback_pb2.AttachmentAnswer:
    code: int = refused.code.value[0]
    return callback_pb2.AttachmentAnswer(
        call=call.call, error=task_pb2.CallError(code=code, message=refused.message)
    )


def _failure(call: callback_pb2.AttachmentCall, error: grpc.aio.AioRpcError) -> callback_pb2.AttachmentAnswer:
    answer = _refusal(call, _Refused(error.code(), error.details() or ""))
    with suppress(ValueError):
        if (pause := pause_of(error)) is not None:
            answer.error.retry_after.FromNanoseconds(round(pause * 1e9))
    return answer
