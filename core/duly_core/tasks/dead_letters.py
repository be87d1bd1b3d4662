"""Dead letters, the tasks that ended as fatal_failure: let them run again, by their ids or by a filter."""

import asyncio
import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from psycopg.rows import TupleRow

from duly_core.access.current import scheduler
from duly_core.lambdas.names import base_name
from duly_core.lambdas.store import list_names
from duly_core.postgres.arrays import uuids
from duly_core.postgres.pool import Connection, Store, fetch
from duly_core.postgres.statements import READS, TRANSITIONS
from duly_core.tasks import queries as task_queries
from duly_core.tasks.causes import Cause, cause_of
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.store import TaskFilter, get_tasks
from duly_core.tasks.unique_keys import KeyOfTask, lock_and_look, of_dead_letters, take
from duly_wire.ids import TaskId

_TRIES = 3
"""A task may end between the look at it and the redrive."""
_MOST_PAGES = 50
"""Of dead letters that one call of a redrive by filter reads, because other tasks have the unique keys of some."""
_LOOKED_AT = 1_000
"""Dead letters of a page whose causes are read."""
_MOST_LOOKED_AT = 5_000
"""In one call: each costs a read of its failure."""


class Verdict(enum.Enum):
    """What became of one task of a redrive by ids."""

    REDRIVEN = "redriven"
    NOT_DEAD = "not dead"
    UNKNOWN_LAMBDA = "unknown lambda"
    KEY_TAKEN = "key taken"
    """Another task that has not ended has its unique key."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one task of a redrive by ids, and its status now."""

    verdict: Verdict
    status: Status
    holder: TaskId | None = None
    """With KEY_TAKEN: the other task."""


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
    after: "Place | None" = None
    """Of a redrive by cause: the last that was looked at, behind which the next call begins."""


class Place(NamedTuple):
    """A dead letter, in the order in which they ended."""

    ended_at: datetime
    task_id: TaskId


@dataclass(frozen=True, slots=True)
class OfCause:
    """Only the dead letters of one cause; those behind a place."""

    fingerprint: str
    after: Place | None = None


async def redrive(store: Store, task_ids: Sequence[TaskId]) -> dict[TaskId, Answer]:
    """Let dead letters run again at once; tasks that do not exist are left out of the answer.

    Raises:
        StoreUnavailableError: the outcome is unknown; asked again, what was redriven is not dead.
    """
    left = sorted(set(task_ids))
    answers: dict[TaskId, Answer] = {}
    for _ in range(_TRIES):
        rows, taken = await _redrive(store, left, [timedelta()] * len(left), None)
        answers |= {row[0]: Answer(Verdict.REDRIVEN, Status(row[2])) for row in rows}
        answers |= {
            task_id: Answer(Verdict.KEY_TAKEN, Status.FATAL_FAILURE, holder)
            for task_id, holder in taken.items()
        }
        left = [task_id for task_id in left if task_id not in answers]
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


async def redrive_where(
    store: Store, wanted: TaskFilter, spread: Spread, limit: int, of_cause: OfCause | None = None
) -> Page:
    """Let up to `limit` of the dead letters that the filter finds run again, those that ended first before the others.

    With a cause a call looks at 5,000 at most, and may find none of it among them.

    Raises:
        StoreUnavailableError: the outcome is unknown; asked again, what was redriven is not dead.
    """
    now, as_of = await task_queries.begun_at(store, spread.as_of)
    apart = timedelta(seconds=1 / spread.rate) if spread.rate else timedelta()
    # a caller that paused goes on from now: nothing is made up for with a burst
    start = max(spread.offset, now - as_of) if spread.rate else timedelta()
    done: list[TupleRow] = []
    more, looked_at = True, 0
    after = of_cause.after if of_cause else None
    if of_cause:
        wanted = await _of_cause(store, wanted)
    for _ in range(_MOST_PAGES):
        found = await _look(store, wanted, as_of, limit - len(done), after, of_cause)
        more, after, looked_at = found.more, found.last or after, looked_at + found.looked_at
        ahead = {task_id: start + place * apart for place, task_id in enumerate(found.ids)}
        ordered = sorted(found.ids)
        rows, taken = await _redrive(store, ordered, [ahead[task_id] for task_id in ordered], as_of)
        done += rows
        start = max((ahead[row[0]] + apart for row in rows), default=start)
        # what is left out for its key, or its cause, would be found again: the next page begins behind it
        is_over = looked_at >= _MOST_LOOKED_AT if of_cause else not taken
        if is_over or not more or len(done) >= limit:
            break
    return Page(
        count=len(done),
        # without progress the next call would find the same
        more=more and (bool(done) or of_cause is not None),
        spread=replace(spread, as_of=as_of, offset=start),
        due_in=min((row[1] for row in done), default=None),
        after=after if of_cause else None,
    )


async def count_where(
    store: Store, wanted: TaskFilter, spread: Spread, of_cause: OfCause | None = None
) -> Page:
    """How many dead letters a redrive with this filter would take; changes nothing.

    With a cause a call counts among 5,000 at most.

    Raises:
        StoreUnavailableError: the store cannot tell now.
    """
    _, as_of = await task_queries.begun_at(store, spread.as_of)
    counted = replace(spread, as_of=as_of)
    if of_cause is None:
        count = await task_queries.count(store, task_queries.dead(wanted, as_of))
        return Page(count, more=False, spread=counted)
    count, looked_at, more, after = 0, 0, True, of_cause.after
    wanted = await _of_cause(store, wanted)
    while more and looked_at < _MOST_LOOKED_AT:
        found = await _look(store, wanted, as_of, _LOOKED_AT, after, of_cause)
        more, after = found.more, found.last or after
        count, looked_at = count + len(found.ids), looked_at + found.looked_at
    return Page(count, more=more, spread=counted, after=after)


async def causes_of(store: Store, task_ids: Collection[TaskId]) -> dict[TaskId, Cause]:
    """Return why dead letters failed for good; those that are gone are left out.

    Raises:
        StoreUnavailableError: ask again.
    """
    asked = {"task_ids": uuids(sorted(task_ids))}
    return {
        task_id: cause_of(base_name(lambda_name), kind, message or "")
        for task_id, lambda_name, kind, message in await store.run(READS["failures_of_dead_letters"], asked)
    }


async def _of_cause(store: Store, wanted: TaskFilter) -> TaskFilter:
    """Return a filter for a cause: it is one of a lambda, and so of the tasks in all queues of that."""
    if not wanted.lambda_name:
        return wanted
    queues = await task_queries.queues_of(store, wanted.lambda_name)
    # that of one queue reads them in order
    return replace(wanted, queues=queues) if len(queues) > 1 else wanted


class _Found(NamedTuple):
    """A page of what a redrive takes."""

    ids: list[TaskId]
    """In the order in which they ended."""
    last: Place | None
    """The last that was looked at."""
    looked_at: int
    more: bool


async def _look(
    store: Store,
    wanted: TaskFilter,
    as_of: datetime,
    most: int,
    after: Place | None,
    of_cause: OfCause | None,
) -> _Found:
    """Return up to `most` dead letters behind a place."""
    look_at = _LOOKED_AT if of_cause else most
    found = [Place(*each) for each in await task_queries.first_dead(store, wanted, as_of, look_at + 1, after)]
    more, found = len(found) > look_at, found[:look_at]
    if of_cause is None or not found:
        return _Found([each.task_id for each in found], found[-1] if found else None, len(found), more)
    causes = await causes_of(store, [each.task_id for each in found])
    by_it = [
        place
        for place, each in enumerate(found)
        if each.task_id in causes and causes[each.task_id].fingerprint == of_cause.fingerprint
    ]
    if len(by_it) > most:
        more, found, by_it = True, found[: by_it[most]], by_it[:most]
    return _Found([found[place].task_id for place in by_it], found[-1], len(found), more)


async def _redrive(
    store: Store, task_ids: Sequence[TaskId], ahead: Sequence[timedelta], as_of: datetime | None
) -> tuple[list[TupleRow], dict[TaskId, TaskId]]:
    """Return the rows of the statement, and which of the tasks were left out because another one has their unique key."""
    if not task_ids:
        return [], {}
    parameters = {"ahead": list(ahead), "as_of": as_of, "by": scheduler()}
    rows = await store.run(
        TRANSITIONS["redrive"], parameters | {"task_ids": uuids(task_ids), "keyed": uuids([])}
    )
    done = {row[0] for row in rows}
    keyed = await of_dead_letters(store, [task_id for task_id in task_ids if task_id not in done])
    if not keyed:
        return rows, {}
    ahead_of = dict(zip(task_ids, ahead, strict=True))
    async with store.connection() as connection, connection.transaction():
        taken = await _lock_keys(connection, keyed)
        free = sorted(each.task_id for each in keyed if each.task_id not in taken)
        own = {"task_ids": uuids(free), "keyed": uuids(free), "ahead": [ahead_of[each] for each in free]}
        redriven = await fetch(connection, TRANSITIONS["redrive"], parameters | own)
        live = {row[0] for row in redriven}
        await take(connection, [each for each in keyed if each.task_id in live])
    return rows + redriven, taken


async def _lock_keys(connection: Connection, keyed: Sequence[KeyOfTask]) -> dict[TaskId, TaskId]:
    """Lock the keys of dead letters; return by task which other one has its key, of one another too: the first one gets it."""
    taken: dict[TaskId, TaskId] = {}
    first: dict[tuple[str, str], TaskId] = {}
    for each, found in zip(keyed, await lock_and_look(connection, keyed), strict=True):
        holder = found.holder
        if holder is not None and holder.status is not None and holder.task_id != each.task_id:
            taken[each.task_id] = holder.task_id
        elif (other := first.setdefault((each.lambda_name, each.key), each.task_id)) != each.task_id:
            taken[each.task_id] = other
    return taken
