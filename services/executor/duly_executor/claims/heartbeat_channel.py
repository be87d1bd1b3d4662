"""The Executor's line to the HSC for heartbeats alone: a try that fails is repeated over a fresh connection.

A connection may be dead without a sign for as long as the keepalive takes (a firewall that forgot it, a
stopped peer). Results travel on another one, and large ones hold up no heartbeat.
"""

import asyncio
import random
from datetime import timedelta

import grpc

from duly_core.rpc.channel import open_channel
from duly_core.rpc.retry import TRANSIENT
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import hsc_stub
from duly_wire.peers import split_addresses
from duly_wire.v1 import hsc_pb2

_GRACE = timedelta(seconds=10)
"""For other calls that are under way on a connection that is given up."""


class HeartbeatChannel:
    """Stands in for the stub. One connection at a time, to one of the addresses; after a failure, to the next."""

    def __init__(self, addresses: str, rpc: RpcSettings) -> None:
        """Args: `addresses` are as in `executor.hsc_address`."""
        self._addresses = split_addresses(addresses)
        random.shuffle(self._addresses)  # Executors spread over the HSCs
        self._rpc = rpc
        self._channel: grpc.aio.Channel | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def Heartbeat(  # noqa: N802 (the wire's name)
        self, request: hsc_pb2.HeartbeatRequest, timeout: float
    ) -> hsc_pb2.HeartbeatResponse:
        """One try.

        Raises:
            grpc.aio.AioRpcError: it failed; if that may pass, the next try goes another way.
        """
        if self._channel is None:
            self._channel = open_channel(self._addresses[0], self._rpc)
        channel = self._channel
        try:
            response: hsc_pb2.HeartbeatResponse = await hsc_stub(channel).Heartbeat(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            if error.code() in TRANSIENT and channel is self._channel:
                self._give_up(channel)
            raise
        return response

    def _give_up(self, channel: grpc.aio.Channel) -> None:
        self._channel = None
        self._addresses.append(self._addresses.pop(0))
        closing = asyncio.get_running_loop().create_task(channel.close(_GRACE.total_seconds()))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Hang up."""
        if self._channel is not None:
            await self._channel.close()
        for closing in list(self._closing):
            closing.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
