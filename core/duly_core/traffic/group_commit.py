"""Group commit: what was asked for while the last statement ran goes together into the next one.

There is no fixed wait: when nothing is under way, an item is served at once and alone. A `rest` may be asked for
between the starts of groups that are not full: many single calls then become fewer and larger groups. Where rests bring
nothing together, as when each item follows from the answer to the one before, they are left out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar, cast

from duly_core.errors import DulyError, NotInCellError, OverloadedError, RowLockedError
from duly_core.traffic.client_turns import ClientTurns

_MOST_GROUPS_WAITING = 50
_SHORTEST_RETRY = timedelta(milliseconds=100)
_LONGEST_RETRY = timedelta(seconds=2)
_SMOOTHING = 0.2
_HEAVY = 0.5
"""Of the weight that a group may have: such a group takes long."""
USELESS_RESTS = 3
"""So many rests in a row that brought nothing together, and the next groups start without one."""
GROUPS_WITHOUT_REST = 32
"""So many groups start without a rest before the next one is tried."""
_TICK = 0.0005
"""uvloop's timers know whole milliseconds, and may end a hair before the time that its own clock shows."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class _Call(Generic[Item, Answer]):
    client: Hashable
    items: Sequence[Item]
    weight: int
    until: float
    """On the loop's clock: afterwards its caller waits no more."""
    future: asyncio.Future[list[Answer]]


_OF_ONE = (RowLockedError, NotInCellError)
"""What one item of a group can cause, of the errors of the store."""


class GroupCommit(Generic[Item, Answer]):
    """Turns concurrent calls into few calls of `serve`, which answers each item in order.

    `serve` must be safe to repeat. A DulyError of it (the store is away) goes to every caller of that group;
    after any other error, a row that is locked, or a namespace of another cell, each call that is still waited for is served again by itself,
    so that one bad item fails its own call only.
    A caller that gives up hurts nobody: its items are served if they were taken by then, and dropped if not.
    Clients take turns: one that makes many calls at a time holds up another's by a few groups at most. While heavy groups have
    all places, others have one more.
    """

    def __init__(
        self,
        serve: Callable[[list[Item]], Awaitable[list[Answer]]],
        *,
        max_items: int = 500,
        weigh: Callable[[Sequence[Item]], int] = len,
        concurrency: int = 1,
        most_groups_waiting: int = _MOST_GROUPS_WAITING,
        rest: float = 0,
        stream_rest: float = 0,
        observe: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Make one.

        Args:
            serve: takes many items, answers as many, in their order.
            max_items: bounds a group (a single larger call is not split).
            weigh: for how many a call's items count: large ones must not come together in their hundreds.
            concurrency: how many calls of `serve` may be under way.
            most_groups_waiting: beyond so many full groups a caller is refused at once: it would have given up
                before its turn. A client that has less than its share of what may wait is not refused before twice as
                much waits.
            rest: seconds from the start of one group to that of the next, unless it is full by then. Nobody waits who
                comes after a rest, or while rests bring nothing together.
            stream_rest: the same after a group of several items, if it is longer: they stream.
            observe: told each group's size.
        """
        self._serve = serve
        self._max_items = max_items
        self._weigh = weigh
        self._free = concurrency
        self._rest = rest
        self._stream_rest = max(rest, stream_rest)
        self._rests_until = float("-inf")
        self._starting: asyncio.TimerHandle | None = None
        self._has_rested = False
        """Whether the next group waited for the end of a rest."""
        self._useless_rests = 0
        """In a row."""
        self._without_rest = 0
        """Groups that still start without one."""
        self._observe = observe
        self._waiting: ClientTurns[_Call[Item, Answer]] = ClientTurns()
        self._concurrency = concurrency
        self._group_seconds = 0.0
        """How long a group takes, smoothed."""
        self._most_waiting = most_groups_waiting * max_items
        self._running: set[asyncio.Task[None]] = set()
        self._heavy: dict[asyncio.Task[None], set[Hashable]] = {}
        """The clients of each heavy group under way."""

    async def __call__(
        self, items: Sequence[Item], within: float | None = None, client: Hashable = None
    ) -> list[Answer]:
        """Serve these items, alone or together with others'; answers in their order.

        Args:
            items: what to serve.
            within: seconds that the caller waits; if its turn has not come by then, nothing is served. None: for ever.
            client: who calls; calls of different clients take turns.

        Raises:
            OverloadedError: too much is waiting, or the caller's time was over before its turn came.
        """
        if not items:
            return []
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Answer]] = loop.create_future()
        until = float("inf") if within is None else loop.time() + within
        weight = self._weigh(items)
        if self._waiting and self._waiting.weight + weight > self._most_waiting:
            self._refuse_unless_few(client, weight)
        self._waiting.append(client, _Call(client, items, weight, until, future))
        self._start()
        return await future

    def _refuse_unless_few(self, client: Hashable, weight: int) -> None:
        fits_twice = self._waiting.weight + weight <= 2 * self._most_waiting
        if not (fits_twice and self._waiting.has_less_than_its_share(client, weight, self._most_waiting)):
            message = "more is asked than can be written: try again later"
            raise OverloadedError(message, self._retry_after())

    def _retry_after(self) -> timedelta:
        """Return how long it takes to serve what waits, about."""
        groups = self._waiting.weight / self._max_items / self._concurrency
        return min(max(timedelta(seconds=groups * self._group_seconds), _SHORTEST_RETRY), _LONGEST_RETRY)

    def _start(self) -> None:
        while self._free > 0 and self._waiting and not self._is_resting():
            group = self._waiting.take_group(self._max_items, self._is_waited_for)
            if not group:
                return
            self._begin(group)
        if self._waiting and self._is_held_up():
            held_up_by = set().union(*self._heavy.values())
            group = self._waiting.take_group_without(held_up_by, self._max_items, self._is_waited_for)
            if group:
                self._begin(group)

    def _is_held_up(self) -> bool:
        """Whether heavy groups have all of the places: one more is for clients that have none of these."""
        return self._free == 0 and len(self._heavy) >= self._concurrency

    def _begin(self, group: list[_Call[Item, Answer]]) -> None:
        self._free -= 1
        if self._stream_rest:
            self._plan_rest(sum(len(call.items) for call in group))
        task = asyncio.get_running_loop().create_task(self._run(group))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        if sum(call.weight for call in group) > self._max_items * _HEAVY:
            self._heavy[task] = {call.client for call in group}

    def _plan_rest(self, items: int) -> None:
        """Rest after the start of this group, unless the last rests brought nothing together."""
        if items > 1:
            self._useless_rests = self._without_rest = 0
        elif self._has_rested:
            self._useless_rests += 1
            if self._useless_rests >= USELESS_RESTS:
                self._without_rest = GROUPS_WITHOUT_REST
        self._has_rested = False
        if self._without_rest:
            self._without_rest -= 1
            return
        rest = self._stream_rest if items > 1 else self._rest
        self._rests_until = asyncio.get_running_loop().time() + rest

    def _is_resting(self) -> bool:
        loop = asyncio.get_running_loop()
        if (
            not self._stream_rest
            or self._waiting.weight >= self._max_items
            or loop.time() >= self._rests_until - _TICK
        ):
            return False
        if self._starting is None:
            self._starting = loop.call_at(self._rests_until, self._rested)
        return True

    def _rested(self) -> None:
        self._starting = None
        self._has_rested = bool(self._waiting)  # else the group was full before the rest was over
        self._start()

    def _is_waited_for(self, call: _Call[Item, Answer]) -> bool:
        if not call.future.done() and asyncio.get_running_loop().time() >= call.until:
            message = "the caller's time was over before its turn came: try again later"
            call.future.set_exception(OverloadedError(message, self._retry_after()))
        return not call.future.done()

    async def _run(self, group: list[_Call[Item, Answer]]) -> None:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        try:
            await self._serve_group(group)
        finally:
            self._group_seconds += _SMOOTHING * (loop.time() - began_at - self._group_seconds)
            self._free += 1
            self._heavy.pop(cast("asyncio.Task[None]", asyncio.current_task()), None)
            self._start()

    async def _serve_group(self, group: list[_Call[Item, Answer]]) -> None:
        items = [item for call in group for item in call.items]
        self._observe(len(items))
        try:
            answers = await self._serve(items)
        except Exception as error:  # noqa: BLE001 (whatever it was, its callers are told)
            if len(group) > 1 and (isinstance(error, _OF_ONE) or not isinstance(error, DulyError)):
                for call in group:
                    if self._is_waited_for(call):
                        await self._serve_group([call])
                return
            for call in group:
                if not call.future.done():
                    call.future.set_exception(error)
            return
        start = 0
        for call in group:
            if not call.future.done():
                call.future.set_result(answers[start : start + len(call.items)])
            start += len(call.items)
