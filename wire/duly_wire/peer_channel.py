"""One channel over several servers that do the same: a call goes to one that answers, and the next call to another.

Each server has a connection of its own. gRPC finds out which of them are dead: it sends pings while calls are under
way, and a connection counts as made once the server has said something. What a server does not say in time, or
refuses for want of its store, is noted here.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any

import grpc

from duly_wire.peers import Avoided

# Calls with less time say little about a server that was late.
_LEAST_TIMEOUT_S = 0.5

# A read that has no answer by then goes to a second server too; a long poll so long after its own time.
_HEDGED_AFTER_S = {"Get": 0.3, "Wait": 0.3, "List": 1.0}

_RANKS = {
    grpc.ChannelConnectivity.READY: 0,
    grpc.ChannelConnectivity.IDLE: 1,
    grpc.ChannelConnectivity.CONNECTING: 2,
}
_WORST = 3
_LAST_GOOD = _RANKS[grpc.ChannelConnectivity.IDLE]
"""Servers of the caller's own zone come first, if they are at least as good as this."""


class PeerStream:
    """An open stream to one server, and where to note that it failed."""

    __slots__ = ("cancel", "note_failure", "read", "write")

    def __init__(self, stream: Any, note_failure: Callable[[], None]) -> None:
        self.read, self.write, self.cancel = stream.read, stream.write, stream.cancel
        self.note_failure = note_failure


class PeerChannel:
    """Stands in for a `grpc.aio.Channel`; a stub that is made with it needs to know nothing of the several servers.

    A call is made once, by one server. Whoever repeats a call that failed gets another server.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        open_one: Callable[[str], grpc.aio.Channel],
        avoided: Avoided,
        near: Collection[str] = (),
    ) -> None:
        """Make one on the running event loop.

        Args:
            addresses: of the servers.
            open_one: opens the channel to one address.
            avoided: those that failed lately.
            near: those of the caller's own zone, which get its calls while they serve; none: all are alike.
        """
        self._near = frozenset(near) or frozenset(addresses)
        self._addresses = random.sample(addresses, len(addresses))  # clients spread over the servers
        self._channels = [open_one(address) for address in self._addresses]
        self._avoided = avoided
        self._turn = 0

    def __len__(self) -> int:
        return len(self._channels)

    def choose(self, but: int | None = None) -> int:
        """Return the place of the server for the next call: in turn, of those that seem best; not `but`."""
        count = len(self._channels)
        self._turn = (self._turn + 1) % count
        places = [(self._turn + step) % count for step in range(count)]
        return min((place for place in places if place != but), key=self._rank)

    def _rank(self, place: int) -> tuple[int, int, bool]:
        # this also begins to connect, so that another server is ready when one fails
        address = self._addresses[place]
        rank = _RANKS.get(self._channels[place].get_state(try_to_connect=True), _WORST)
        rank += _WORST * self._avoided.is_avoided(address)
        is_far = address not in self._near
        return (2 if rank > _LAST_GOOD else int(is_far)), rank, is_far

    def note_failure(self, place: int) -> None:
        """Avoid this server for a while."""
        self._avoided.note_failure(self._addresses[place])

    async def until_one_is_ready(self, timeout: float | None) -> None:
        """Wait until a server can be called, or until the time is over."""
        waits = [asyncio.ensure_future(channel.channel_ready()) for channel in self._channels]
        try:
            await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def unary_unary(self, method: str, *arguments: Any, **named: Any) -> _Unary:
        """Return the method; the arguments are those that a stub gives."""
        methods = [each.unary_unary(method, *arguments, **named) for each in self._channels]
        return _Unary(self, methods, _hedged_after(method))

    def stream_stream(self, method: str, *arguments: Any, **named: Any) -> Callable[..., Any]:
        """Return the method; the arguments are those that a stub gives."""
        methods = [each.stream_stream(method, *arguments, **named) for each in self._channels]

        def open_stream() -> PeerStream:
            place = self.choose()
            return PeerStream(methods[place](), partial(self.note_failure, place))

        return open_stream

    async def close(self, grace: float | None = None) -> None:
        """Close the connections to all servers."""
        for channel in self._channels:
            await channel.close(grace)


class _Unary:
    """A method of a stub: each call goes to one server, a read that takes long to a second one too."""

    def __init__(
        self,
        peers: PeerChannel,
        methods: Sequence[Callable[..., Awaitable[Any]]],
        hedged_after_s: float | None,
    ) -> None:
        """Make one; `hedged_after_s` None: it is no read."""
        self._peers = peers
        self._methods = methods
        self._hedged_after_s = hedged_after_s

    async def __call__(
        self,
        request: Any,
        *,
        timeout: float | None = None,
        metadata: Sequence[tuple[str, str]] = (),
        wait_for_ready: bool | None = None,
    ) -> Any:
        """Make the call; raises what a stub's method raises."""
        ends_at = float("inf") if timeout is None else time.monotonic() + timeout
        if wait_for_ready:
            await self._peers.until_one_is_ready(timeout)
        place = self._peers.choose()
        if self._hedged_after_s is None:
            return await self._call(place, request, metadata, ends_at)
        hold = request.timeout.ToTimedelta().total_seconds() if _is_long_poll(request) else 0.0
        return await self._hedged(place, request, metadata, ends_at, hold + self._hedged_after_s)

    async def _call(
        self, place: int, request: Any, metadata: Sequence[tuple[str, str]], ends_at: float
    ) -> Any:
        left = None if ends_at == float("inf") else max(0.0, ends_at - time.monotonic())
        try:
            return await self._methods[place](request, timeout=left, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            is_hurried = left is not None and left < _LEAST_TIMEOUT_S
            if error.code() is grpc.StatusCode.UNAVAILABLE or (
                error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not is_hurried
            ):
                self._peers.note_failure(place)
            raise

    async def _hedged(
        self,
        place: int,
        request: Any,
        metadata: Sequence[tuple[str, str]],
        ends_at: float,
        after: float,
    ) -> Any:
        """Return the first answer; a failure only if the other call failed too, or was not made."""
        calls = [asyncio.ensure_future(self._call(place, request, metadata, ends_at))]
        try:
            done, _ = await asyncio.wait(calls, timeout=after)
            if done:
                return calls[0].result()
            other = self._peers.choose(but=place)
            calls.append(asyncio.ensure_future(self._call(other, request, metadata, ends_at)))
            done, others = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            if others and all(call.exception() for call in done):
                await asyncio.wait(others)
            return min((call for call in calls if call.done()), key=_failed).result()
        finally:
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)


def _failed(call: asyncio.Future[Any]) -> bool:
    return call.exception() is not None


def _is_long_poll(request: Any) -> bool:
    return "timeout" in request.DESCRIPTOR.fields_by_name and request.HasField("timeout")


def _hedged_after(method: str) -> float | None:
    name = method.rpartition("/")[2]
    return next((after for prefix, after in _HEDGED_AFTER_S.items() if name.startswith(prefix)), None)
