"""One open stream of Schedule calls, used by one thread at a time: a call over it costs about half."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

import grpc

from duly_wire.v1 import frontend_pb2
from duly_wire.v1.frontend_pb2_grpc import FrontendServiceStub

# How often the watch looks at the time: a late call ends that much later at most.
_WATCH_S = 0.5
# With less left, a call is made alone: the watch would end it too late.
SHORTEST_TIMEOUT_S = 4 * _WATCH_S

# Beyond this age the next call opens another stream, which may go to another Frontend.
_MAX_AGE_S = 60.0
_MAX_IDLE_S = 10.0


class StreamEndedError(Exception):
    """The stream ended before a call was answered: the outcome of the call is unknown."""

    def __init__(self, error: grpc.RpcError | None) -> None:
        super().__init__()
        # None: the Frontend ended the stream, as it does when it stops.
        self.error = error


class ScheduleStream:
    """A stream, and a thread that ends it when a call is late or when it is not used any more."""

    def __init__(self, stub: FrontendServiceStub, turn: threading.Lock) -> None:
        """Open one; whoever calls or closes holds `turn`."""
        self._turn = turn
        self._requests: queue.SimpleQueue[frontend_pb2.ScheduleStreamRequest | None] = queue.SimpleQueue()
        self._calls = 0
        self._is_calling = False
        self._opened_at = self._used_at = time.monotonic()
        # Of the call under way, on the monotonic clock.
        self._deadline = float("inf")
        self._ended = threading.Event()
        # While an interpreter ends no thread can be started: the RuntimeError is the caller's to handle.
        self._responses: Any = None
        threading.Thread(target=self._watch, name="duly-schedule-stream", daemon=True).start()
        try:
            self._responses = stub.ScheduleStream(iter(self._requests.get, None))
        except BaseException:
            self._ended.set()
            raise

    @property
    def is_usable(self) -> bool:
        """Whether the next call may use it."""
        return not self._ended.is_set() and not self._is_calling and not self.is_old

    @property
    def is_old(self) -> bool:
        """Whether it is time to use another Frontend, if there is one."""
        return time.monotonic() - self._opened_at >= _MAX_AGE_S

    def call(
        self, request: frontend_pb2.ScheduleRequest, timeout: float
    ) -> frontend_pb2.ScheduleStreamResponse:
        """Send a request and return its response; StreamEndedError if the stream ends first.

        `timeout` is in seconds; a late call ends the stream.
        """
        self._calls += 1
        self._deadline = time.monotonic() + timeout
        self._is_calling = (
            True  # until its own response came: an interrupt leaves it to come to the next call
        )
        try:
            self._requests.put(frontend_pb2.ScheduleStreamRequest(call=self._calls, schedule=request))
            response: frontend_pb2.ScheduleStreamResponse = next(self._responses)
            if response.call != self._calls:
                raise StreamEndedError(None)
            self._is_calling = False
        except grpc.RpcError as error:
            raise StreamEndedError(error) from error
        except StopIteration:
            raise StreamEndedError(None) from None
        else:
            return response
        finally:
            self._used_at, self._deadline = time.monotonic(), float("inf")
            if self._is_calling:
                self.close()

    def close(self) -> None:
        """End the stream."""
        self._ended.set()
        self._requests.put(None)
        if self._responses is not None:
            self._responses.cancel()

    def _watch(self) -> None:
        while not self._ended.wait(_WATCH_S):
            now = time.monotonic()
            if now >= self._deadline:
                if self._responses is not None:
                    self._responses.cancel()
            elif now - self._used_at >= _MAX_IDLE_S and self._turn.acquire(blocking=False):
                try:
                    self.close()
                finally:
                    self._turn.release()
