"""The audit log: entries are added and read; only retention removes them."""

from datetime import datetime

from duly_core.access.audit_entries import AuditEntry, AuditEvent
from duly_core.access.statements import ACCESS
from duly_core.postgres.pool import Store
from duly_core.traffic.group_commit import GroupCommit

_ADD = ACCESS["add_audit_events"].sql.encode()

_LIST = ACCESS["list_audit_events"].sql.encode()


class StoredAuditLog:
    """Writes entries in groups: what comes while one statement runs goes into the next."""

    def __init__(self, store: Store) -> None:
        self._store = store
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
        async with self._store.connection() as connection, connection.cursor() as cursor:
            await cursor.execute(_ADD, columns)
        return [None] * len(entries)


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
