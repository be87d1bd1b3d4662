"""Brings many things to the HSC in one call; what refuses to go with the others is found by halving."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Generic, TypeVar

import grpc

from duly_core.process.loop import backoff
from duly_core.rpc.retry import TRANSIENT, until_definite

_DOUBTFUL = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.RESOURCE_EXHAUSTED})
"""Statuses that may pass, or be the fault of one item: if they last, they are taken for a refusal of it."""
_TRIES_ALONE = 5
_FIRST_PAUSE = 3
"""Pauses begin as after so many failures: what passes should have the time to."""
_FOREVER = timedelta(days=1)
"""As long as the claims are alive: heartbeats go on meanwhile, and end the process if the HSC stays away."""

Item = TypeVar("Item")


class BatchSender(Generic[Item]):
    """`send` brings items in one call with a deadline; it must be safe to repeat."""

    def __init__(
        self,
        send: Callable[[Sequence[Item], float], Awaitable[None]],
        call_timeout: timedelta,
        refused: Callable[[Item], None],
    ) -> None:
        """Args: `refused` is told of each item that did not go by itself, and may have it brought `alone`."""
        self._send = send
        self._call_timeout = call_timeout
        self._refused = refused

    async def send_batch(self, items: Sequence[Item]) -> None:
        """Bring these, in halves of halves if they are refused as a whole."""
        try:
            await self._until_definite(items)
        except grpc.aio.AioRpcError as error:
            if _says_nothing(error):
                raise
            if len(items) == 1:
                self._refused(items[0])
                return
            middle = len(items) // 2
            await self.send_batch(items[:middle])
            await self.send_batch(items[middle:])

    async def alone(self, item: Item) -> str | None:
        """Bring one item, a few times if it is doubtful what is wrong; why it was refused, if it was."""
        for failures in range(_TRIES_ALONE):
            if failures:
                await asyncio.sleep(backoff(_FIRST_PAUSE + failures).total_seconds())
            try:
                await self._until_definite([item])
            except grpc.aio.AioRpcError as error:
                if _says_nothing(error):
                    raise
                reason = f"{error.code().name}: {error.details()}"
                if error.code() not in _DOUBTFUL:
                    break
            else:
                return None
        return reason

    async def _until_definite(self, items: Sequence[Item]) -> None:
        await until_definite(
            lambda timeout: self._send(items, timeout),
            within=_FOREVER,
            attempt_timeout=self._call_timeout,
            definite=_DOUBTFUL,
        )


def _says_nothing(error: grpc.aio.AioRpcError) -> bool:
    """Whether even the longest time was too short for an answer."""
    return error.code() in TRANSIENT - _DOUBTFUL
