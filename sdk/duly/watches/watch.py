"""A watch that is under way: events, and where to go on after them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Any

from duly.transport import error_mapping
from duly.transport.caller import DEFAULT_TIMEOUT, Caller, seconds
from duly.watches.event import TaskEvent
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import watches_pb2

_LONGEST_POLL = timedelta(seconds=20)
_POLL_GRACE = timedelta(seconds=5)


class Watch(AsyncIterator[TaskEvent]):
    """Yields events for ever, in the order in which they were written; stop when you like.

        watch = await client.watch(lambdas=["mail.*"])
        async for event in watch:
            print(event.kind.name, event.task_id)

    An error ends the loop, not the watch: `async for` may go on where it was, or another client `after` its `position`.
    """

    def __init__(self, caller: Caller, request: watches_pb2.WatchRequest) -> None:
        self._caller = caller
        self._request = request
        self._position = request.after
        self._events: deque[TaskEvent] = deque()

    @property
    def position(self) -> str:
        """Just behind the last event that was given out. Keep it to go on later, in another process."""
        return self._position

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> TaskEvent:
        while not self._events:
            await self._poll(_LONGEST_POLL)
        return self._next()

    async def next_events(self, timeout: timedelta | None = None) -> list[TaskEvent]:
        """Return what happened next, up to 1,000 events; wait if that is nothing yet. Empty: the timeout is over.

        `timeout` None waits for ever. Raises WatchLostError, PermissionDeniedError, UnavailableError.
        """
        clock = asyncio.get_running_loop().time
        end = None if timeout is None else clock() + seconds(timeout)
        while not self._events:
            left = _LONGEST_POLL if end is None else timedelta(seconds=max(0.0, end - clock()))
            await self._poll(min(left, _LONGEST_POLL))
            if end is not None and clock() >= end:
                break
        return [self._next() for _ in range(len(self._events))]

    def _next(self) -> TaskEvent:
        event = self._events.popleft()
        self._position = event.position if self._events else self._request.after
        return event

    async def _poll(self, wait: timedelta) -> None:
        self._request.wait.CopyFrom(to_duration(wait))
        answer = await self._caller.call(
            self._caller.watches.Watch,
            self._request,
            DEFAULT_TIMEOUT + wait + _POLL_GRACE,
            one_try=wait + _POLL_GRACE,
        )
        error_mapping.check(answer)
        self.take(answer)

    def take(self, answer: watches_pb2.WatchResponse) -> None:
        """Note what the Frontend answered."""
        self._request.after = answer.position
        self._events.extend(map(TaskEvent.from_proto, answer.events))
        if not self._events:
            self._position = answer.position


class BlockingWatch(Iterator[TaskEvent]):
    """Yields events for ever, in the order in which they were written; stop when you like.

        for event in client.watch(lambdas=["mail.*"]):
            print(event.kind.name, event.task_id)

    An error ends the loop, not the watch: `for` may go on where it was, or another client `after` its `position`.
    """

    def __init__(self, watch: Watch, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._watch = watch
        self._run = run

    @property
    def position(self) -> str:
        """Just behind the last event that was given out. Keep it to go on later, in another process."""
        return self._watch.position

    def __iter__(self) -> BlockingWatch:
        return self

    def __next__(self) -> TaskEvent:
        event: TaskEvent = self._run(self._watch.__anext__())
        return event

    def next_events(self, timeout: timedelta | None = None) -> list[TaskEvent]:
        """Return what happened next, up to 1,000 events; wait if that is nothing yet. Empty: the timeout is over.

        `timeout` None waits for ever. Raises WatchLostError, PermissionDeniedError, UnavailableError.
        """
        events: list[TaskEvent] = self._run(self._watch.next_events(timeout))
        return events
