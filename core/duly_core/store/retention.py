"""Finished tasks are kept for a time and leave by whole partitions; what outlives its partition is moved first."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg import sql
from psycopg.rows import TupleRow

from duly_core.errors import RowLockedError
from duly_core.store.partitions import MOST_MOVED, REST, Partition, add, list_partitions, missing
from duly_core.store.pool import Connection, Store
from duly_core.store.statements import load

STATEMENTS = load("retention.sql")

_LOCK = 0x64756C7A
"""The advisory lock of whoever tidies: one of all Store Consumers."""

_AHEAD = 3
_PAGE = 1_000
_PAGES_A_ROUND = 50
_ROUND_EVERY = timedelta(minutes=1)
_AT_ONCE = timedelta(milliseconds=100)
_THINNED_EVERY = timedelta(hours=1)
_LOCK_TIMEOUT = "200ms"
"""So long the task path may stand behind us while we wait for a table; then we come back later."""

_NONE = UUID(int=0)


@dataclass(slots=True)
class Tidied:
    """What a round did."""

    added: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    moved: int = 0
    """Tasks that outlived their partition."""
    removed: int = 0
    """Tasks that were removed one by one."""
    locked: bool = False
    """A table was held by somebody for too long; the rest of the round is for another time."""
    pause: timedelta = _ROUND_EVERY


class _NotOursError(Exception):
    """Another Store Consumer tidies at this moment."""


class Tidier:
    """`run_once` is a round; of all replicas one does it, the others find the lock taken."""

    def __init__(
        self, store: Store, retention: timedelta, dead_letter_retention: timedelta, span: timedelta
    ) -> None:
        """Make one: how long tasks are kept after their end, and how much time a partition holds."""
        self._store = store
        self._retention = retention
        self._dead_letter_retention = dead_letter_retention
        self._span = span
        self._walked: dict[str, tuple[UUID, datetime | None]] = {}
        """Where the walk through each partition that stays has come to, and when it was through."""

    async def run_once(self) -> Tidied:
        """Add partitions, remove what was kept for its time; bounded, so that a round is short.

        Raises:
            StoreUnavailableError: the round was not completed.
        """
        done = Tidied()
        try:
            async with self._turn() as connection:
                now = await _now(connection)
                there = await list_partitions(connection)
            for partition in missing(there, now, self._span, _AHEAD):
                async with self._turn() as connection:
                    if await add(connection, partition):
                        done.added.append(partition.name)
            limits = {
                "ended_before": now - self._retention,
                "dead_before": now - self._dead_letter_retention,
            }
            await self._forget_dead_letters(limits)
            for partition in there:
                if partition.ends_at <= now - min(self._retention, self._dead_letter_retention):
                    await self._remove(partition, limits, now, done)
            await self._thin(REST, limits, now, done)
        except RowLockedError:
            done.locked = True
        except _NotOursError:
            pass
        return done

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[Connection]:
        """A transaction in which nobody else tidies."""
        async with self._store.connection() as connection, connection.transaction():
            cursor = await connection.execute("select pg_try_advisory_xact_lock(%s)", (_LOCK,))
            if await cursor.fetchone() != (True,):
                raise _NotOursError
            await connection.execute(f"set local lock_timeout = '{_LOCK_TIMEOUT}'")
            yield connection

    async def _forget_dead_letters(self, limits: dict[str, Any]) -> None:
        for _ in range(_PAGES_A_ROUND):
            async with self._turn() as connection:
                page = await _run(connection, "expired_dead_letters", limits | {"limit": _PAGE})
            if len(page) < _PAGE:
                return

    async def _remove(
        self, partition: Partition, limits: dict[str, Any], now: datetime, done: Tidied
    ) -> None:
        """Drop a partition, unless too many of its tasks outlive it: then it stays, and is thinned out."""
        walked_at = self._walked.get(partition.name, (_NONE, None))[1]
        if walked_at is not None and now - walked_at < _THINNED_EVERY:
            return
        # keys first: a key whose task is gone would keep its name taken for nothing
        if walked_at is None and not await self._forget_keys(partition, limits):
            done.pause = _AT_ONCE
            return
        async with self._turn() as connection:
            # what ends or is written here meanwhile waits: the list must be whole
            await connection.execute(sql.SQL("lock table {} in share mode").format(partition.table("task")))
            await connection.execute("set local enable_seqscan = on")
            survivors = [
                row[0]
                for row in await _run(connection, "survivors", limits | {"limit": MOST_MOVED + 1}, partition)
            ]
            if len(survivors) <= MOST_MOVED:
                await _drop(connection, partition, survivors)
                done.dropped.append(partition.name)
                done.moved += len(survivors)
                return
        await self._thin(partition.name, limits, now, done)

    async def _forget_keys(self, partition: Partition, limits: dict[str, Any]) -> bool:
        """Remove the keys of tasks that leave with this partition; False: there are more."""
        after = self._walked.get(
            f"keys of {partition.name}", (UUID(int=max(0, partition.lowest.int - 1)), None)
        )[0]
        for _ in range(_PAGES_A_ROUND):
            bounds = {"after": after, "end": partition.end, "limit": _PAGE}
            async with self._turn() as connection:
                page = await _run(connection, "expired_keys", limits | bounds)
            if len(page) < _PAGE:
                self._walked.pop(f"keys of {partition.name}", None)
                return True
            after = UUID(bytes=page[-1][0])
            self._walked[f"keys of {partition.name}"] = (after, None)
        return False

    async def _thin(self, name: str, limits: dict[str, Any], now: datetime, done: Tidied) -> None:
        """Remove rows one by one, some pages a round."""
        after, walked_at = self._walked.get(name, (_NONE, None))
        if walked_at is not None and now - walked_at < _THINNED_EVERY:
            return
        partition = Partition(name, _NONE, _NONE)
        for _ in range(_PAGES_A_ROUND):
            async with self._turn() as connection:
                page = await _run(connection, "thin", limits | {"after": after, "limit": _PAGE}, partition)
            done.removed += sum(1 for _, gone in page if gone)
            if len(page) < _PAGE:
                self._walked[name] = (_NONE, now)
                return
            after = UUID(bytes=page[-1][0])
            self._walked[name] = (after, None)
        done.pause = _AT_ONCE


async def _now(connection: Connection) -> datetime:
    cursor = await connection.execute("select duly_now()")
    ((now,),) = await cursor.fetchall()
    asked_at: datetime = now
    return asked_at


async def _run(
    connection: Connection, name: str, parameters: dict[str, Any], partition: Partition | None = None
) -> list[TupleRow]:
    text = sql.SQL(STATEMENTS[name].sql)
    names = {parent: partition.table(parent) for parent in ("task", "attempt")} if partition else {}
    cursor = connection.cursor(binary=True)
    await cursor.execute(text.format(**names), parameters)
    return await cursor.fetchall()


async def _drop(connection: Connection, partition: Partition, survivors: list[bytes]) -> None:
    """Take the partition out, put the survivors where their ids are at home from now on, and drop it."""
    ids = [UUID(bytes=task_id) for task_id in survivors]
    names = {f"{parent}_old": partition.table(parent) for parent in ("task", "attempt")}
    for step in (
        "alter table task detach partition {task_old}",
        "alter table attempt detach partition {attempt_old}",
        "insert into task select * from {task_old} where task_id = any(%(ids)s)",
        "insert into attempt select * from {attempt_old} where task_id = any(%(ids)s)",
        "drop table {task_old}, {attempt_old}",
    ):
        await connection.execute(
            sql.SQL(step).format(**names),
            {"ids": ids} if "%(ids)s" in step else None,
        )
