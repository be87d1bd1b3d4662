"""Sends what many callers submit one by one together, without making any of them wait for company.

When nothing is under way a batch leaves at once. What is submitted meanwhile leaves together in the
next one: the busier the caller, the larger the batches.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from duly.errors import ClosedError

Item = TypeVar("Item")
Answer = TypeVar("Answer")

# So many batches that are late hold up no others.
_MOST_LATE = 6


class Batcher(Generic[Item, Answer]):
    """Turns single submissions into batches. Used on one event loop.

    `send` carries out a batch and returns one answer for each item, in order; what it raises is
    raised to everyone whose item was in the batch, and to nobody else.
    """

    def __init__(
        self,
        send: Callable[[list[Item]], Awaitable[Sequence[Answer]]],
        size_of: Callable[[Item], int],
        *,
        most_items: int = 500,
        most_bytes: int = 1024 * 1024,
        most_in_flight: int = 2,
        late_after_s: float | None = None,
        note_late: Callable[[list[Item]], object] = lambda _: None,
    ) -> None:
        """`size_of` gives an item's bytes; an item larger than `most_bytes` travels alone.

        A batch that is not answered after `late_after_s` holds up no others any more, and `note_late` is told.
        """
        self._send = send
        self._size_of = size_of
        self._most_items = most_items
        self._most_bytes = most_bytes
        self._most_in_flight = most_in_flight
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._late_after_s = late_after_s
        self._note_late = note_late
        self._flights: set[asyncio.Task[None]] = set()
        # Those of them that hold up no others.
        self._late: set[asyncio.Task[None]] = set()
        self._timers: dict[
            asyncio.Task[None], tuple[asyncio.TimerHandle, list[tuple[Item, asyncio.Future[Answer]]]]
        ] = {}
        self._start_is_due = False
        self._closed = False

    async def submit(self, item: Item, deadline: float | None = None) -> Answer:
        """Return the answer to this item.

        If the caller is cancelled its item is not sent, unless it is under way already; the other
        items of its batch do not notice. Raises ClosedError after `close`, TimeoutError when the loop's
        clock shows `deadline`.
        """
        if self._closed:
            raise ClosedError("the client was closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((item, future))
        if not self._start_is_due and self._has_room:
            # Not now but when the loop comes round: tasks started together then travel together.
            self._start_is_due = True
            loop.call_soon(self._start)
        if deadline is None:
            return await future
        # A timer of our own: asyncio.timeout_at() costs five times as much.
        timer = loop.call_at(deadline, _expire, future)
        try:
            return await future
        finally:
            timer.cancel()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits or is under way."""
        return not self._waiting and not self._flights

    @property
    def _has_room(self) -> bool:
        late = min(len(self._late), _MOST_LATE)
        return len(self._flights) - late < self._most_in_flight

    def wait_as_told(self, pause_s: float) -> None:
        """Called by `send`: its batch keeps its place, and is late no sooner than `late_after_s` after this pause.

        The server said when to come again: more batches would be of no help.
        """
        flight = asyncio.current_task()
        if flight is not None and flight in self._timers and self._late_after_s is not None:
            timer, batch = self._timers[flight]
            timer.cancel()
            self._late.discard(flight)
            self._watch(flight, batch, pause_s + self._late_after_s)

    async def close(self) -> None:
        """Refuse new items, and return once the ones submitted before are answered."""
        self._closed = True
        self._start()
        while self._flights:
            await asyncio.wait(self._flights)

    def _start(self) -> None:
        self._start_is_due = False
        loop = asyncio.get_running_loop()
        while self._has_room and (batch := self._take_batch()):
            flight = loop.create_task(self._fly(batch))
            self._flights.add(flight)
            flight.add_done_callback(self._land)
            if self._late_after_s is not None:
                self._watch(flight, batch, self._late_after_s)

    def _watch(
        self, flight: asyncio.Task[None], batch: list[tuple[Item, asyncio.Future[Answer]]], after_s: float
    ) -> None:
        timer = asyncio.get_running_loop().call_later(after_s, self._pass_by, flight, batch)
        self._timers[flight] = timer, batch

    def _pass_by(self, flight: asyncio.Task[None], batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        """Let others go before a batch that is late."""
        if flight in self._flights:
            self._late.add(flight)
            self._note_late([item for item, _ in batch])
            self._start()

    def _land(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        self._late.discard(flight)
        if (watch := self._timers.pop(flight, None)) is not None:
            watch[0].cancel()
        self._start()

    def _take_batch(self) -> list[tuple[Item, asyncio.Future[Answer]]]:
        batch: list[tuple[Item, asyncio.Future[Answer]]] = []
        room = self._most_bytes
        while self._waiting and len(batch) < self._most_items:
            item, future = self._waiting[0]
            if not future.done():  # else its caller was cancelled
                room -= self._size_of(item)
                if batch and room < 0:
                    break
                batch.append((item, future))
            self._waiting.popleft()
        return batch

    async def _fly(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._send([item for item, _ in batch])
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
        except Exception as error:  # noqa: BLE001 (the callers raise it)
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
        finally:
            # Only if this flight itself was cancelled (the loop is shutting down): nobody else would tell them.
            for _, future in batch:
                future.cancel()


def _expire(future: asyncio.Future[Answer]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())
