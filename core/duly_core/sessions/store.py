"""Read sessions, and end their blocks. Tasks enter a session in schedule.py; each end moves it on (fragments.sql)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from duly_core.access.current import scheduler
from duly_core.lambdas.session_names import SessionId
from duly_core.postgres.arrays import texts, uuids
from duly_core.postgres.pool import Store, fetch
from duly_core.postgres.statements import LOCKS, READS, TRANSITIONS
from duly_core.tasks.lifecycle import Status
from duly_wire.ids import TaskId

_ANY = bytes(16)
_FIRST, _LAST = "", "~"
"""What the store calls sessions lies between them, in the order of code points."""
_BEHIND_MARK = "0"
"""Follows the slash that ends a namespace, in the same order."""


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session that has live tasks or is blocked."""

    session_id: SessionId
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


async def get_sessions(
    store: Store, wanted: Collection[SessionId], tasks: int
) -> dict[SessionId, SessionState]:
    """Return sessions, each with up to `tasks` of its waiting tasks; one without live tasks is left out.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await store.run(READS["sessions"], {"keys": texts(_names(wanted)), "tasks": tasks})
    states = [
        SessionState(
            SessionId.parse(name),
            length,
            head,
            status and Status(status),
            blocked_by,
            blocked_at,
            doomed,
            tuple(waiting),
        )
        for name, length, head, status, blocked_by, blocked_at, doomed, waiting in rows
    ]
    return {state.session_id: state for state in states}


async def list_sessions(
    store: Store, *, namespace: str | None = None, after: str, blocked: bool, limit: int
) -> list[SessionState]:
    """Return up to `limit` sessions, by what the store calls them, from behind `after` on.

    Args:
        store: has them.
        namespace: only those of this namespace; empty: of the default one. None: of all.
        after: what the store calls the last session of the page before (`str(SessionId)`); empty: from the first one.
        blocked: only those that are blocked.
        limit: how many at most.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    first, last = (_FIRST, _LAST) if namespace is None else (f"{namespace}/", f"{namespace}{_BEHIND_MARK}")
    between = {"after": max(after, first), "before": last}
    rows = await store.run(READS["session_keys"], {**between, "blocked": blocked, "limit": limit})
    found = await get_sessions(store, [SessionId.parse(row[0]) for row in rows], tasks=0)
    return [found[each] for each in sorted(found, key=str)]


async def count_blocked(store: Store, limit: int) -> int:
    """Return how many sessions are blocked, `limit` at most.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    ((count,),) = await store.run(READS["blocked_sessions"], {"limit": limit})
    return int(count)


class Unblocked(NamedTuple):
    """What came of a call to end the blocks of sessions. A session in neither was not blocked, or fails."""

    now: set[SessionId]
    before: set[SessionId]
    """Of those whose block was named: the task failed for good in this session, and does not block it any more."""


async def unblock_sessions(
    store: Store, wanted: Collection[SessionId], blocked_by: Mapping[SessionId, TaskId] | None = None
) -> Unblocked:
    """End the blocks of sessions.

    `blocked_by` names the task of a session whose block is to end: another block is left alone.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again. What was unblocked is not blocked then.
    """
    named = {str(session): task_id for session, task_id in (blocked_by or {}).items()}
    asked = _names(wanted)
    async with store.connection() as connection, connection.transaction():
        parameters = {"keys": texts(asked), "blocked_by": uuids(named.get(name, _ANY) for name in asked)}
        found = sorted(row[0] for row in await fetch(connection, LOCKS["lock_blocked"], parameters))
        rows = (
            await fetch(
                connection, TRANSITIONS["unblock_sessions"], {"keys": texts(found), "by": scheduler()}
            )
            if found
            else []
        )
    return Unblocked(
        {SessionId.parse(row[0]) for row in rows},
        await _blocked_before(store, {name: named[name] for name in named.keys() - set(found)}),
    )


async def _blocked_before(store: Store, named: Mapping[str, TaskId]) -> set[SessionId]:
    """Return those of these sessions that the tasks may have blocked."""
    if not named:
        return set()
    parameters = {"keys": texts(list(named)), "task_ids": uuids(named.values())}
    return {SessionId.parse(row[0]) for row in await store.run(READS["former_blockers"], parameters)}


def _names(sessions: Collection[SessionId]) -> list[str]:
    """Return what the store calls these sessions, each once, in the order in which they are locked."""
    return sorted({str(session) for session in sessions})
