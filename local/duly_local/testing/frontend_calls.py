"""Brings calls from a callback in the test's process to the Frontend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import grpc

from duly.attachments.service import error_of_status
from duly_wire.v1 import attachments_pb2, event_addresses_pb2, hsc_pb2, task_pb2

if TYPE_CHECKING:
    from duly.attachments.service import Method, Response
    from duly_local.testing.stack import TestStack

_SENT_AS_BYTES = {"UploadParts": attachments_pb2.UploadPartsRequest}


class FrontendCalls:
    """Those of one run."""

    calls_at_a_time = 1

    def __init__(self, stack: TestStack, task: hsc_pb2.ClaimedTask) -> None:
        self._stack = stack
        self._task = task

    def for_task(self, _task_id: bytes) -> FrontendCalls:
        """Return what makes the calls."""
        return self

    def check(self) -> None:
        """Nobody stops a run."""

    def call(self, method: Method[Response], request: Any) -> Response:
        """Make a call with the right of the claim."""
        if isinstance(request, bytes):
            request = _SENT_AS_BYTES[method.name].FromString(request)
        if isinstance(
            request, attachments_pb2.FetchPartsRequest | event_addresses_pb2.CreateEventAddressesRequest
        ):
            request.task_id = str(UUID(bytes=self._task.claim.task_id))
            request.claim_token = self._task.claim.token
        else:
            setattr(request, "lambda", getattr(self._task, "lambda").partition("@")[0])
        try:
            answer: Response = self._stack.call_frontend(method.name, request)
        except grpc.aio.AioRpcError as error:
            code: int = error.code().value[0]
            raise error_of_status(task_pb2.CallError(code=code, message=error.details() or "")) from None
        return answer
