"""Schedules one task with a blocking call: a program that calls one at a time needs no switch of threads for it.

Calls that follow each other closely share a stream, which costs each about half.
"""

from __future__ import annotations

import random
import threading
import time

import grpc

from duly.errors import UnavailableError
from duly.transport import error_mapping
from duly.transport.caller import ONE_TRY, ONE_TRY_OF_SEVERAL, RETRIED, Reachability, seconds
from duly.transport.channel import open_blocking_channel
from duly.transport.schedule_stream import SHORTEST_TIMEOUT_S, ScheduleStream, StreamEndedError
from duly_wire.credentials import Credentials
from duly_wire.peers import near, split_peers, stands_for_several
from duly_wire.retry_info import jittered, pause_of
from duly_wire.tls_files import TlsFiles
from duly_wire.v1 import frontend_pb2
from duly_wire.v1.frontend_pb2_grpc import FrontendServiceStub

# A call that comes this soon after the one before opens a stream.
_SOON_S = 1.0
# A Frontend of another zone is used no longer than this, if one of this zone may serve again.
_FAR_S = 60.0


class BlockingSchedule:
    """One call at a time; any threads may share it. Connects with the first call."""

    def __init__(self, address: str, credentials: Credentials, reach: Reachability, zone: str = "") -> None:
        self._address = address
        peers = split_peers(address)
        self._frontends = [peer.address for peer in peers]
        self._near = near(peers, zone) or frozenset(self._frontends)
        random.shuffle(self._frontends)  # clients spread over the Frontends; the first is the one in use
        self._frontends.sort(key=self._is_far)
        self._connected_at = 0.0
        self._one_try_s = seconds(ONE_TRY if len(self._frontends) == 1 else ONE_TRY_OF_SEVERAL)
        self._credentials = credentials
        self._files = credentials.tls if isinstance(credentials.tls, TlsFiles) else None
        self._generation = 0
        self._reach = reach
        self._turn = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._stub: FrontendServiceStub | None = None
        self._stream: ScheduleStream | None = None
        self._streams_are_served = True
        self._called_at = float("-inf")
        self._closed = False

    def schedule(self, task: frontend_pb2.NewTask, timeout: float) -> frontend_pb2.ScheduleResult | None:
        """Send one task once.

        Returns None if another thread is sending, if the outcome is unknown, or after `close`: the same task is then
        to be sent another way. Raises the SDK's error for a definite refusal.
        """
        if not self._turn.acquire(blocking=False):
            return None
        try:
            if self._closed:
                return None
            request = frontend_pb2.ScheduleRequest(tasks=[task])
            return self._send(request, min(timeout, self._one_try_s))
        finally:
            self._turn.release()

    def _send(
        self, request: frontend_pb2.ScheduleRequest, timeout: float
    ) -> frontend_pb2.ScheduleResult | None:
        if self._files is not None and self._files.refresh() != self._generation:
            self._disconnect()
        now = time.monotonic()
        if self._stub is not None and self._is_far(self._frontends[0]) and now - self._connected_at > _FAR_S:
            self._use_next()
        is_soon, self._called_at = now - self._called_at < _SOON_S, now
        if self._streams_are_served and timeout >= SHORTEST_TIMEOUT_S:
            stream = self._stream if self._stream is not None and self._stream.is_usable else None
            if stream is not None or is_soon:
                stream = stream or self._open_stream()
                if stream is not None:
                    return self._send_over(stream, request, timeout)
        return self._send_alone(request, timeout)

    def _send_over(
        self, stream: ScheduleStream, request: frontend_pb2.ScheduleRequest, timeout: float
    ) -> frontend_pb2.ScheduleResult | None:
        ends_at = time.monotonic() + timeout
        try:
            response = stream.call(request, timeout)
        except StreamEndedError as ended:
            if ended.error is None or ended.error.code() in RETRIED:
                if ended.error is None:  # it stops
                    self._change_frontend()
                else:
                    self._note_failure(ended.error)
                return None
            # the status is the stream's (it is not served here, a message was too large): the call gets its own
            self._streams_are_served = ended.error.code() is not grpc.StatusCode.UNIMPLEMENTED
            return self._send_alone(request, max(0.0, ends_at - time.monotonic()))
        self._reach.note_answer()
        if response.WhichOneof("response") == "schedule":
            result: frontend_pb2.ScheduleResult = response.schedule.results[0]
            return result
        if response.error.HasField("retry_after"):
            self._rest(jittered(response.error.retry_after), ends_at)
            return None
        error = error_mapping.from_call(response.error, self._address)
        if isinstance(error, UnavailableError):
            self._change_frontend()
            return None
        raise error

    def _rest(self, pause: float, ends_at: float) -> None:
        """Wait as an overloaded Frontend says; calls of other threads are sent another way meanwhile."""
        time.sleep(max(0.0, min(pause, ends_at - time.monotonic())))

    def _send_alone(
        self, request: frontend_pb2.ScheduleRequest, timeout: float
    ) -> frontend_pb2.ScheduleResult | None:
        ends_at = time.monotonic() + timeout
        try:
            response = self._open().Schedule(request, timeout=timeout)
        except grpc.RpcError as error:
            if error.code() in RETRIED:
                self._note_failure(error)
                return None
            self._reach.note_answer()
            if (pause := pause_of(error)) is not None:
                self._rest(pause, ends_at)
                return None
            raise error_mapping.from_status(error, self._address) from None
        self._reach.note_answer()
        result: frontend_pb2.ScheduleResult = response.results[0]
        return result

    def _note_failure(self, error: grpc.RpcError) -> None:
        self._reach.note_failure(error)
        self._change_frontend()

    def _change_frontend(self) -> None:
        """Let others have the next calls, the client's calls of other kinds too."""
        if len(self._frontends) > 1:
            self._reach.avoided.note_failure(self._frontends[0])
            self._use_next()

    def _use_next(self) -> None:
        """Disconnect, and choose the next Frontend that did not fail lately, of this zone if possible; if all did, the next."""
        self._disconnect()
        self._frontends.append(self._frontends.pop(0))
        self._frontends.sort(
            key=lambda each: (self._reach.avoided.is_avoided(each), self._is_far(each))
        )  # keeps their order otherwise

    def _is_far(self, frontend: str) -> bool:
        return frontend not in self._near

    def _open_stream(self) -> ScheduleStream | None:
        """Return a new stream; None if it cannot have its threads, as while the interpreter ends."""
        if self._stream is not None:
            if self._stream.is_old and len(self._frontends) > 1:
                self._use_next()
            self._close_stream()
        try:
            self._stream = ScheduleStream(self._open(), self._turn)
        except RuntimeError:
            self._streams_are_served = False
        return self._stream

    def _open(self) -> FrontendServiceStub:
        if self._stub is None:
            frontend = self._frontends[0]
            is_one_of_several = len(self._frontends) > 1 or stands_for_several(frontend)
            self._generation = 0 if self._files is None else self._files.generation
            self._channel = open_blocking_channel(
                frontend, self._credentials, is_one_of_several=is_one_of_several
            )
            self._stub = FrontendServiceStub(self._channel)
            self._connected_at = time.monotonic()
        return self._stub

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _disconnect(self) -> None:
        self._close_stream()
        if self._channel is not None:
            self._channel.close()
            self._stub = None

    def close(self) -> None:
        """Wait for the call under way, which takes no longer than one try, then disconnect."""
        has_turn = self._turn.acquire(timeout=seconds(ONE_TRY))
        self._closed = True
        try:
            self._disconnect()
        finally:
            if has_turn:
                self._turn.release()
