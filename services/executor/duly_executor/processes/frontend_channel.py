"""The connection of an Executor to the Frontend that its Controller names."""

import asyncio

import grpc

from duly_core.rpc.channel import open_channel
from duly_core.rpc.settings import RpcSettings


class FrontendChannel:
    """Opened when it is first needed, and anew when the Controller names another Frontend."""

    def __init__(self, rpc: RpcSettings, calls_end_within_s: float) -> None:
        """Make one: calls on a channel to where the Frontend was have so long to end."""
        self._rpc = rpc
        self._calls_end_within_s = calls_end_within_s
        self._address = ""
        self._channel: grpc.aio.Channel | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def use(self, address: str) -> None:
        """Connect to this address from now on; empty: nowhere."""
        if address == self._address:
            return
        self._address = address
        if self._channel is not None:
            closing = asyncio.get_running_loop().create_task(self._channel.close(self._calls_end_within_s))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            self._channel = None

    def channel(self) -> grpc.aio.Channel | None:
        """Return the channel; None: no Frontend is named.

        Raises:
            DulyError: the address, or a file that TLS needs, is invalid.
        """
        if self._channel is None and self._address:
            self._channel = open_channel(self._address, self._rpc)
        return self._channel

    async def close(self) -> None:
        """Disconnect."""
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        if self._channel is not None:
            await self._channel.close()
