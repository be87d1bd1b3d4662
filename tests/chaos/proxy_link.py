"""One connection through the proxy: two ways, each a reader and a writer with the bytes under way between them."""

import asyncio
import random
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias

Way: TypeAlias = Literal["there", "back"]
Stream: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_CHUNK = 64 * 1024
_CHUNKS_UNDER_WAY = 64
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens to what flows one way."""

    delay: timedelta = timedelta(0)
    jitter: timedelta = timedelta(0)
    """The most that is added to the delay."""
    rate: int = 0
    """Bytes a second; 0: any number."""
    held: bool = False
    """Nothing arrives until the rule changes."""
    lost: bool = False
    """What is sent while the rule holds never arrives."""

    @property
    def silent(self) -> bool:
        return self.held or self.lost


@dataclass(slots=True)
class Counters:
    """What the proxy has seen and done so far."""

    accepted: int = 0
    resets: int = 0
    """Connections that we cut."""
    unreachable: int = 0
    """Connections that the target did not take."""
    there: int = 0
    """Bytes delivered to the target."""
    back: int = 0
    lost: int = 0
    """Bytes swallowed."""


def reset(writer: asyncio.StreamWriter) -> None:
    """Close at once, and send an RST instead of a FIN."""
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()


class Link:
    """A client's connection and ours to the target."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        rule: Callable[[Way], tuple[Rule, asyncio.Event]],
        rng: random.Random,
        counters: Counters,
    ) -> None:
        """Make one that is not connected to the target yet; `rule` tells today's rule and when it changes."""
        self.client: Stream = reader, writer
        self.target: Stream | None = None
        self.broken = False
        """Bytes of it were lost: the streams make no sense any more."""
        self._rule = rule
        self._random = rng
        self._counters = counters

    def cut(self) -> None:
        """Send both ends an RST."""
        for _, writer in filter(None, (self.client, self.target)):
            reset(writer)

    async def closed(self) -> None:
        """Wait until a connection that was cut is gone."""
        for _, writer in filter(None, (self.client, self.target)):
            with suppress(OSError):
                await writer.wait_closed()

    async def run(self) -> None:
        """Pump both ways until both have ended.

        Raises:
            OSError: one of the ends broke off; the other is to be told.
        """
        assert self.target is not None
        pumps = [
            asyncio.ensure_future(self._pump("there", self.client[0], self.target[1])),
            asyncio.ensure_future(self._pump("back", self.target[0], self.client[1])),
        ]
        try:
            await asyncio.gather(*pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        for writer in (self.client[1], self.target[1]):
            writer.close()

    async def _pump(self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_UNDER_WAY)
        reading = asyncio.ensure_future(self._read(way, reader, under_way))
        try:
            await self._deliver(way, under_way, writer)
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(
        self, way: Way, reader: asyncio.StreamReader, under_way: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        """Take what comes, with its time; empty bytes stand for the end, even one by an error."""
        now = asyncio.get_running_loop().time
        try:
            while data := await reader.read(_CHUNK):
                rule, _ = self._rule(way)
                if rule.lost:
                    self.broken = True
                    self._counters.lost += len(data)
                else:
                    await under_way.put((now(), data))
            while self._rule(way)[0].lost:  # nor is the end seen
                self.broken = True
                await self._rule(way)[1].wait()
        finally:
            await under_way.put((now(), b""))

    async def _deliver(
        self, way: Way, under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        last = 0.0
        while True:
            arrived, data = await under_way.get()
            # a throttled chunk comes in pieces, so that its first byte is not as late as its last
            while True:
                rate = self._rule(way)[0].rate
                size = min(len(data), max(1, rate // 20)) if rate else len(data)
                last = await self._until_due(way, arrived, last, size)
                if not data:
                    break
                piece, data = data[:size], data[size:]
                writer.write(piece)
                await writer.drain()
                setattr(self._counters, way, getattr(self._counters, way) + len(piece))
                if not data:
                    break
            if not size:
                break
        if writer.can_write_eof():
            writer.write_eof()

    async def _until_due(self, way: Way, arrived: float, last: float, size: int) -> float:
        """Wait until the bytes may go, as the rules say that hold meanwhile; the time at which they go."""
        share = self._random.random()
        now = asyncio.get_running_loop().time
        while True:
            rule, changed = self._rule(way)
            if rule.silent:
                await changed.wait()
                continue
            due = arrived + (rule.delay + rule.jitter * share).total_seconds()
            if rule.rate:
                due = max(due, last + size / rule.rate)
            # what is sent before a slower one would overtake it: `last` is never after now, so order is kept
            if due <= now():
                return now()
            try:
                async with asyncio.timeout(due - now()):
                    await changed.wait()
            except TimeoutError:
                pass
