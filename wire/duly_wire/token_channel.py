"""Channels whose calls show a token.

Not by gRPC's interceptors: those pass each message of a stream through two more queues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import grpc

_HEADER = "authorization"


def show_token(channel: grpc.aio.Channel, token: Callable[[], str] | None) -> grpc.aio.Channel:
    """Return a channel that shows the token of now with each call; None: no token is shown."""
    return channel if token is None else cast("grpc.aio.Channel", _TokenChannel(channel, token))


def show_token_blocking(channel: grpc.Channel, token: Callable[[], str] | None) -> grpc.Channel:
    """Return the same of a channel for blocking calls."""
    return channel if token is None else cast("grpc.Channel", _TokenChannel(channel, token))


class _TokenChannel:
    """Is the channel that it has, but for the calls."""

    def __init__(self, channel: Any, token: Callable[[], str]) -> None:
        self._channel = channel
        self._token = token

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def __enter__(self) -> Any:
        self._channel.__enter__()
        return self

    def __exit__(self, *reason: object) -> Any:
        return self._channel.__exit__(*reason)

    async def __aenter__(self) -> Any:
        await self._channel.__aenter__()
        return self

    async def __aexit__(self, *reason: object) -> Any:
        return await self._channel.__aexit__(*reason)

    def unary_unary(self, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        return self._showing(self._channel.unary_unary(*args, **kwargs))

    def unary_stream(self, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        return self._showing(self._channel.unary_stream(*args, **kwargs))

    def stream_unary(self, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        return self._showing(self._channel.stream_unary(*args, **kwargs))

    def stream_stream(self, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        return self._showing(self._channel.stream_stream(*args, **kwargs))

    def _showing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, metadata: Any = None, **kwargs: Any) -> Any:
            shown = (*(metadata or ()), (_HEADER, f"Bearer {self._token()}"))
            return method(*args, metadata=shown, **kwargs)

        return call
