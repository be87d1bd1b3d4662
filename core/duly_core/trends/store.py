"""Adds to the trends, and reads it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from duly_core.fleet.statements import FLEET
from duly_core.postgres.arrays import int2s, texts, timestamps, uuids
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import load
from duly_core.trends.rules import ALL, Sum, Time
from duly_wire.ids import TaskId
from duly_wire.time_conversion import EPOCH

TRENDS = load("trends/trends.sql")

MOST_POINTS = 1_500
"""Of one chart: the minutes of a day, and some."""
_MOST_HELD = 20_000
_MOST_DEAD = 50_000
_MOST_SCHEDULED = 5_000
"""Of one lambda."""
_MOST_SCHEDULED_TOGETHER = 100_000
_LEAST_SCHEDULED = 20
_LAMBDAS_AT_A_TIME = 2_000
_MILLISECOND = timedelta(milliseconds=1)
_MOST_MARKS = 200
_MOST_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class Point:
    """What happened in a minute or an hour, of one lambda or of all."""

    at: datetime
    scheduled: int
    lateness: Sequence[int]
    """How many runs began, by how late they did (`rules.place_of`)."""
    ended: int
    dead: int
    """Tasks that became dead letters; `ended` has them, too."""
    failed_runs: int
    is_measured: bool
    """A Store Consumer counted what follows."""
    ready: int
    held: int
    oldest: timedelta | None
    slots: int

    @property
    def started(self) -> int:
        """How many runs began."""
        return sum(self.lateness)


class Mark(NamedTuple):
    """A change that may explain a chart."""

    at: datetime
    actor: str
    """Who made it; empty: nobody is asked who they are, or Duly itself."""
    method: str
    """The RPC; empty: a new version of a lambda."""
    request: str
    """JSON, or the version."""
    lambda_name: str = ""


async def add_runs(store: Store, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add how runs began and ended: rows of `RunCounts.take`.

    Raises:
        StoreUnavailableError: they may be added or not.
    """
    await store.run(TRENDS["add_runs"], {"runs": Jsonb(list(rows))})


async def lambdas_of(store: Store, task_ids: Sequence[TaskId]) -> dict[TaskId, str]:
    """Return the lambdas of tasks; those that are gone are left out.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    return dict(await store.run(TRENDS["lambdas_of_tasks"], {"task_ids": uuids(sorted(task_ids))}))


async def is_measured(store: Store, at: datetime) -> bool:
    """Return whether a Store Consumer has measured a minute.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    return bool(await store.run(TRENDS["is_measured"], {"at": at}))


async def add_measured(store: Store, at: datetime, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add what was measured of a minute, unless another process has. The row of all lambdas must be among them.

    Raises:
        StoreUnavailableError: it may be added or not.
    """
    await store.run(TRENDS["add_measured"], {"at": at, "found": Jsonb(list(rows))})


async def scheduled_between(
    store: Store, lambdas: Sequence[str], since: datetime, until: datetime
) -> dict[str, int]:
    """Return how many tasks of each of these lambdas have ids of this time; an estimate where there are very many.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    most = max(_LEAST_SCHEDULED, min(_MOST_SCHEDULED, _MOST_SCHEDULED_TOGETHER // max(1, len(lambdas))))
    found: dict[str, int] = {}
    first = _first_id(since)
    for start in range(0, len(lambdas), _LAMBDAS_AT_A_TIME):
        asked = {
            "lambdas": texts(lambdas[start : start + _LAMBDAS_AT_A_TIME]),
            "first_id": first,
            "end_id": _first_id(until),
            "most": most,
        }
        for name, number, last_id in await store.run(TRENDS["scheduled_between"], asked):
            found[name] = number if number < most else _estimate(number, since, until, UUID(last_id))
    return found


def _estimate(number: int, since: datetime, until: datetime, last_id: UUID) -> int:
    """Return how many there may be in a time of which the first part had so many, up to that id."""
    read = EPOCH + (last_id.int >> 80) * _MILLISECOND - since
    return round(number * max(1.0, (until - since) / max(read, _MILLISECOND)))


async def dead_between(store: Store, since: datetime, until: datetime) -> dict[str, int]:
    """Return how many tasks of each lambda became dead letters in this time, of the first 50,000.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    asked = {"at": since, "end_at": until, "most": _MOST_DEAD}
    return dict(await store.run(TRENDS["dead_between"], asked))


async def held_by_lambda(store: Store) -> dict[str, int]:
    """Return how many tasks of each lambda workers have, of the first 20,000.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    return dict(await store.run(TRENDS["held_by_lambda"], {"most": _MOST_HELD}))


async def slots_of_hosts(store: Store) -> int:
    """Return how many slots the hosts have that are alive.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    ((slots,),) = await store.run(TRENDS["slots_of_hosts"], {})
    return int(slots)


async def newest_sum(store: Store, minutes: int) -> datetime | None:
    """Return the last hour (60) or day (1,440) that was summed; None: none was.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await store.run(TRENDS["newest_sum"], {"minutes": minutes})
    return rows[0][0] if rows else None


async def sum_points(store: Store, minutes: int, part: int, at: datetime, most: int) -> None:
    """Make the points of an hour or a day from those of its parts, of so many lambdas. `minutes` and `part` say how long each is.

    Raises:
        StoreUnavailableError: they may be made or not; it can be repeated.
    """
    asked = {"minutes": minutes, "part": part, "at": at, "most": most}
    await store.run(TRENDS["sum_points"], asked)


async def add_calls(store: Store, calls: Mapping[datetime, tuple[int, int]]) -> None:
    """Add calls that schedule to their minutes: how many had to be accepted, and how many of them were not.

    Raises:
        StoreUnavailableError: they may be added or not.
    """
    rows = [
        {"at": at.isoformat(), "calls": number, "failed_calls": failed}
        for at, (number, failed) in sorted(calls.items())
    ]
    await store.run(TRENDS["add_calls"], {"calls": Jsonb(rows)})


async def sums_of_times(store: Store, times: Sequence[Time], lambdas: Sequence[str] = ()) -> list[Sum]:
    """Return what each of some times had, by lambda; nothing of those that had nothing.

    Args:
        store: the store.
        times: which points are read.
        lambdas: only these, ALL among them; empty: every one.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    asked = {
        "minutes": int2s([time.minutes for time in times]),
        "since": timestamps([time.since for time in times]),
        "until": timestamps([time.until for time in times]),
        "lambdas": texts(lambdas),
    }
    rows = await store.run(TRENDS["sums_of_times"], asked)
    return [
        Sum(
            name,
            times[place - 1],
            first_run_at,
            first_call_at,
            [each or 0 for each in lateness],
            calls,
            failed,
        )
        for name, place, first_run_at, first_call_at, lateness, calls, failed in rows
    ]


async def forget(store: Store, minutes: int, before: datetime, limit: int) -> int:
    """Remove points of minutes (1) or hours (60) before that time; return how many were removed, at most `limit`.

    Raises:
        StoreUnavailableError: they may be removed or not.
    """
    asked = {"minutes": minutes, "before": before, "limit": limit}
    return len(await store.run(TRENDS["forget_points"], asked))


async def store_now(store: Store) -> datetime:
    """Return the store's time.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    ((now,),) = await store.run(FLEET["store_now"], {})
    found: datetime = now
    return found


async def read_points(
    store: Store, minutes: int, since: datetime, until: datetime, lambda_name: str = ALL
) -> list[Point]:
    """Return the points of one lambda, or of all together, oldest first; minutes without any are left out.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    asked = {
        "minutes": minutes,
        "lambda": lambda_name,
        "since": since,
        "until": until,
        "most": MOST_POINTS,
    }
    return [Point(*row) for row in await store.run(TRENDS["points"], asked)]


async def read_marks(
    store: Store, methods: Sequence[str], since: datetime, until: datetime, lambda_name: str = ALL
) -> list[Mark]:
    """Return changes by these RPCs and new versions, newest first, of the newest 10,000 entries of the audit log.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    span = {"since": since, "until": until, "most": _MOST_MARKS}
    asked = span | {"methods": texts(methods), "most_read": _MOST_ENTRIES}
    changed = await store.run(TRENDS["marks"], asked)
    versions = await store.run(TRENDS["version_marks"], span | {"lambda": lambda_name})
    marks = [Mark(*row) for row in changed] + [
        Mark(at, "", "", version, name) for at, name, version in versions
    ]
    return sorted(marks, key=lambda mark: mark.at, reverse=True)[:_MOST_MARKS]


def _first_id(moment: datetime) -> UUID:
    """Return the lowest task id of an instant: they begin with their milliseconds since 1970."""
    return UUID(int=max(0, (moment - EPOCH) // _MILLISECOND) << 80)
