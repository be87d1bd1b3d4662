"""Measures each minute for the trends, sums hours and days, and removes what is old."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from duly_core.counting.backlog import Ready, read_slots
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.pool import Store
from duly_core.trends import store as trends
from duly_core.trends.rules import ALL, KEPT, base_name, day_of, hour_of, minute_of
from duly_core.trends.run_counts import MOST_LAMBDAS

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_SETTLE = timedelta(seconds=5)
"""After the end of a minute: its dead letters are visible, and HSCs have added to it."""
_PAGE = 2_000
_PAGES = 10


class TrendLoop:
    """`run_once` is a round. Of several Store Consumers one measures a minute: the first that adds what it measured."""

    def __init__(
        self,
        store: Store,
        ready: Callable[[], Mapping[QueueKey, Ready]],
        lambdas: Callable[[], Sequence[str]],
        now: Callable[[], Awaitable[datetime]],
    ) -> None:
        """Make one.

        Args:
            store: the store.
            ready: tells what is due by queue, as it was last counted.
            lambdas: tells the names of the registered queues.
            now: tells the store's time.
        """
        self._store = store
        self._ready = ready
        self._lambdas = lambdas
        self._now = now
        self._summed: dict[int, datetime] = {}
        """The last hour and the last day that this process summed, by their minutes."""

    async def run_once(self) -> timedelta:
        """Measure the last minute; return the pause until the next is over.

        Raises:
            StoreUnavailableError: the minute may lack what is measured.
        """
        minute = minute_of(await self._now() - _SETTLE) - _MINUTE
        if not await trends.is_measured(self._store, minute):
            await trends.add_measured(self._store, minute, await self._measure(minute))
            await self._sum(minute)
            for minutes, kept in KEPT.items():
                for _ in range(_PAGES):
                    if await trends.forget(self._store, minutes, minute - kept, _PAGE) < _PAGE:
                        break
        return max(_SETTLE, minute + 2 * _MINUTE + _SETTLE - await self._now())

    async def _measure(self, minute: datetime) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}

        def row(queue_name: str) -> dict[str, Any]:
            name = base_name(queue_name)
            return found.setdefault(
                name,
                {
                    "lambda": name,
                    "scheduled": 0,
                    "dead": 0,
                    "ready": 0,
                    "held": 0,
                    "oldest": None,
                    "slots": 0,
                },
            )

        names = self._lambdas()
        scheduled = await trends.scheduled_between(self._store, names, minute, minute + _MINUTE)
        dead = await trends.dead_between(self._store, minute, minute + _MINUTE)
        held = await trends.held_by_lambda(self._store)
        for kind, numbers in (("scheduled", scheduled), ("dead", dead), ("held", held)):
            for name, number in numbers.items():
                row(name)[kind] += number
        for queue, due in self._ready().items():
            if due.tasks:
                told = row(queue.lambda_name)
                told["ready"] += due.tasks
                told["oldest"] = max(told["oldest"] or 0.0, due.age.total_seconds())
        largest = sorted(found.values(), key=_size, reverse=True)[:MOST_LAMBDAS]
        slots = await read_slots(self._store, [each["lambda"] for each in largest])
        for each in largest:
            each["slots"] = slots.get(each["lambda"], 0)
        together = {"lambda": ALL, "slots": await trends.slots_of_hosts(self._store)}
        for kind in ("scheduled", "dead", "ready", "held"):
            together[kind] = sum(each[kind] for each in found.values())
        together["oldest"] = max((each["oldest"] for each in found.values() if each["oldest"]), default=None)
        return [together, *largest]

    async def _sum(self, minute: datetime) -> None:
        """Sum the hours and days that are over: the last one of each once more, for HSCs that came late."""
        await self._sum_each(60, 1, hour_of(minute), _HOUR, minute.minute)
        await self._sum_each(1_440, 60, day_of(minute), _DAY, (minute - day_of(minute)) // _MINUTE)

    async def _sum_each(self, minutes: int, part: int, now: datetime, length: timedelta, age: int) -> None:
        """Sum what is over of one length, as far back as its parts are kept; `now` began `age` minutes ago."""
        last = now - length
        if self._summed.get(minutes) == last and age > 1:
            return
        newest = await trends.newest_sum(self._store, minutes)
        first = last - (KEPT[part] // length - 2) * length
        at = first if newest is None else min(max(newest + length, first), last)
        while at <= last:
            await trends.sum_points(self._store, minutes, part, at, MOST_LAMBDAS + 1)
            at += length
        self._summed[minutes] = last


def _size(told: Mapping[str, Any]) -> int:
    return int(told["scheduled"] + told["dead"] + told["ready"] + told["held"])
