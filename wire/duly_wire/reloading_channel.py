"""A channel whose certificates may be replaced: gRPC cannot change those of an open connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

import grpc

from duly_wire.tls_files import TlsFiles

_GRACE_S = 120.0
"""Streams are opened anew each minute, and no call takes longer."""


class ReloadingChannel(grpc.aio.Channel):
    """Calls that begin after the files were replaced go over a new connection; the others end on the old one."""

    def __init__(
        self, files: TlsFiles, open_with: Callable[[grpc.ChannelCredentials], grpc.aio.Channel]
    ) -> None:
        self._files = files
        self._open_with = open_with
        self._generation = files.generation
        self._channel = open_with(files.newest)
        self._closing: dict[asyncio.Task[None], grpc.aio.Channel] = {}

    def current(self) -> tuple[int, grpc.aio.Channel]:
        """Return the channel for a call that begins, with its number."""
        generation = self._files.refresh()
        if generation != self._generation:
            old, self._channel = self._channel, self._open_with(self._files.newest)
            self._generation = generation
            closing = asyncio.get_running_loop().create_task(old.close(_GRACE_S))
            self._closing[closing] = old
            closing.add_done_callback(lambda done: self._closing.pop(done, None))
        return self._generation, self._channel

    async def close(self, grace: float | None = None) -> None:
        """Close the connection, and the old ones."""
        old, self._closing = self._closing, {}
        for closing in old:
            closing.cancel()
        await asyncio.gather(*old, return_exceptions=True)
        await asyncio.gather(*(channel.close(grace) for channel in (*old.values(), self._channel)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: FBT001, FBT002 (gRPC's)
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._channel.channel_ready()

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, "unary_unary", args, kwargs)

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, "unary_stream", args, kwargs)

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, "stream_unary", args, kwargs)

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, "stream_stream", args, kwargs)


class _Method:
    """One method, on whichever channel is the current one."""

    def __init__(
        self, owner: ReloadingChannel, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._owner = owner
        self._kind, self._args, self._kwargs = kind, args, kwargs
        self._generation = -1
        self._of_channel: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        generation, channel = self._owner.current()
        if generation != self._generation:
            self._of_channel = getattr(channel, self._kind)(*self._args, **self._kwargs)
            self._generation = generation
        return self._of_channel(*args, **kwargs)
