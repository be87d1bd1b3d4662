"""Computes the incident board: one round finds all that is wrong; one Frontend at a time makes it."""

import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from duly_core.gates.rules import Gate
from duly_core.gates.store import read_gates
from duly_core.postgres.pool import Store
from duly_core.problems import store as store_problems
from duly_core.problems.fleet import hosts_astray
from duly_core.problems.holds import breakers_open, paused
from duly_core.problems.problem import FoundProblem
from duly_core.process.identity import host_name

EVERY = timedelta(seconds=10)
_LONGEST_PAUSE = timedelta(seconds=30)
_SHARE = 20
"""A round that took long is followed by a pause of so many times its length: a large store is not kept busy by it."""


class ProblemBoard:
    """`run_once` computes the board, if it is this Frontend's turn."""

    def __init__(self, store: Store, every: timedelta = EVERY) -> None:
        self._store = store
        self._every = every
        self._by = f"{host_name()}:{os.getpid()}"
        self._version = -1
        self._gates: Sequence[Gate] = ()

    async def run_once(self) -> timedelta:
        """Make a round; return how long to wait before the next.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        begun_at = await store_problems.begin(self._store, self._by, self._every * 0.9)
        if begun_at is None:
            return self._every
        await store_problems.publish(self._store, begun_at, await self.find())
        return self._every

    async def find(self) -> list[FoundProblem]:
        """Return all that is wrong now, in no order.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        await self._read_gates()
        finders: Sequence[Callable[[], Awaitable[list[FoundProblem]]]] = (
            lambda: paused(self._store, self._gates),
            lambda: breakers_open(self._store),
            lambda: hosts_astray(self._store),
        )
        problems: list[FoundProblem] = []
        for find in finders:
            problems += await find()
        return problems

    async def _read_gates(self) -> None:
        read = await read_gates(self._store, self._version)
        if read.gates is not None:
            self._version, self._gates = read.version, read.gates
