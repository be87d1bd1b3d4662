"""The audit log: entries are added and read; only retention removes them."""

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import datetime, timedelta

from duly_core.access.audit_entries import AuditEntry, AuditEvent
from duly_core.access.statements import ACCESS
from duly_core.errors import StoreUnavailableError
from duly_core.postgres.pool import Store, StoreNow, store_now
from duly_core.traffic.group_commit import GroupCommit

_ADD = ACCESS["add_audit_events"].sql.encode()

_PATIENCE = timedelta(seconds=2)
"""How long a cell may take where another one can have the entry."""

_LIST = ACCESS["list_audit_events"].sql.encode()


class StoredAuditLog:
    """Writes entries in groups: what comes while one statement runs goes into the next."""

    def __init__(self, store: Store | StoreNow) -> None:
        self._store = store_now(store)
        self._write = GroupCommit(self._write_group, max_items=200)

    async def record(self, entry: AuditEntry) -> None:
        """Store an entry.

        Raises:
            StoreUnavailableError: it could not be stored.
        """
        await self._write([entry])

    async def _write_group(self, entries: list[AuditEntry]) -> list[None]:
        columns = [
            [entry.actor.replace("\x00", "") for entry in entries],
            [entry.peer for entry in entries],
            [entry.method for entry in entries],
            [entry.outcome for entry in entries],
            [entry.request.replace("\x00", "") for entry in entries],
            [entry.answer.replace("\x00", "") for entry in entries],
        ]
        async with self._store().connection() as connection, connection.cursor() as cursor:
            await cursor.execute(_ADD, columns)
        return [None] * len(entries)


_concerned: ContextVar[str] = ContextVar("concerned cell", default="")


def set_concerned(cell: str) -> None:
    """Say in which cell the rest of this call belongs into the audit log."""
    _concerned.set(cell)


class CellsAuditLog:
    """Writes each entry into one cell: that which the call concerned, else the own one; if it is away, into another."""

    def __init__(self, own: StoredAuditLog, logs: Callable[[], Mapping[str, StoredAuditLog]]) -> None:
        """Make one.

        Args:
            own: of the own cell.
            logs: returns those of the cells that answer, by the names of the cells.
        """
        self._own = own
        self._logs = logs

    async def record(self, entry: AuditEntry) -> None:
        """Store an entry.

        Raises:
            StoreUnavailableError: no cell stored it.
        """
        logs = dict(self._logs())
        concerned = logs.pop(_concerned.get(), None)
        failure: StoreUnavailableError | None = None
        for log in ([concerned] if concerned else []) + [self._own, *logs.values()]:
            try:
                async with asyncio.timeout(_PATIENCE.total_seconds()):
                    await log.record(entry)
            except TimeoutError:
                failure = failure or StoreUnavailableError("the audit log does not answer")
            except StoreUnavailableError as error:
                failure = failure or error
            else:
                return
        raise failure or StoreUnavailableError("no cell has an audit log")


async def list_events(
    store: Store,
    *,
    before: int,
    limit: int,
    actor: str = "",
    method: str = "",
    mentions: str = "",
    since: datetime | None = None,
    refused: bool = False,
) -> list[AuditEvent]:
    """Return events, the newest first.

    Args:
        store: has them.
        before: events with a smaller id only.
        limit: how many at most.
        actor: of this principal only.
        method: of methods whose name ends so only.
        mentions: whose request has this text only, such as a task's id or a lambda.
        since: not older than this.
        refused: only calls that were refused for want of a role.
    """
    async with store.connection() as connection, connection.cursor() as cursor:
        await cursor.execute(
            _LIST,
            {
                "before": before,
                "limit": limit,
                "actor": actor,
                "method": method,
                "mentions": mentions,
                "since": since,
                "refused": refused,
            },
        )
        rows = await cursor.fetchall()
    return [AuditEvent(row[0], row[1], AuditEntry(*row[2:])) for row in rows]
