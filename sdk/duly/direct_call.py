"""Schedules one task with a blocking call: a program that calls one at a time needs no loop and no thread for it."""

from __future__ import annotations

import threading

import grpc

from duly import error_mapping
from duly.caller import ONE_TRY, RETRIED, Reach, seconds
from duly.channel import open_blocking_channel
from duly.v1 import frontend_pb2
from duly.v1.frontend_pb2_grpc import FrontendServiceStub


class DirectCalls:
    """One call at a time; any threads may share it. Connects with the first call."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None, reach: Reach) -> None:
        self._address = address
        self._credentials = credentials
        self._reach = reach
        self._turn = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._stub: FrontendServiceStub | None = None
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
            response = self._open().Schedule(request, timeout=min(timeout, seconds(ONE_TRY)))
        except grpc.RpcError as error:
            if error.code() in RETRIED:
                self._reach.note_failure(error)
                return None
            self._reach.note_answer()
            raise error_mapping.from_status(error, self._address) from error
        else:
            self._reach.note_answer()
            result: frontend_pb2.ScheduleResult = response.results[0]
            return result
        finally:
            self._turn.release()

    def _open(self) -> FrontendServiceStub:
        if self._stub is None:
            self._channel = open_blocking_channel(self._address, self._credentials)
            self._stub = FrontendServiceStub(self._channel)
        return self._stub

    def close(self) -> None:
        """Wait for the call under way, which takes no longer than one try, then disconnect."""
        has_turn = self._turn.acquire(timeout=seconds(ONE_TRY))
        self._closed = True
        try:
            if self._channel is not None:
                self._channel.close()
        finally:
            if has_turn:
                self._turn.release()
