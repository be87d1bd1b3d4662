"""Items of a kind that is not answered hold up no others: they go by a lane of their own until they are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from duly.errors import ClosedError
from duly.transport.batching import Batcher

Item = TypeVar("Item")
Answer = TypeVar("Answer")

LATE_AFTER_S = 0.5
MOST_LANES = 32
"""Kinds beyond so many that are not answered share one more lane."""
_SHARED = None


class NotAnsweredError(Exception):
    """A batch of any kinds is not served now, and may be sent again."""


class Lanes(Generic[Item, Answer]):
    """A batcher for all kinds of items, and one for each kind that gives trouble. Used on one event loop.

    Kinds give trouble whose batch is late or was not answered, and items that were answered as `is_trouble` says. They go with others again
    after an answer in time that is none.
    """

    def __init__(
        self,
        send_once: Callable[[list[Item]], Awaitable[Sequence[Answer]]],
        send: Callable[[list[Item]], Awaitable[Sequence[Answer]]],
        size_of: Callable[[Item], int],
        kind_of: Callable[[Item], str],
        is_trouble: Callable[[Answer], bool],
        late_after_s: float = LATE_AFTER_S,
    ) -> None:
        """Make one.

        Args:
            send_once: carries out a batch of any kinds, or raises NotAnsweredError.
            send: carries out a batch of a kind that gives trouble, and tries again for as long as that makes sense.
            size_of: gives an item's bytes.
            kind_of: gives an item's kind.
            is_trouble: tells whether an answer says that the item's kind is not served now.
            late_after_s: seconds after which a batch without an answer is late.
        """
        self._send_once = send_once
        self._send = send
        self._size_of = size_of
        self._kind_of = kind_of
        self._is_trouble = is_trouble
        self._late_after_s = late_after_s
        self._common = Batcher(
            self._send_common, size_of, late_after_s=late_after_s, note_late=self._note_trouble
        )
        self._lanes: dict[str | None, Batcher[Item, Answer]] = {}
        self._trouble: dict[str, Batcher[Item, Answer]] = {}
        """The lane of each kind that gives trouble."""
        self._is_closed = False

    async def submit(self, item: Item, deadline: float | None = None) -> Answer:
        """Return the answer to this item, as a Batcher does."""
        if self._is_closed:
            raise ClosedError("the client was closed")
        lane = self._trouble.get(self._kind_of(item)) if self._trouble else None
        if lane is None:
            try:
                return await self._common.submit(item, deadline)
            except NotAnsweredError:
                self._note_trouble([item])
            lane = self._trouble[self._kind_of(item)]
        return await lane.submit(item, deadline)

    def wait_as_told(self, pause_s: float) -> None:
        """Called by `send_once`: the server said when to come again. Until then its batch is not late."""
        self._common.wait_as_told(pause_s)

    async def close(self) -> None:
        """Refuse new items, and return once the ones submitted before are answered."""
        self._is_closed = True
        await self._common.close()  # what failed there is sent again by the lanes
        await asyncio.gather(*(lane.close() for lane in self._lanes.values()))

    async def _send_common(self, batch: list[Item]) -> Sequence[Answer]:
        answers = await self._send_once(batch)
        self._note_trouble(
            [item for item, answer in zip(batch, answers, strict=True) if self._is_trouble(answer)]
        )
        return answers

    def _note_trouble(self, items: Sequence[Item]) -> None:
        for kind in {self._kind_of(item) for item in items}:
            if kind not in self._trouble:
                self._trouble[kind] = self._lane(kind)

    def _lane(self, kind: str) -> Batcher[Item, Answer]:
        if kind not in self._lanes and self._are_many:
            used = [*self._trouble.values()]
            self._lanes = {
                each: lane for each, lane in self._lanes.items() if lane in used or not lane.is_idle
            }
        place = kind if kind in self._lanes or not self._are_many else _SHARED
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = Batcher(self._send_apart, self._size_of)
        return lane

    @property
    def _are_many(self) -> bool:
        return len(self._lanes) - (_SHARED in self._lanes) >= MOST_LANES

    async def _send_apart(self, batch: list[Item]) -> Sequence[Answer]:
        clock = asyncio.get_running_loop().time
        began_at = clock()
        answers = await self._send(batch)
        if clock() - began_at < self._late_after_s:
            troubled = {
                self._kind_of(item)
                for item, answer in zip(batch, answers, strict=True)
                if self._is_trouble(answer)
            }
            for kind in {self._kind_of(item) for item in batch} - troubled:
                self._trouble.pop(kind, None)
        return answers
