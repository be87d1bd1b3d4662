"""A TCP proxy that misbehaves on demand: between any two parts of the system, in the process of the test or runner.

    async with Proxy("127.0.0.1", 5432) as proxy:
        ...  # connect to proxy.port
        await proxy.blackhole()
        await proxy.heal()

One state holds at a time, for existing connections as well as new ones; each call replaces the one before.
A way is seen from who connects: THERE is towards the target, BACK is towards the client.
"""

import asyncio
import random
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Self

from tests.chaos.proxy_link import Counters, Link, Rule, Way, reset

THERE: Way = "there"
BACK: Way = "back"

_PASS = Rule()
_HOLD = Rule(held=True)
_LOSE = Rule(lost=True)
_CONNECT_WITHIN = timedelta(seconds=10)


@dataclass(slots=True)
class _State:
    rules: Mapping[Way, Rule] = field(default_factory=lambda: MappingProxyType({THERE: _PASS, BACK: _PASS}))
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once these rules hold no longer."""


class Proxy:
    """Listens on a port of this host and forwards to the target, as its state says. Use it as a context."""

    def __init__(
        self, target_host: str, target_port: int, *, host: str = "127.0.0.1", port: int = 0, seed: int = 0
    ) -> None:
        """Make one; `port` 0: any. `seed` decides the jitter."""
        self._target = target_host, target_port
        self._host, self.port = host, port
        self._random = random.Random(seed)
        self._state = _State()
        self._links: dict[Link, asyncio.Task[None]] = {}
        self._reserve: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._closed = False
        self.counters = Counters()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def address(self) -> str:
        """HOST:PORT to connect to."""
        return f"{self._host}:{self.port}"

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._links)

    async def start(self) -> None:
        """Listen; `port` is known from then on and stays the same."""
        # Keeps the port ours while nobody listens on it.
        self._reserve = self._bound()
        self.port = self._reserve.getsockname()[1]
        await self._listen()

    async def close(self) -> None:
        """Stop listening, and cut every connection."""
        self._closed = True
        self._stop_listening()
        self._replace(_PASS, _PASS)
        links = dict(self._links)
        await self.reset()
        await asyncio.gather(*links.values(), return_exceptions=True)
        for link in links:
            await link.closed()
        await asyncio.sleep(0)  # what had just been accepted comes to _accept, and is cut
        await asyncio.sleep(0)
        if self._reserve is not None:
            self._reserve.close()

    # ---- what it does to the connections -----------------------------------------------------------------

    async def heal(self) -> None:
        """Pass everything, at once; connections that lost bytes are reset, as their streams are broken."""
        self._replace(_PASS, _PASS)
        for link in [link for link in self._links if link.broken]:
            self._reset(link)
        await self._listen()

    async def delay(
        self,
        there: timedelta,
        back: timedelta | None = None,
        jitter: timedelta = timedelta(0),
    ) -> None:
        """Everything comes later by so much and by a random part of `jitter`, in order; `back` None: as `there`."""
        back = there if back is None else back
        self._replace(Rule(delay=there, jitter=jitter), Rule(delay=back, jitter=jitter))
        await self._listen()

    async def throttle(self, bytes_per_second: int) -> None:
        """No connection carries more than so much, each way."""
        rule = Rule(rate=bytes_per_second)
        self._replace(rule, rule)
        await self._listen()

    async def blackhole(self, *, lose: bool = False) -> None:
        """Nothing comes through, and nobody is told: connections stay open, new ones get no answer.

        As with a real network, what was sent meanwhile arrives when it is healed (TCP sends it again). With
        `lose` it is gone instead, and the connections that it was sent on are reset when healed.
        """
        rule = _LOSE if lose else _HOLD
        self._replace(rule, rule)
        await self._listen()

    async def half_open(self, silent: Way, *, lose: bool = False) -> None:
        """As `blackhole`, one way only; the other passes."""
        rule = _LOSE if lose else _HOLD
        self._replace(*(rule if way == silent else _PASS for way in (THERE, BACK)))
        await self._listen()

    async def reset(self) -> None:
        """Cut every open connection with an RST to both ends, once; the state stays."""
        for link in list(self._links):
            self._reset(link)

    async def lead_to(self, target_host: str, target_port: int) -> None:
        """Forward to another target from now on; the open connections are reset."""
        self._target = target_host, target_port
        await self.reset()

    async def refuse(self) -> None:
        """Accept no new connection (ECONNREFUSED); the open ones go on. `reset` cuts them."""
        self._replace(_PASS, _PASS)
        self._stop_listening()

    # ---- how ---------------------------------------------------------------------------------------------

    def _replace(self, there: Rule, back: Rule) -> None:
        earlier, self._state = self._state, _State(MappingProxyType({THERE: there, BACK: back}))
        earlier.changed.set()

    def _bound(self) -> socket.socket:
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((self._host, self.port))
        return bound

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, sock=self._bound(), backlog=256)

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _reset(self, link: Link) -> None:
        self.counters.resets += 1
        task = self._links.pop(link, None)
        link.cut()
        if task is not None:
            task.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:  # it came in while the server was being closed
            reset(writer)
            return
        self.counters.accepted += 1
        link = Link(reader, writer, self._rule, self._random, self.counters)
        task = asyncio.get_running_loop().create_task(self._serve(link))
        self._links[link] = task
        task.add_done_callback(lambda _: self._links.pop(link, None))

    async def _serve(self, link: Link) -> None:
        """Connect onward and pump until both ways have ended, or either end breaks off."""
        try:
            while self._state.rules[THERE].silent or self._state.rules[BACK].silent:
                await self._state.changed.wait()
            async with asyncio.timeout(_CONNECT_WITHIN.total_seconds()):
                link.target = await asyncio.open_connection(*self._target)
        except OSError:  # TimeoutError is one
            self.counters.unreachable += 1
            reset(link.client[1])
            return
        except asyncio.CancelledError:
            reset(link.client[1])
            raise
        with suppress(OSError, RuntimeError):  # the latter is what uvloop says of a transport that was cut
            await link.run()
            return
        link.cut()

    def _rule(self, way: Way) -> tuple[Rule, asyncio.Event]:
        return self._state.rules[way], self._state.changed
