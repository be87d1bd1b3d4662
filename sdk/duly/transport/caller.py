"""Calls a Frontend: a deadline for each try, the same request again while there is time, errors named."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import grpc

from duly.callbacks.codec import Codec
from duly.errors import ClosedError, UnavailableError
from duly.transport import error_mapping, partial_answers
from duly.transport.after_fork import keep_in_children
from duly.transport.channel import open_channel
from duly.transport.error_mapping import Health
from duly.transport.lanes import NotAnsweredError
from duly_wire.call_stream import CallStream
from duly_wire.credentials import Credentials
from duly_wire.peers import Avoided, split_addresses
from duly_wire.retry_info import pause_of
from duly_wire.v1 import attachments_pb2, frontend_pb2
from duly_wire.v1.access_pb2_grpc import AccessServiceStub
from duly_wire.v1.attachments_pb2_grpc import AttachmentServiceStub
from duly_wire.v1.event_addresses_pb2_grpc import EventAddressServiceStub
from duly_wire.v1.events_pb2_grpc import EventServiceStub
from duly_wire.v1.explain_pb2_grpc import ExplainServiceStub
from duly_wire.v1.fleet_pb2_grpc import FleetServiceStub
from duly_wire.v1.frontend_pb2_grpc import FrontendServiceStub
from duly_wire.v1.gates_pb2_grpc import GateServiceStub
from duly_wire.v1.graphs_pb2_grpc import GraphServiceStub
from duly_wire.v1.inspection_pb2_grpc import InspectionServiceStub
from duly_wire.v1.limits_pb2_grpc import LimitServiceStub
from duly_wire.v1.objectives_pb2_grpc import ObjectiveServiceStub
from duly_wire.v1.output_pb2_grpc import OutputServiceStub
from duly_wire.v1.pools_pb2_grpc import PoolServiceStub
from duly_wire.v1.problems_pb2_grpc import ProblemServiceStub
from duly_wire.v1.registry_pb2_grpc import RegistryServiceStub
from duly_wire.v1.sessions_pb2_grpc import SessionServiceStub
from duly_wire.v1.settings_pb2_grpc import SettingsServiceStub
from duly_wire.v1.time_tables_pb2_grpc import TimeTableServiceStub
from duly_wire.v1.watches_pb2_grpc import WatchServiceStub

Answer = TypeVar("Answer")


class Listing(Protocol):
    """A request for one page of a list."""

    page_token: str


DEFAULT_TIMEOUT = timedelta(seconds=10)

# One try may take this long before the request is sent again: a Frontend that was lost with its
# connection intact (a frozen host) is found out in half the default timeout.
ONE_TRY = timedelta(seconds=5)
# The same where there are other Frontends to ask; twice as long after each try that was too short.
ONE_TRY_OF_SEVERAL = timedelta(seconds=2)
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
# The next stream may go to another Frontend.
_MAX_STREAM_AGE = timedelta(minutes=1)
# A larger request is sent alone: the calls behind it on a stream would wait.
_MOST_STREAMED_BYTES = 64 * 1024

_LONGEST_HEALTH_S = 1.0
"""A call that was late ends at most this later, or a tenth of its timeout."""
_HEALTH = {b"\x08\x01": Health.SERVING, b"\x08\x02": Health.NOT_SERVING}
"""A HealthCheckResponse as it is on the wire."""

# The outcome is unknown or nothing was done. Sending the same request again is always safe: it
# carries the same ids. CANCELLED is a server's that was shut down; our own cancels are no statuses.
RETRIED = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)


class Reachability:
    """Whether a client has reached its Frontend, and how long it tries until then; any thread may tell it."""

    def __init__(self, unreachable_after: timedelta | None) -> None:
        self._unreachable_after_s = None if unreachable_after is None else seconds(unreachable_after)
        self._was_answered = False
        self.avoided = Avoided()

    def note_answer(self) -> None:
        """Remember that the Frontend is there."""
        self._was_answered = True

    def note_failure(self, error: grpc.RpcError) -> None:
        """Remember that the Frontend is there, if it is what gave this status."""
        self._was_answered |= error_mapping.is_answer(error)

    def patience_ends_at(self, started_at: float, error: grpc.RpcError) -> float:
        """Until when a call is worth repeating where nothing listens; a host that is silent gets all its time."""
        self.note_failure(error)
        refused = error.code() is grpc.StatusCode.UNAVAILABLE and not self._was_answered
        if self._unreachable_after_s is None or not refused:
            return math.inf
        return started_at + self._unreachable_after_s


class Caller:
    """One Frontend's services. Made and used on one event loop."""

    def __init__(
        self,
        address: str,
        credentials: Credentials | None = None,
        reach: Reachability | None = None,
        codec: Codec | None = None,
        zone: str = "",
    ) -> None:
        self.address = address
        self.codec = codec
        self._reach = reach or Reachability(None)
        self._channel = open_channel(address, credentials or Credentials(), self._reach.avoided, zone)
        self._frontends = len(split_addresses(address))
        keep_in_children(self)
        self._closed = False
        self.frontend = FrontendServiceStub(self._channel)
        self.attachments = AttachmentServiceStub(self._channel)
        # takes serialized requests
        self.upload_parts = self._channel.unary_unary(
            "/duly.v1.AttachmentService/UploadParts",
            response_deserializer=attachments_pb2.UploadPartsResponse.FromString,
        )
        self.output = OutputServiceStub(self._channel)
        self.watches = WatchServiceStub(self._channel)
        self.access = AccessServiceStub(self._channel)
        self.registry = RegistryServiceStub(self._channel)
        self.settings = SettingsServiceStub(self._channel)
        self.sessions = SessionServiceStub(self._channel)
        self.event_addresses = EventAddressServiceStub(self._channel)
        self.events = EventServiceStub(self._channel)
        self.gates = GateServiceStub(self._channel)
        self.inspection = InspectionServiceStub(self._channel)
        self.limits = LimitServiceStub(self._channel)
        self.objectives = ObjectiveServiceStub(self._channel)
        self.pools = PoolServiceStub(self._channel)
        self.problems = ProblemServiceStub(self._channel)
        self.time_tables = TimeTableServiceStub(self._channel)
        self.graphs = GraphServiceStub(self._channel)
        self.explains = ExplainServiceStub(self._channel)
        self.fleet = FleetServiceStub(self._channel)
        # by hand: the package of health checks is not one that the SDK needs
        self._health = self._channel.unary_unary("/grpc.health.v1.Health/Check")
        self._stream = CallStream(
            self.frontend.ScheduleStream,
            frontend_pb2.ScheduleStreamRequest,
            max_age=_MAX_STREAM_AGE,
            # any but those that are retried: a call alone has a status of its own, and its ids make it safe to repeat
            made_alone=frozenset(grpc.StatusCode) - frozenset(RETRIED),
        )

    async def call(
        self,
        method: Callable[..., Awaitable[Answer]],
        request: object,
        timeout: timedelta = DEFAULT_TIMEOUT,
        *,
        one_try: timedelta | None = None,
        again: bool = True,
        in_common: bool = False,
        tried: Callable[[int], object] = lambda _: None,
        waits_as_told: Callable[[float], object] = lambda _: None,
    ) -> Answer:
        """Send a request until it is answered, and return the answer.

        Retries for as long as `timeout` allows, `one_try` at a time; not at all without `again`. If another Frontend is
        known it is asked at once, else there is a pause; an overloaded one says how long. `tried` is told the number
        of each try: an earlier one may have done the work. `waits_as_told` is told each pause that the server asks for, in seconds.
        Raises UnavailableError when the time is up, and the SDK's own
        error for any other status. `in_common`, NotAnsweredError is raised where the request would be sent again because
        nobody serves it.
        """
        answer_before: grpc.aio.AioRpcError | None = None
        clock = asyncio.get_running_loop().time
        started_at = clock()
        deadline = started_at + seconds(timeout)
        longest_pause = _FIRST_PAUSE_S
        longest_try = seconds(one_try or (ONE_TRY if self._frontends == 1 else ONE_TRY_OF_SEVERAL))
        tries = 0
        while True:
            self._check_open()
            tries += 1
            tried(tries)
            try:
                sent = method(request, timeout=min(max(deadline - clock(), 0), longest_try))
                answer = await sent
            except grpc.aio.AioRpcError as error:
                pause = random.uniform(longest_pause / 2, longest_pause)  # noqa: S311 (jitter is no secret)
                told = pause_of(error)
                if told is not None:
                    pause = told
                elif tries < self._frontends:
                    pause = 0.0
                end = min(deadline, self._reach.patience_ends_at(started_at, error))
                is_retried = told is not None or error.code() in RETRIED
                if not again or not is_retried or clock() + pause >= end:
                    is_late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                    if is_late and answer_before is None:
                        raise await self.late(timeout) from None
                    # why the Frontend did not serve it says more than that there was no time for another try
                    reason = answer_before if is_late and answer_before is not None else error
                    raise error_mapping.from_status(
                        reason, self.address
                    ) from None  # its text has gRPC's words
                if in_common and told is None:
                    raise NotAnsweredError from None
                if told is not None:
                    waits_as_told(told)
                if error_mapping.is_answer(error):
                    answer_before = error
                longest_try = max(longest_try, min(2 * longest_try, seconds(ONE_TRY)))
            except asyncio.CancelledError:
                # Closing the channel cancels what is under way, though nobody cancelled the caller.
                if not _is_cancelled_itself():
                    self._check_open()
                raise
            else:
                self._reach.note_answer()
                if isinstance(sent, grpc.aio.Call):
                    partial_answers.warn_of(await sent.trailing_metadata())
                return answer
            await asyncio.sleep(pause)
            if pause:
                longest_pause = min(2 * longest_pause, _LONGEST_PAUSE_S)

    async def late(self, timeout: timedelta) -> UnavailableError:
        """Return the error for a call that was not answered in time, with what the Frontend says of itself."""
        limit = min(_LONGEST_HEALTH_S, seconds(timeout) / 10)
        try:
            answer = await self._health(b"", timeout=limit)
        except grpc.aio.AioRpcError as error:
            is_silent = error.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
            health = Health.SILENT if is_silent else Health.UNKNOWN
        else:
            health = _HEALTH.get(answer, Health.UNKNOWN)
        return error_mapping.late(self.address, health)

    async def pages(
        self, method: Callable[..., Awaitable[Answer]], request: Listing
    ) -> AsyncIterator[Answer]:
        """Yield the answers to a request for a list, page after page."""
        while True:
            answer: Any = await self.call(method, request)
            yield answer
            if not answer.next_page_token:
                return
            request.page_token = answer.next_page_token

    async def schedule(
        self, request: frontend_pb2.ScheduleRequest, timeout: float
    ) -> frontend_pb2.ScheduleResponse:
        """Send a request once, over a stream if that is possible; a method for `call`."""
        alone = self.frontend.Schedule
        response: frontend_pb2.ScheduleResponse
        if request.ByteSize() > _MOST_STREAMED_BYTES:
            response = await alone(request, timeout=timeout)
        else:
            response = await self._stream.call("schedule", request, alone, timeout)
        return response

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the client was closed")

    async def close(self) -> None:
        """Close the connection; calls that are under way are cancelled."""
        self._closed = True
        await self._stream.close()
        await self._channel.close()


def _is_cancelled_itself() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def seconds(timeout: timedelta) -> float:
    """Return a timeout in seconds; TypeError if it is not a timedelta (is 5 seconds, or milliseconds?)."""
    if not isinstance(timeout, timedelta):
        raise TypeError(f"a timeout must be a timedelta, not {type(timeout).__name__}")
    return timeout.total_seconds()
