"""A client's calls: any Frontend, the same request again until one answers."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any, NamedTuple, TypeVar

import duly
from duly.transport.caller import Caller
from duly_wire.credentials import Credentials

Value = TypeVar("Value")

_ONE_CALL = timedelta(seconds=4)
_PAUSE_S = 0.1


class Answered(NamedTuple):
    """What a call was answered."""

    answer: Any
    tries: int
    """How often the request was sent; those before the last may still be under way."""


class Calls:
    """Calls of all clients of a run."""

    def __init__(self, addresses: list[str], random: Random, token: str | None = None) -> None:
        """Make them; `token` says who they are, where they are asked."""
        credentials = Credentials.resolve(None, token)
        self._callers = [Caller(address, credentials) for address in addresses]
        self._random = random
        self._stopped = asyncio.Event()

    @property
    def address(self) -> str:
        """Of a Frontend."""
        return self._callers[0].address

    async def call(self, method: str, request: object, service: str = "frontend") -> Answered:
        """Call any Frontend, the one that comes first in turn.

        Raises:
            CancelledError: the run is over.
        """
        tries = 0

        def count(_: int) -> None:
            nonlocal tries
            tries += 1

        async def ask(caller: Caller) -> Any:
            stub = getattr(getattr(caller, service), method)
            return await caller.call(stub, request, _ONE_CALL, tried=count)

        return Answered(await self.anywhere(ask), tries)

    async def anywhere(self, work: Callable[[Caller], Awaitable[Value]]) -> Value:
        """Do what makes calls at any Frontend, until one answers.

        Raises:
            CancelledError: the run is over.
        """
        turn = self._random.randrange(len(self._callers))
        while not self._stopped.is_set():
            with suppress(duly.UnavailableError):
                return await work(self._callers[turn % len(self._callers)])
            turn += 1
            await asyncio.sleep(_PAUSE_S)
        raise asyncio.CancelledError

    def stop(self) -> None:
        """Try nothing again."""
        self._stopped.set()

    async def close(self) -> None:
        """Close the connections."""
        for caller in self._callers:
            await caller.close()
