"""Dead letters, the tasks that ended as fatal_failure: let them run again, by their ids or by a filter."""

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from psycopg.rows import TupleRow

from duly_core.access.current import scheduler
from duly_core.lambdas.store import list_names
from duly_core.postgres.arrays import uuids
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import TRANSITIONS
from duly_core.tasks import queries as task_queries
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.store import TaskFilter, get_tasks
from duly_wire.ids import TaskId

_TRIES = 3
"""A task may end between the look at it and the redrive."""


class Verdict(enum.Enum):
    """What became of one task of a redrive by ids."""

    REDRIVEN = "redriven"
    NOT_DEAD = "not dead"
    UNKNOWN_LAMBDA = "unknown lambda"


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one task of a redrive by ids, and its status now."""

    verdict: Verdict
    status: Status


@dataclass(frozen=True, slots=True)
class Spread:
    """When a filter's dead letters become due: `rate` of them a second, from `offset` after `as_of` on."""

    rate: float = 0
    """0: all at once."""
    as_of: datetime | None = None
    """The instant, by the store's clock, at which the redrive began: what ends later is not taken. None: now."""
    offset: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class Page:
    """What one call of a redrive by filter did, and where the next one goes on."""

    count: int
    more: bool
    """Others matched when this page was read."""
    spread: Spread
    """For the next call."""
    due_in: timedelta | None = None
    """How far ahead the first of them is due; None if there was none."""


async def redrive(store: Store, task_ids: Sequence[TaskId]) -> dict[TaskId, Answer]:
    """Let dead letters run again at once; tasks that do not exist are left out of the answer.

    Raises:
        StoreUnavailableError: the outcome is unknown; asked again, what was redriven is not dead.
    """
    left = sorted(set(task_ids))
    answers: dict[TaskId, Answer] = {}
    for _ in range(_TRIES):
        rows = await _redrive(store, left, [timedelta()] * len(left), None)
        answers |= {row[0]: Answer(Verdict.REDRIVEN, Status(row[2])) for row in rows}
        done = {row[0] for row in rows}
        left = [task_id for task_id in left if task_id not in done]
        if not left:
            break
        found = await get_tasks(store, left, most_bytes=None)
        registered = set(await list_names(store))
        left = []
        for task_id, row in sorted(found.items()):
            status = Status(row["status"])
            if status is Status.FATAL_FAILURE and row["lambda"] not in registered:
                answers[task_id] = Answer(Verdict.UNKNOWN_LAMBDA, status)
            else:
                answers[task_id] = Answer(Verdict.NOT_DEAD, status)
                left += [task_id] * (status is Status.FATAL_FAILURE)
        if not left:
            break
        await asyncio.sleep(0)
    return answers


async def redrive_where(store: Store, wanted: TaskFilter, spread: Spread, limit: int) -> Page:
    """Let up to `limit` of the dead letters that the filter finds run again, those that ended first before the others.

    Raises:
        StoreUnavailableError: the outcome is unknown; asked again, what was redriven is not dead.
    """
    now, as_of = await task_queries.begun_at(store, spread.as_of)
    found = await task_queries.first_dead(store, wanted, as_of, limit + 1)
    ids = found[:limit]
    apart = 1 / spread.rate if spread.rate else 0.0
    # a caller that paused goes on from now: nothing is made up for with a burst
    start = max(spread.offset, now - as_of) if spread.rate else timedelta()
    ahead = {task_id: start + timedelta(seconds=place * apart) for place, task_id in enumerate(ids)}
    ordered = sorted(ids)
    done = await _redrive(store, ordered, [ahead[task_id] for task_id in ordered], as_of) if ids else []
    return Page(
        count=len(done),
        more=len(found) > limit,
        spread=replace(spread, as_of=as_of, offset=start + timedelta(seconds=len(ids) * apart)),
        due_in=min((row[1] for row in done), default=None),
    )


async def count_where(store: Store, wanted: TaskFilter, spread: Spread) -> Page:
    """How many dead letters a redrive with this filter would take; changes nothing.

    Raises:
        StoreUnavailableError: the store cannot tell now.
    """
    _, as_of = await task_queries.begun_at(store, spread.as_of)
    count = await task_queries.count(store, task_queries.dead(wanted, as_of))
    return Page(count, more=False, spread=replace(spread, as_of=as_of))


async def _redrive(
    store: Store, task_ids: Sequence[TaskId], ahead: Sequence[timedelta], as_of: datetime | None
) -> list[TupleRow]:
    parameters = {"task_ids": uuids(task_ids), "ahead": list(ahead), "as_of": as_of, "by": scheduler()}
    return await store.run(TRANSITIONS["redrive"], parameters)
