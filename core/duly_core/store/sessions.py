"""Read sessions, and end their blocks. Tasks enter a session in schedule.py; each end moves it on (fragments.sql)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from duly_core.access.current import scheduler
from duly_core.lifecycle import Status
from duly_core.store.arrays import texts, uuids
from duly_core.store.pool import Store, fetch
from duly_core.store.statements import LOCKS, READS, TRANSITIONS
from duly_core.task import TaskId

_ANY = bytes(16)


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session that has live tasks or is blocked."""

    key: str
    length: int
    """Tasks that have not ended."""
    head: TaskId | None
    """The one task that may run; None while the session is blocked."""
    head_status: Status | None
    blocked_by: TaskId | None
    """The dead letter that blocks the session, or whose failure ends the tasks that wait."""
    blocked_at: datetime | None
    failing: int
    """Tasks that end because of that failure, without a run."""
    waiting: tuple[TaskId, ...]
    """Those that run next, in their order; as many as were asked for."""


async def get_sessions(store: Store, keys: Sequence[str], tasks: int) -> dict[str, SessionState]:
    """Return sessions by key, each with up to `tasks` of its waiting tasks; one without live tasks is left out.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await store.run(READS["sessions"], {"keys": texts(sorted(set(keys))), "tasks": tasks})
    return {
        key: SessionState(
            key, length, head, status and Status(status), blocked_by, blocked_at, doomed, tuple(waiting)
        )
        for key, length, head, status, blocked_by, blocked_at, doomed, waiting in rows
    }


async def list_sessions(store: Store, *, after: str, blocked: bool, limit: int) -> list[SessionState]:
    """Return up to `limit` sessions by key, from behind `after` on.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await store.run(READS["session_keys"], {"after": after, "blocked": blocked, "limit": limit})
    found = await get_sessions(store, [row[0] for row in rows], tasks=0)
    return [found[key] for key in sorted(found)]


async def count_blocked(store: Store, limit: int) -> int:
    """Return how many sessions are blocked, `limit` at most.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    ((count,),) = await store.run(READS["blocked_sessions"], {"limit": limit})
    return int(count)


class Unblocked(NamedTuple):
    """What came of a call to end the blocks of sessions, by key. A session in neither was not blocked, or fails."""

    now: set[str]
    before: set[str]
    """Of those whose block was named: the task failed for good in this session, and does not block it any more."""


async def unblock_sessions(
    store: Store, keys: Sequence[str], blocked_by: Mapping[str, TaskId] | None = None
) -> Unblocked:
    """End the blocks of sessions.

    `blocked_by` names the task of a session whose block is to end: another block is left alone.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again. What was unblocked is not blocked then.
    """
    named = blocked_by or {}
    asked = sorted(set(keys))
    async with store.connection() as connection, connection.transaction():
        parameters = {"keys": texts(asked), "blocked_by": uuids(named.get(key, _ANY) for key in asked)}
        found = sorted(row[0] for row in await fetch(connection, LOCKS["lock_blocked"], parameters))
        rows = (
            await fetch(
                connection, TRANSITIONS["unblock_sessions"], {"keys": texts(found), "by": scheduler()}
            )
            if found
            else []
        )
    return Unblocked(
        {row[0] for row in rows},
        await _blocked_before(store, {key: named[key] for key in named.keys() - set(found)}),
    )


async def _blocked_before(store: Store, named: Mapping[str, TaskId]) -> set[str]:
    """Return the keys of those sessions that these tasks may have blocked."""
    if not named:
        return set()
    parameters = {"keys": texts(list(named)), "task_ids": uuids(named.values())}
    return {row[0] for row in await store.run(READS["former_blockers"], parameters)}
