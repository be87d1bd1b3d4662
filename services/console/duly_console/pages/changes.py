"""A stream that tells a page that what it shows has changed; the page then asks for its parts as ever."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from duly_console.changes.activity import ActivityLooks
from duly_console.changes.sources import tell_of
from duly_console.changes.streams import Signal, Stream, Streams
from duly_console.changes.subjects import Subject, may_follow, subject_of
from duly_console.errors import PageError
from duly_console.page import Page
from duly_console.viewer import Viewer

BEAT = 15.0
"""Seconds after which the person's rights are read again; if there is nothing else to tell, a sign of life is sent."""
_COALESCED = 1.0
"""Seconds from one signal to the next, at least."""
_LONGEST = 600.0
"""Seconds: then the browser opens another stream. A peer that is gone without a word is found so."""


class _Following(StreamingResponse):
    """A stream whose place is free again however it ends, even before its first byte."""

    def __init__(self, closed: Callable[[], object], body: AsyncIterator[bytes], **others: Any) -> None:
        super().__init__(body, **others)
        self._closed = closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._closed()


class ChangesPage:
    """Serves the streams of a console."""

    def __init__(
        self,
        streams: Streams,
        is_session: Callable[[Request], bool],
        viewer_of: Callable[[Page], Awaitable[Viewer]],
    ) -> None:
        """Make one.

        Args:
            streams: bounds them.
            is_session: tells whether a request has the cookie of a session that goes on.
            viewer_of: reads again what the person of a page may do.
        """
        self._streams = streams
        self._is_session = is_session
        self._viewer_of = viewer_of
        self.activity = ActivityLooks()

    async def follow(self, page: Page) -> Response:
        """Answer with a stream."""
        request = page.request
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise PageError(403, "A page of another site made this request.")
        if not self._is_session(request):
            raise PageError(403, "Open a page of the console first.")
        subject = subject_of(page.asked("of"))
        if subject is None or not may_follow(subject, page.viewer):
            raise PageError(404, "No changes of such a page can be followed.")
        headers = {"x-accel-buffering": "no"}  # a proxy is not to wait for its end
        if request.method == "HEAD":
            return Response(media_type="text/event-stream", headers=headers)
        opened = self._streams.opened(page.session.csrf)
        stream = opened.__enter__()  # here, so that a refusal is an answer and no stream that breaks off
        return _Following(
            lambda: opened.__exit__(None, None, None),
            self._body(page, subject, stream),
            media_type="text/event-stream",
            headers=headers,
        )

    async def _body(self, page: Page, subject: Subject, stream: Stream) -> AsyncIterator[bytes]:
        if subject.kind == "all":
            with self.activity.following(stream, page.calls):
                async for text in self._signals(page, stream):
                    yield text
            return
        source = asyncio.create_task(tell_of(subject, stream, page.calls))
        try:
            async for text in self._signals(page, stream):
                yield text
        finally:
            source.cancel()

    async def _signals(self, page: Page, stream: Stream) -> AsyncIterator[bytes]:
        yield _text(Signal.BEGUN)
        ends_at = time.monotonic() + _LONGEST
        beats_at = time.monotonic() + BEAT
        while not stream.over.is_set() and time.monotonic() < ends_at:
            due = await stream.next(max(0.0, beats_at - time.monotonic()))
            # where something is always due, too
            if (not due or time.monotonic() >= beats_at) and not stream.over.is_set():
                if not await self._is_allowed(page):
                    return
                due = due or [Signal.BEAT]
                beats_at = time.monotonic() + BEAT
            if due:
                yield b"".join(map(_text, due))
            if Signal.DONE in due:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(_COALESCED):
                    await stream.over.wait()

    async def _is_allowed(self, page: Page) -> bool:
        """Return whether the session goes on and its person may do what it might when the stream began."""
        if not self._is_session(page.request):
            return False
        try:
            return await self._viewer_of(page) == page.viewer
        except grpc.aio.AioRpcError as error:
            return (
                error.code() is not grpc.StatusCode.UNAUTHENTICATED
            )  # otherwise it does not answer: the page says so


def _text(signal: Signal) -> bytes:
    return f"event: {signal}\ndata: 1\n\n".encode()
