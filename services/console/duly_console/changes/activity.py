"""Looks whether tasks come, start or end, with one call for all pages that follow it."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from duly_console.changes.streams import Signal, Stream
from duly_console.frontend_calls import FrontendCalls
from duly_wire.v1 import inspection_pb2

_EVERY = 1.0
"""Seconds between two looks."""
_LONGEST = 30.0
_SHARE = 0.05
"""Of the time: a store that takes long to count is asked less often."""
_TIMEOUT = 5.0
AWAY = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
    }
)
"""Answers after which it is worth to ask again."""

_Counters = tuple[int, int, int]


class ActivityLooks:
    """Looks while somebody follows. The counters are those of everybody, so any of the followers may ask for them."""

    def __init__(self, every: float = _EVERY) -> None:
        """Make one."""
        self._every = every
        self._followers: dict[Stream, FrontendCalls] = {}
        self._looking: asyncio.Task[None] | None = None
        self._last: _Counters | None = None
        self.looks = 0
        """Calls, since the start."""

    @contextmanager
    def following(self, stream: Stream, calls: FrontendCalls) -> Iterator[None]:
        """Tell a stream of what changes, meanwhile; `calls` are those of its person."""
        self._followers[stream] = calls.within(_TIMEOUT)
        if self._looking is None or self._looking.done():
            self._last = None
            self._looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            self._followers.pop(stream, None)
            if not self._followers and self._looking is not None:
                self._looking.cancel()
                self._looking = (
                    None  # it is not done yet: the next follower is not to take it for one that looks
                )

    async def _look(self) -> None:
        is_away = False
        while self._followers:
            stream, calls = next(iter(self._followers.items()))
            began_at = time.monotonic()
            try:
                self.looks += 1
                answer: inspection_pb2.GetActivityResponse = await calls(
                    calls.stubs.inspection.GetActivity, inspection_pb2.GetActivityRequest()
                )
            except grpc.aio.AioRpcError as error:
                if error.code() not in AWAY:
                    # this person may no longer look: another one may
                    if error.code() is not grpc.StatusCode.UNAUTHENTICATED:
                        stream.tell(Signal.DONE)
                    stream.end()
                    self._followers.pop(stream, None)
                    continue
                if not is_away:
                    self._tell(Signal.AWAY)
                is_away = True
            else:
                now = answer.scheduled, answer.ended, answer.starts
                if is_away or self._last not in (None, now):
                    self._tell(Signal.CHANGED)
                self._last, is_away = now, False
            took = time.monotonic() - began_at
            await asyncio.sleep(min(_LONGEST, max(self._every, took / _SHARE)))

    def _tell(self, signal: Signal) -> None:
        for stream in self._followers:
            stream.tell(signal)
