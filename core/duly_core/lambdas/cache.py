"""Remembers the registry, so that checking a task asks Postgres nothing."""

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import NamedTuple

from duly_core.errors import StoreUnavailableError
from duly_core.lambdas import store as lambdas
from duly_core.lambdas.declarations import pinned_name
from duly_core.lambdas.names import QUEUE_NAME
from duly_core.lambdas.ramps import Ramp
from duly_core.postgres.pool import Store
from duly_wire.queue_names import LABELS_MARK, QueueName

FRESH = timedelta(seconds=5)
"""How long a remembered policy may lag behind the store."""

_MOST_ADDED = 50
"""Queues of one call."""

RETRY = timedelta(milliseconds=100)
"""How soon the store may be asked again for a name that nobody knows."""


class LabelQueue(NamedTuple):
    """The queue of tasks that require labels."""

    base: str
    """The queue without them."""
    required: frozenset[str]


class LambdaCache:
    """The registered lambdas' payload limits; the store still has the last word when the task is written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._limits: dict[str, int] = {}
        self._label_queues: dict[str, LabelQueue] = {}
        self._ramps: dict[str, Ramp] = {}
        self._read_at = float("-inf")
        self._asked_at = float("-inf")
        """When the last read that succeeded began."""
        self._changes = 0
        self._lock = asyncio.Lock()

    async def payload_limits(self, names: set[str], may_add: Collection[str] = ()) -> Mapping[str, int]:
        """Limits by lambda, fresh enough, and looked up again if one of `names` is not among them.

        Of `may_add` the queues of tasks that require labels are made if they are not there yet.

        Raises:
            StoreUnavailableError: they had to be looked up, and could not.
        """
        if self._stale(names):
            async with self._lock:
                if self._stale(names):
                    try:
                        await self._read()
                    except StoreUnavailableError:
                        if not names <= self._limits.keys():
                            raise
                        # stale: the store has the last word, once it is back
        if may_add and not names <= self._limits.keys():
            await self._add_label_queues(may_add)
        return self._limits

    async def _add_label_queues(self, names: Collection[str]) -> None:
        bases = Counter(each.base for each in self.label_queues.values())
        missing = []
        for name in sorted({*names} - self._limits.keys())[:_MOST_ADDED]:
            base = QueueName.parse(name).base
            if base != name and base in self._limits and QUEUE_NAME.fullmatch(name):
                bases[base] += 1
                if bases[base] <= lambdas.MOST_LABEL_QUEUES:
                    missing.append(name)
        if missing:
            await lambdas.add_label_queues(self._store, missing)
            self.forget()
            await self.payload_limits({*missing})

    @property
    def label_queues(self) -> Mapping[str, LabelQueue]:
        """The queues of tasks that require labels by their names, as they were read last."""
        return self._label_queues

    @property
    def ramps(self) -> Mapping[str, Ramp]:
        """The ramps of lambdas, as they were read last. Few lambdas have one."""
        return self._ramps

    async def payload_limits_now(self) -> Mapping[str, int]:
        """Limits by lambda as the store has them after this call began: for who must not refuse by what is old.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        called_at = time.monotonic()
        async with self._lock:
            if self._asked_at <= called_at:
                await self._read()
        return self._limits

    async def _read(self) -> None:
        changes, asked_at = self._changes, time.monotonic()
        self._limits, ramps = await lambdas.payload_limits_and_ramps(self._store)
        self._ramps = {
            name: ramp for name, ramp in ramps.items() if pinned_name(name, ramp.version) in self._limits
        }
        known = self._label_queues  # each is taken apart once
        self._label_queues = {
            name: known.get(name) or _label_queue(name) for name in self._limits if LABELS_MARK in name
        }
        self._asked_at = asked_at
        if changes == self._changes:  # else what was read may be older than the change
            self._read_at = time.monotonic()

    def _stale(self, names: set[str]) -> bool:
        age = timedelta(seconds=min(time.monotonic() - self._read_at, 1e6))
        return age > FRESH or (age > RETRY and not names <= self._limits.keys())

    def forget(self) -> None:
        """The registry changed: read it again next time."""
        self._changes += 1
        self._read_at = float("-inf")


def _label_queue(name: str) -> LabelQueue:
    queue = QueueName.parse(name)
    return LabelQueue(queue.base, queue.required)
