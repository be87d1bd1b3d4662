"""One channel over several servers that do the same: a call goes to one that answers, and the next call to another.

Each server has a connection of its own. gRPC finds out which of them are dead: it sends pings while calls are under
way, and a connection counts as made once the server has said something. What a server does not say in time, or
refuses for want of its store, is noted here.
"""

from __future__ import annotations

import asyncio
import random
import re
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import grpc

# A server that says nothing for so long, while calls wait, is given up: the next ping goes out after the first time,
# and must be answered within the second.
FAST_KEEPALIVE: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 300),
    ("grpc.keepalive_timeout_ms", 800),
    ("grpc.http2.ping_timeout_ms", 800),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.keepalive_permit_without_calls", 0),
    # a server that takes a connection and says nothing is given up as soon
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]

# A name that stands for several servers: all of them are used in turn.
ROUND_ROBIN = ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}')

_FIRST_AVOIDED_S = 0.5
_LONGEST_AVOIDED_S = 10.0
# A failure that comes so long after the end of the pause before it is a first one.
_FORGOTTEN_S = 30.0
# Calls with less time say little about a server that was late.
_LEAST_TIMEOUT_S = 0.5

_LOCAL = re.compile(r"(?:unix|unix-abstract|vsock):")
_LISTED = re.compile(r"(ipv[46]):(.+)")
_RANKS = {
    grpc.ChannelConnectivity.READY: 0,
    grpc.ChannelConnectivity.IDLE: 1,
    grpc.ChannelConnectivity.CONNECTING: 2,
}
_WORST = 3


def split_addresses(text: str) -> list[str]:
    """Return the single addresses of a list with commas: of `a:1,b:2`, of `unix:/a,unix:/b`, or of `ipv4:a:1,b:2`."""
    if listed := _LISTED.fullmatch(text):
        return [f"{listed[1]}:{each.strip()}" for each in listed[2].split(",")]
    addresses: list[str] = []
    for each in text.split(","):
        if addresses and _LOCAL.match(addresses[-1]) and not _is_address(each.strip()):
            addresses[-1] += f",{each}"  # of a path
        else:
            addresses.append(each.strip())
    return addresses


def _is_address(text: str) -> bool:
    return bool(_LOCAL.match(text)) or bool(re.fullmatch(r"[^/]+:[0-9]+", text))


def stands_for_several(address: str) -> bool:
    """Tell whether it is a name that gRPC resolves, to several servers perhaps."""
    return address.startswith("dns:")


class Avoided:
    """Remembers which servers failed lately, and until when others are better; any thread may tell or ask it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: dict[str, int] = {}
        self._until: dict[str, float] = {}

    def note_failure(self, address: str) -> None:
        """Avoid this server for a while, longer after each failure in a row."""
        now = time.monotonic()
        with self._lock:
            is_again = now - self._until.get(address, 0.0) < _FORGOTTEN_S
            failures = self._failures[address] = self._failures.get(address, 0) + 1 if is_again else 1
            pause = min(_FIRST_AVOIDED_S * (1 << min(failures, 10)), _LONGEST_AVOIDED_S)
            self._until[address] = now + pause * random.uniform(0.5, 1)  # noqa: S311 (no secret)

    def is_avoided(self, address: str) -> bool:
        """Tell whether another server is better now."""
        return bool(self._until) and self._until.get(address, 0.0) > time.monotonic()


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
        self, addresses: Sequence[str], open_one: Callable[[str], grpc.aio.Channel], avoided: Avoided
    ) -> None:
        """Make one on the running event loop; `open_one` opens the channel to one address."""
        self._addresses = random.sample(addresses, len(addresses))  # clients spread over the servers
        self._channels = [open_one(address) for address in self._addresses]
        self._avoided = avoided
        self._turn = 0

    def __len__(self) -> int:
        return len(self._channels)

    def choose(self) -> int:
        """Return the place of the server for the next call: in turn, of those that seem best."""
        count = len(self._channels)
        self._turn = (self._turn + 1) % count
        places = [(self._turn + step) % count for step in range(count)]
        return min(places, key=self._rank)

    def _rank(self, place: int) -> int:
        # this also begins to connect, so that another server is ready when one fails
        rank = _RANKS.get(self._channels[place].get_state(try_to_connect=True), _WORST)
        return rank + _WORST * self._avoided.is_avoided(self._addresses[place])

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
        return _Unary(self, [each.unary_unary(method, *arguments, **named) for each in self._channels])

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
    """A method of a stub: each call goes to one server."""

    def __init__(self, peers: PeerChannel, methods: Sequence[Callable[..., Awaitable[Any]]]) -> None:
        self._peers = peers
        self._methods = methods

    async def __call__(
        self, request: Any, *, timeout: float | None = None, wait_for_ready: bool | None = None
    ) -> Any:
        """Make the call; raises what a stub's method raises."""
        ends_at = None if timeout is None else time.monotonic() + timeout
        if wait_for_ready:
            await self._peers.until_one_is_ready(timeout)
        place = self._peers.choose()
        left = None if ends_at is None else max(0.0, ends_at - time.monotonic())
        try:
            return await self._methods[place](request, timeout=left)
        except grpc.aio.AioRpcError as error:
            is_hurried = left is not None and left < _LEAST_TIMEOUT_S
            if error.code() is grpc.StatusCode.UNAVAILABLE or (
                error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not is_hurried
            ):
                self._peers.note_failure(place)
            raise
