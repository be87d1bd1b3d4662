"""One open stream of calls, such as FrontendService.ScheduleStream: numbers its calls, and fails them when it breaks.

Requests have the fields `call` and `cancel`, responses `call`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Any

import grpc

from duly_wire.peer_channel import PeerStream

log = logging.getLogger("duly")

Unwanted = Callable[[Any], None]

# Of a stream whose server did not answer, or does not serve.
_FAILURES = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class StreamBrokenError(Exception):
    """The stream broke before a call was answered: the outcome of the call is unknown."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"the stream broke: {code.name}: {details}")
        self.code = code
        """Of the stream: it says nothing about any single call."""


class OpenStream:
    """A task of its own writes the requests, so that no caller waits longer than its timeout for a stuck write."""

    def __init__(
        self, stream: Any, new_request: Callable[..., Any], unwanted: Unwanted | None = None
    ) -> None:
        """Start to read and write `stream`, a gRPC call or a PeerStream.

        `new_request` makes an empty request. `unwanted` takes the responses that nobody waits for any more.
        """
        self._stream = stream
        self._new_request = new_request
        self._unwanted = unwanted
        self._numbers = itertools.count(1)
        self._unsent: dict[int, Any] = {}
        self._has_unsent = asyncio.Event()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._answers_read = 0
        self._broken_by: StreamBrokenError | None = None
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._until_it_breaks(work)) for work in (self._read, self._write)]

    @property
    def is_broken(self) -> bool:
        """Whether it has ended: a later call fails."""
        return self._broken_by is not None

    @property
    def is_idle(self) -> bool:
        """Whether no call waits for its answer."""
        return not self._waiting

    @property
    def has_others(self) -> bool:
        """Whether there are other servers, to which a later stream may go."""
        return isinstance(self._stream, PeerStream)

    def note_failure(self) -> None:
        """Note that its server did not serve: others are better for a while."""
        if isinstance(self._stream, PeerStream):
            self._stream.note_failure()

    async def call(self, request: Any, timeout: float) -> Any:
        """Send a request and return its answer.

        Raises:
            StreamBrokenError: the stream broke.
            TimeoutError: no answer came in time.
        """
        if self._broken_by is not None:  # it may have broken since it was chosen
            raise self._broken_by
        loop = asyncio.get_running_loop()
        number = request.call = next(self._numbers)
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting[number] = answer
        self._send(request)
        timer = loop.call_later(timeout, self._late, answer, self._answers_read)
        try:
            return await answer
        except (TimeoutError, asyncio.CancelledError):
            self._forget(number)
            raise
        finally:
            timer.cancel()
            del self._waiting[number]
            if answer.done() and not answer.cancelled():
                answer.exception()  # asyncio would log that nobody did, if the caller was cancelled meanwhile

    def _send(self, request: Any) -> None:
        self._unsent[request.call] = request
        self._has_unsent.set()

    def _forget(self, number: int) -> None:
        """Tell the server that nobody waits for this call any more, if it was sent."""
        if self._unsent.pop(number, None) is None and not self.is_broken:
            self._send(self._new_request(call=next(self._numbers), cancel=number))

    def _late(self, answer: asyncio.Future[Any], answers_read: int) -> None:
        if answer.done():
            return
        answer.set_exception(TimeoutError("no answer in time"))
        if self._answers_read == answers_read:  # the peer may be frozen, and not only slow with this call
            self._break(grpc.StatusCode.DEADLINE_EXCEEDED, "a call had no answer in time, nor had any other")

    async def _read(self) -> None:
        while (response := await self._stream.read()) is not grpc.aio.EOF:
            self._answers_read += 1
            answer = self._waiting.get(response.call)
            if answer is not None and not answer.done():
                answer.set_result(response)
            elif self._unwanted is not None:
                self._unwanted(response)
        self._break(grpc.StatusCode.UNAVAILABLE, "the server ended the stream")

    async def _write(self) -> None:
        while await self._has_unsent.wait():
            while self._unsent:
                request = self._unsent.pop(next(iter(self._unsent)))
                try:
                    await self._stream.write(request)
                except asyncio.InvalidStateError:
                    return  # the stream has ended: `_read` learns its status
            self._has_unsent.clear()

    async def _until_it_breaks(self, work: Callable[[], Any]) -> None:
        try:
            await work()
        except grpc.aio.AioRpcError as error:
            self._break(error.code(), error.details() or "")
        except asyncio.CancelledError:
            self._break(grpc.StatusCode.CANCELLED, "it was cancelled")
        except Exception as error:
            # whatever it was: the calls that wait on the stream would wait for ever
            log.exception("a stream of calls failed unexpectedly")
            self._break(grpc.StatusCode.UNKNOWN, str(error))

    def _break(self, code: grpc.StatusCode, details: str) -> None:
        """End the stream, and the calls that wait for it."""
        if self.is_broken:
            return
        self._broken_by = StreamBrokenError(code, details)
        self._unsent.clear()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(StreamBrokenError(code, details))
        if code in _FAILURES:
            self.note_failure()
        self._stream.cancel()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()

    async def close(self) -> None:
        """End the stream; calls that wait for it fail."""
        self._break(grpc.StatusCode.CANCELLED, "it was closed")
        await asyncio.gather(*self._tasks, return_exceptions=True)
