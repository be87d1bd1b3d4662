"""How one partition leaves: its keys, a list of what outlives it, and then the drop, which alone holds anybody up."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import sql
from psycopg.rows import TupleRow

from duly_core.postgres.pool import Connection
from duly_core.postgres.statements import load
from duly_core.upkeep.partitions import MOST_MOVED, MOST_MOVED_BYTES, Partition

STATEMENTS = load("upkeep/retention.sql")

PAGE = 1_000
PAGES_A_ROUND = 50
LOWEST = UUID(int=0)

Turn = Callable[[], AbstractAsyncContextManager[Connection]]
"""A transaction in which nobody else tidies."""


class TooManyError(Exception):
    """More outlive the partition than others can be kept waiting for."""


class PartitionDrop:
    """`look` is called until all is `through`; then `drop`, if it is `light`. Nothing is locked until then."""

    def __init__(self, partition: Partition, begun_at: datetime) -> None:
        self.begun_at = begun_at
        self.through = False
        """All of it was looked at."""
        self._partition = partition
        self._keys_after = UUID(int=max(0, partition.lowest.int - 1))
        self._keys_left = True
        self._after = LOWEST
        self._survivors: set[UUID] = set()
        self._bytes = 0

    @property
    def light(self) -> bool:
        """Whether what outlives the partition is moved soon enough for others to wait."""
        return len(self._survivors) <= MOST_MOVED and self._bytes <= MOST_MOVED_BYTES

    async def look(self, turn: Turn, limits: dict[str, Any]) -> None:
        """Go on, some pages.

        Limits may have moved between two pages: what has left by the earlier ones has left by the later ones, too.
        """
        for _ in range(PAGES_A_ROUND):
            if self._keys_left:
                await self._forget_keys(turn, limits)
                continue
            async with turn() as connection:
                page = await run(
                    connection, "survivors", limits | {"after": self._after, "limit": PAGE}, self._partition
                )
            for task_id, size in page:
                if size is not None:
                    self._survivors.add(UUID(bytes=task_id))
                    self._bytes += size
            self.through = len(page) < PAGE or not self.light
            if self.through:
                return
            self._after = UUID(bytes=page[-1][0])

    async def _forget_keys(self, turn: Turn, limits: dict[str, Any]) -> None:
        """Most of them before the drop, so that it has few left to remove."""
        bounds = {"after": self._keys_after, "end": self._partition.end, "limit": PAGE}
        async with turn() as connection:
            page = await run(connection, "expired_keys", limits | bounds)
        self._keys_left = len(page) == PAGE
        if page:
            self._keys_after = UUID(bytes=page[-1][0])

    async def drop(self, connection: Connection) -> int:
        """Take the partition out, put the survivors where their ids are at home from now on, and drop it.

        Answers how many they were. What came alive since the look, by a redrive or under an old id, is among them.

        Raises:
            TooManyError: nothing was done, if this transaction is rolled back.
        """
        partition = self._partition
        cursor = await connection.execute(
            "select duly_drop_partition(%s, %s, %s, %s, %s)",
            (partition.name, partition.lowest, partition.end, list(self._survivors), MOST_MOVED),
        )
        ((moved,),) = await cursor.fetchall()
        if moved is None:
            raise TooManyError
        return int(moved)


async def run(
    connection: Connection,
    name: str,
    parameters: dict[str, Any] | None,
    partition: Partition | None = None,
) -> list[TupleRow]:
    """Run a statement, by its name or as it is, over a partition."""
    text = sql.SQL(STATEMENTS[name].sql if name in STATEMENTS else name)
    names = {parent: partition.table(parent) for parent in ("task", "attempt")} if partition else {}
    cursor = connection.cursor(binary=True)
    await cursor.execute(text.format(**names), parameters)
    return await cursor.fetchall() if cursor.description else []
