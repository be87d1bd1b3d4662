"""WatchService: tells callers what happens to the tasks and graphs that they may read."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import NamedTuple

from duly_core.access.current import current_access, current_caller, restriction
from duly_core.access.grants import Scope
from duly_core.access.roles import Action
from duly_core.errors import OverloadedError
from duly_core.graphs.reads import get_graphs
from duly_core.lambdas.patterns import EVERYTHING, is_prefix
from duly_core.process.clock import seconds_since_boot
from duly_core.rpc.requests.checks import read_duration
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.stubs import Context
from duly_core.tasks.scope import task_origins
from duly_core.watches import store as store_watches
from duly_core.watches.presence import FIRST_BEGINS_AFTER
from duly_core.watches.rules import Cursor, Event, Position, WatchFilter
from duly_core.watches.store import Begun, KeptWatch
from duly_frontend.access.reach import check_lambda
from duly_frontend.stores import FrontendStores
from duly_frontend.watches.feed import EventFeed, Found
from duly_frontend.watches.wire import event_to_wire, filter_of, watch_id_of
from duly_wire.v1 import task_pb2, watches_pb2, watches_pb2_grpc

_LONGEST_WAIT = timedelta(seconds=30)
_SHORTEST_KEPT = timedelta(minutes=1)
_KEPT = timedelta(minutes=10)
_MOST_EVENTS = 1_000
_WAITING_OF_ONE = 200
"""Calls of one caller that wait for events."""
_MOST_KNOWN = 10_000
_RENEWED_AFTER = 0.25
"""Of the time that a watch is kept for."""

_LOST = "begin another watch (without `after`), and read the tasks to learn what happened meanwhile"


class _Known(NamedTuple):
    watch: KeptWatch
    renewed_at: float


class WatchServicer(watches_pb2_grpc.WatchServiceServicer):
    """A call is answered when something happened that its watch is of and its caller may read."""

    def __init__(
        self,
        stores: FrontendStores,
        most_kept: timedelta,
        first_begins_after: timedelta = FIRST_BEGINS_AFTER,
        now: Callable[[], float] = seconds_since_boot,
    ) -> None:
        """Make one.

        Args:
            stores: pools of connections.
            most_kept: how long events are kept: no watch is kept longer without a call.
            first_begins_after: how long services may go by what they read when nobody watched.
            now: tells seconds that no clock setting moves.
        """
        self._stores = stores
        self._most_kept = most_kept
        self._first_begins_after = first_begins_after
        self._now = now
        self._feed = EventFeed(stores.reads)
        self._waiting: Counter[str] = Counter()
        self._known: dict[tuple[bytes, str], _Known] = {}
        self._closing = asyncio.Event()

    @property
    def looks(self) -> int:
        """Return how many statements looked for events, since the start."""
        return self._feed.looks

    async def Watch(  # noqa: N802 (the wire's name)
        self, request: watches_pb2.WatchRequest, _context: Context
    ) -> watches_pb2.WatchResponse:
        try:
            asked = filter_of(request)
            scope = restriction(Action.READ)
            for pattern in asked.lambdas:
                if not is_prefix(pattern):
                    check_lambda(scope, Action.READ, pattern, "lambdas")
            kept = _KEPT
            if request.HasField("keep_for"):
                kept = read_duration("keep_for", request.keep_for, self._most_kept, least=_SHORTEST_KEPT)
            wait = timedelta(0)
            if request.HasField("wait"):
                wait = read_duration("wait", request.wait, _LONGEST_WAIT)
            with self._waiter(current_caller()):
                if request.after:
                    return await self._go_on(request, asked, scope, wait)
                return await self._begin(watch_id_of(request), asked, scope, min(kept, self._most_kept))
        except Problem as problem:
            return watches_pb2.WatchResponse(error=problem.to_wire())

    async def _begin(
        self, watch_id: bytes, asked: WatchFilter, scope: Scope | None, kept: timedelta
    ) -> watches_pb2.WatchResponse:
        readable = (EVERYTHING,) if scope is None else (*scope.all_tasks, *scope.own_tasks)
        principal = current_access().principal
        keys = asked.keys(readable)
        begun = await store_watches.begin(self._stores.writes, watch_id, principal, asked, keys, kept)
        if begun is Begun.TOO_MANY:
            most = store_watches.MOST_OF_ONE if principal else store_watches.MOST
            raise OverloadedError(
                f"there are {most:,} watches already: go on with one of them, or wait until one is forgotten",
                timedelta(seconds=30),
            )
        if begun is Begun.AFTER_A_WHILE:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._first_begins_after.total_seconds()):
                    await self._closing.wait()
        watch = await self._kept(watch_id, asked)
        return watches_pb2.WatchResponse(position=str(Position(watch_id, Cursor(watch.began_xid))))

    async def _go_on(
        self,
        request: watches_pb2.WatchRequest,
        asked: WatchFilter,
        scope: Scope | None,
        wait: timedelta,
    ) -> watches_pb2.WatchResponse:
        position = Position.parse(request.after)
        if position is None:
            raise Problem("after", "is no position of a watch")
        watch_id, cursor = position.watch_id, position.cursor
        watch = await self._kept(watch_id, asked)

        def fits(event: Event) -> bool:
            return event.seq > watch.began_seq and asked.fits(event) and _may_be_readable(scope, event)

        loop = asyncio.get_running_loop()
        end = loop.time() + wait.total_seconds()
        while True:
            left = timedelta(seconds=max(0.0, end - loop.time()))
            found = await self._feed.after(cursor, fits, _MOST_EVENTS, left)
            _check_found(found)
            events = await self._readable(found.events, scope)
            cursor = found.end
            if events or loop.time() >= end or self._closing.is_set():
                break
        return watches_pb2.WatchResponse(
            events=[event_to_wire(event, watch_id) for event in events],
            position=str(Position(watch_id, cursor)),
        )

    async def _kept(self, watch_id: bytes, asked: WatchFilter) -> KeptWatch:
        """Return a watch of the caller, which is kept for its time again.

        Raises:
            Problem: it is not there, or is of something else.
        """
        principal = current_access().principal
        key = watch_id, principal
        known = self._known.get(key)
        now = self._now()
        if known is None or now - known.renewed_at > _RENEWED_AFTER * known.watch.keep_for.total_seconds():
            watch = await store_watches.keep(self._stores.writes, watch_id, principal)
            if watch is None:
                self._known.pop(key, None)
                raise _lost("this watch is not known: it was not called for in time, or is of another Duly")
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[key] = _Known(watch, now)
        watch = known.watch
        if watch.source != watch.source_now:
            raise _lost("Postgres was restored, or another server took over: some events may be missing")
        if watch.filter != str(asked):
            raise Problem(
                "after", "is of a watch of something else: repeat its lambdas, graph and session as they were"
            )
        return watch

    async def _readable(self, events: Sequence[Event], scope: Scope | None) -> Sequence[Event]:
        """Leave out what the caller may not read."""
        if scope is None or not events:
            return events
        reads = self._stores.reads
        unsure = {
            event.task_id
            for event in events
            if event.task_id and not scope.covers_all_of(event.lambda_name or "")
        }
        origins = await task_origins(reads, unsure) if unsure else {}
        graphs = {event.graph for event in events if event.graph and event.task_id is None}
        seen = await get_graphs(reads, list(graphs), scope) if graphs else {}

        def may_read(event: Event) -> bool:
            if event.task_id is None:
                return event.graph is not None and event.graph in seen
            if event.task_id not in unsure:
                return True
            origin = origins.get(event.task_id)
            return origin is not None and scope.reaches(*origin)

        return [event for event in events if may_read(event)]

    @contextmanager
    def _waiter(self, caller: str) -> Iterator[None]:
        if self._waiting[caller] >= _WAITING_OF_ONE:
            raise OverloadedError("too many calls of this caller wait for events", timedelta(seconds=1))
        self._waiting[caller] += 1
        try:
            yield
        finally:
            self._waiting[caller] -= 1
            if not self._waiting[caller]:
                del self._waiting[caller]

    def close(self) -> None:
        """Answer the long polls: the server is about to stop."""
        self._closing.set()
        self._feed.close()


def _may_be_readable(scope: Scope | None, event: Event) -> bool:
    return scope is None or event.task_id is None or scope.covers(event.lambda_name or "")


def _check_found(found: Found) -> None:
    if found.has_gap:
        raise _lost("events behind this position were removed (store.watch_retention)")
    if found.is_ahead:
        raise Problem("after", "is no position of a watch")


def _lost(reason: str) -> Problem:
    return Problem("after", f"{reason}: {_LOST}", task_pb2.ERROR_CODE_WATCH_LOST)
