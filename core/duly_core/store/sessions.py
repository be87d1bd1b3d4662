"""Read sessions, and end their blocks. Tasks enter a session in schedule.py; each end moves it on (fragments.sql)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from duly_core.lifecycle import Status
from duly_core.store.arrays import texts
from duly_core.store.pool import Store
from duly_core.store.statements import READS, TRANSITIONS
from duly_core.task import TaskId


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


async def unblock_sessions(store: Store, keys: Sequence[str]) -> set[str]:
    """End the blocks of sessions; return the keys of those that were blocked.

    Raises:
        StoreUnavailableError: the outcome is unknown; asked again, what was unblocked is not blocked.
    """
    rows = await store.run(TRANSITIONS["unblock_sessions"], {"keys": texts(sorted(set(keys)))})
    return {row[0] for row in rows}
