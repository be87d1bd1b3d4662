"""Cancel or delete all tasks that a filter finds, a page at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from duly_core.access.current import scheduler
from duly_core.postgres.arrays import texts, uuids
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import ENTITIES, TRANSITIONS
from duly_core.tasks import queries as task_queries
from duly_core.tasks.lifecycle import FINAL, HELD, Status
from duly_core.tasks.store import Cancelled, TaskFilter, cancel_tasks
from duly_core.tasks.waiting import cancel_waiting
from duly_wire.ids import TaskId

_MOST_COUNTED = 10_000
"""Tasks of a page that are counted by attributes; no page reads more."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page begins."""

    as_of: datetime | None = None
    """The instant, by the store's clock, at which the first page began. None: this is the first."""
    after: TaskId | None = None
    """The last id of the page before, or one between two milliseconds."""


@dataclass(frozen=True, slots=True)
class BulkPage:
    """What one call did, and where the next one goes on."""

    count: int
    more: bool
    """Others matched when this page was read; with attributes they may have."""
    place: Place
    """For the next call."""
    released: Mapping[str, timedelta] = field(default_factory=dict)
    """The lambdas of tasks that waited for the end of others, and how far ahead the first of each is due."""


async def cancel_where(store: Store, wanted: TaskFilter, place: Place, limit: int) -> BulkPage:
    """Cancel up to `limit` of the live tasks that the filter finds; holders are asked if it names what is held.

    Raises:
        StoreUnavailableError: the outcome is unknown; asked again, what was cancelled is not found.
    """
    _, as_of = await task_queries.begun_at(store, place.as_of)
    query = task_queries.live(wanted, as_of)
    page = await task_queries.page_after(store, query, wanted, place.after, limit)
    if not page.ids:
        cancelled = Cancelled({}, {})
    elif wanted.statuses & HELD:
        cancelled = await cancel_tasks(store, page.ids)
    else:
        cancelled = await _cancel_pending(store, page.ids)
    return BulkPage(len(cancelled.statuses), page.more, Place(as_of, page.after), cancelled.released)


async def _cancel_pending(store: Store, task_ids: Sequence[TaskId]) -> Cancelled:
    """End what nobody runs, and ask no holder; what waits first, or the end of another would release it."""
    cancelled = Cancelled({}, {})
    rows = await cancel_waiting(store, task_ids)
    rows += await store.run(
        TRANSITIONS["cancel"], {"task_ids": uuids(task_ids), "only_if_requested": False, "by": scheduler()}
    )
    for task_id, lambda_name, due_in in rows:
        if task_id is not None:
            cancelled.statuses[task_id] = Status.CANCELLED
        else:
            known = cancelled.released.get(lambda_name, due_in)
            cancelled.released[lambda_name] = min(due_in, known)
    return cancelled


async def purge_where(store: Store, wanted: TaskFilter, place: Place, limit: int) -> BulkPage:
    """Delete up to `limit` of the finished tasks that the filter finds, with all that belongs to them.

    Raises:
        StoreUnavailableError: the outcome is unknown; asked again, what was deleted is not found.
    """
    _, as_of = await task_queries.begun_at(store, place.as_of)
    query = task_queries.finished(wanted, as_of)
    page = await task_queries.page_after(store, query, wanted, place.after, limit)
    parameters = {
        "task_ids": uuids(page.ids),
        "statuses": texts(sorted(map(str, wanted.statuses))),
        "as_of": as_of,
    }
    done = await store.run(ENTITIES["purge"], parameters) if page.ids else []
    return BulkPage(len(done), page.more, Place(as_of, page.after))


async def count_where(store: Store, wanted: TaskFilter, place: Place) -> BulkPage:
    """How many tasks `cancel_where` would find, or `purge_where` if finished ones are wanted; changes nothing.

    With attributes: those of a page.

    Raises:
        StoreUnavailableError: the store cannot tell now.
    """
    _, as_of = await task_queries.begun_at(store, place.as_of)
    query = (task_queries.finished if wanted.statuses <= FINAL else task_queries.live)(wanted, as_of)
    if not wanted.attributes:
        return BulkPage(await task_queries.count(store, query), more=False, place=Place(as_of))
    page = await task_queries.page_after(store, query, wanted, place.after, _MOST_COUNTED)
    return BulkPage(len(page.ids), page.more, Place(as_of, page.after))
