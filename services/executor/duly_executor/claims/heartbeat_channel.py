"""The Executor's line to the HSC for heartbeats alone: a try that fails is repeated over a fresh connection.

A connection may be dead without a sign for as long as the keepalive takes (a firewall that forgot it, a
stopped peer). Results travel on another one, and large ones hold up no heartbeat.
"""

import asyncio
import random
import time
from datetime import timedelta

import grpc

from duly_core.rpc.channel import open_channel
from duly_core.rpc.retry import TRANSIENT
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import hsc_stub
from duly_wire.peers import near, split_peers
from duly_wire.v1 import hsc_pb2

_GRACE = timedelta(seconds=10)
"""For other calls that are under way on a connection that is given up."""
_READY = grpc.ChannelConnectivity.READY
_LOOK_BACK_S = 10.0
"""How often a connection to the own zone is tried while another zone's HSC is used."""


class HeartbeatChannel:
    """Stands in for the stub. One connection at a time, to one of the addresses; after a failure, to the next.

    The HSCs of `rpc.zone` come first. While another zone's is used, a second connection tries one of the own zone, and is
    used once that has answered: no heartbeat is risked to find out.
    """

    def __init__(self, addresses: str, rpc: RpcSettings) -> None:
        """Args: `addresses` are as in `executor.hsc_address`."""
        peers = split_peers(addresses)
        self._addresses = [peer.address for peer in peers]
        self._near = near(peers, rpc.zone) or frozenset(self._addresses)
        random.shuffle(self._addresses)  # Executors spread over the HSCs
        self._addresses.sort(key=self._is_far)
        self._back: tuple[str, grpc.aio.Channel] | None = None
        """To an HSC of the own zone, which may serve again."""
        self._looked_at = 0.0
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
        elif self._is_far(self._addresses[0]):
            self._look_back()
        channel = self._channel
        try:
            response: hsc_pb2.HeartbeatResponse = await hsc_stub(channel).Heartbeat(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            if error.code() in TRANSIENT and channel is self._channel:
                self._give_up(channel)
            raise
        return response

    def _is_far(self, address: str) -> bool:
        return address not in self._near

    def _look_back(self) -> None:
        """Use an HSC of the own zone again, if it answers; else try the next one of them once in a while."""
        now = time.monotonic()
        if self._back is not None and self._back[1].get_state(try_to_connect=True) is _READY:
            (address, back), self._back = self._back, None
            if self._channel is not None:
                self._close(self._channel)
            self._put(address, 0)
            self._channel = back
        elif now - self._looked_at > _LOOK_BACK_S:
            self._looked_at = now
            if self._back is not None:
                self._close(self._back[1])
            address = next(each for each in self._addresses if not self._is_far(each))
            self._put(address, len(self._addresses))
            self._back = address, open_channel(address, self._rpc)
            self._back[1].get_state(try_to_connect=True)

    def _put(self, address: str, place: int) -> None:
        self._addresses.remove(address)
        self._addresses.insert(place, address)

    def _give_up(self, channel: grpc.aio.Channel) -> None:
        self._channel = None
        self._put(self._addresses[0], len(self._addresses))
        self._close(channel)

    def _close(self, channel: grpc.aio.Channel) -> None:
        closing = asyncio.get_running_loop().create_task(channel.close(_GRACE.total_seconds()))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Hang up."""
        if self._channel is not None:
            await self._channel.close()
        if self._back is not None:
            await self._back[1].close()
        for closing in list(self._closing):
            closing.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
