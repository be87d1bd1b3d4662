"""End, change or release tasks that wait in sessions or graphs, or for resources."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from psycopg.rows import TupleRow

from duly_core.access.current import scheduler
from duly_core.errors import StatementTimeoutError
from duly_core.postgres.arrays import uuids
from duly_core.postgres.pool import Store, fetch
from duly_core.postgres.statements import LOCKS, TRANSITIONS, load
from duly_wire.ids import TaskId

_RELEASE_SKIPPED = load("limits/limits.sql")["release_skipped"]
_FEWER = 50
ENTERS = timedelta(days=-1)
"""How far ahead nodes that are to enter their sessions are \"due\", by what released them (duly_advance_graphs)."""
IN_NO_SESSION_YET = "session:"
"""What a node that may run is parked on until it is in its session."""
ENTERING = 500
"""Nodes that enter their sessions at a time."""


async def cancel_waiting(store: Store, task_ids: Sequence[TaskId]) -> list[TupleRow]:
    """Cancel those of these tasks that wait; return the rows of the statement.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    return await _end(store, "lock_waiting", {"task_ids": uuids(sorted(task_ids))}, "cancel_waiting")


async def end_waiting(store: Store, limit: int) -> list[TupleRow]:
    """End up to `limit` of the waiting tasks that are to end without a run; return the rows of the statement.

    Fewer, if so many ends take too long: they may release, or skip, many others.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    try:
        return await _end(store, "lock_over", {"limit": limit}, "end_waiting")
    except StatementTimeoutError:
        return await _end(store, "lock_over", {"limit": max(1, limit // _FEWER)}, "end_waiting")


async def release_skipped(store: Store, limit: int) -> frozenset[str]:
    """Release parked tasks that an end passed over, of up to `limit` resources or keys; return the lambdas.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    return frozenset(row[0] for row in await store.run(_RELEASE_SKIPPED, {"limit": limit}))


async def change_waiting(
    store: Store, task_ids: Collection[TaskId], parameters: Callable[[Sequence[TaskId]], Mapping[str, Any]]
) -> list[TupleRow]:
    """Change those of these tasks that wait; return the rows of the statement.

    `parameters` makes those of the statement (`update_waiting`), for the tasks that it is given.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    which = {"task_ids": uuids(sorted(task_ids))}
    return await _locked(store, "lock_waiting", which, "update_waiting", lambda found, _: parameters(found))


async def _end(store: Store, lock: str, which: Mapping[str, Any], end: str) -> list[TupleRow]:
    return await _locked(
        store,
        lock,
        which,
        end,
        lambda task_ids, without_session: {
            "task_ids": uuids(task_ids),
            "without_session": uuids(without_session),
            "by": scheduler(),
        },
    )


async def _locked(
    store: Store,
    lock: str,
    which: Mapping[str, Any],
    move: str,
    parameters: Callable[[Sequence[TaskId], Sequence[TaskId]], Mapping[str, Any]],
) -> list[TupleRow]:
    """Lock sessions and graphs, then end or change the tasks.

    One statement would see the tasks as they were before it waited for a lock. It would wait for tasks that run now,
    while their ends wait for the same session.
    """
    async with store.connection() as connection, connection.transaction():
        found = await fetch(connection, LOCKS[lock], which)
        if not found:
            return []
        task_ids = sorted(row[0] for row in found)
        without_session = sorted(row[0] for row in found if row[1])
        return await fetch(connection, TRANSITIONS[move], parameters(task_ids, without_session))


async def enter_sessions(store: Store, limit: int = ENTERING) -> dict[str, timedelta]:
    """Put up to `limit` nodes that may run into their sessions; return the lambdas of those that are due, and how far ahead the first of each is.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    return dict(await store.run(TRANSITIONS["enter_nodes"], {"limit": limit}))
