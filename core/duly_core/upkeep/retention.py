"""Finished tasks are kept for a time and leave by whole partitions; what outlives its partition is moved first."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from duly_core.errors import RowLockedError, StoreUnavailableError
from duly_core.postgres.pool import Connection, Store
from duly_core.postgres.session_options import PLANNED_ANEW
from duly_core.process.clock import since_boot_ns
from duly_core.upkeep.partition_drop import LOWEST, PAGE, PAGES_A_ROUND, PartitionDrop, TooManyError, run
from duly_core.upkeep.partitions import (
    MOST_READ_BYTES,
    REST,
    Partition,
    add,
    list_partitions,
    missing,
    rest_bytes,
)
from duly_core.upkeep.store_clock import ClockWatch

_TAKE_TURN = b"select true from turn where name = 'upkeep' for update skip locked"
"""Locks the row of whoever tidies: one of all Store Consumers."""

_AHEAD = 7
"""Spans: nobody need tidy for so long before rows go to the default partition."""
_ROUND_EVERY = timedelta(minutes=1)
_AT_ONCE = timedelta(milliseconds=100)
_THINNED_EVERY = timedelta(hours=1)
_REPORTS_KEPT = timedelta(days=1)
"""Of hosts and services that ended: long enough to see what was there in an incident."""
_LOOK_HOLDS = timedelta(hours=1)
"""So long a partition that was looked through may wait for its lock, before it is looked through again."""
_LOCK_TIMEOUT = "200ms"
"""So long the task path may stand behind us while we wait for a table; then we come back later."""


@dataclass(slots=True)
class RetentionRound:
    """What a round did."""

    added: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    moved: int = 0
    """Tasks that outlived their partition."""
    removed: int = 0
    """Tasks that were removed one by one."""
    locked: bool = False
    """A table was held by somebody for too long; the rest of the round is for another time."""
    rest_bytes: int | None = None
    """The size of the default partition, payloads apart; None: another tidied."""
    crowded: bool = False
    """No partition was made: the default one is too large to be read while others wait."""
    clock_stepped: timedelta | None = None
    """The store's clock went ahead by so much of a sudden: nothing is removed by it yet."""
    pause: timedelta = _ROUND_EVERY


class _NotOursError(Exception):
    """Another Store Consumer tidies at this moment."""


class Retention:
    """`run_once` is a round; of all replicas one does it, the others find the lock taken."""

    def __init__(
        self,
        store: Store,
        retention: timedelta,
        dead_letter_retention: timedelta,
        span: timedelta,
        since_boot: Callable[[], int] = since_boot_ns,
        *,
        audit_retention: timedelta = timedelta(days=365),
    ) -> None:
        """Make one: how long tasks are kept after their end, and audit events; how much time a partition holds."""
        self._audit_retention = audit_retention
        self._store = store
        self._retention = retention
        self._dead_letter_retention = dead_letter_retention
        self._span = span
        self._walked: dict[str, tuple[UUID, datetime | None]] = {}
        """Where the walk through each partition that stays has come to, and when it was through."""
        self._dropping: dict[str, PartitionDrop] = {}
        self._walks: dict[str, tuple[UUID, datetime | None]] = {}
        """By statement: behind which task its walk goes on, or when it came to the end."""
        """The same of the walk through the unique keys."""
        self._clock = ClockWatch(since_boot)

    def keep(self, retention: timedelta, dead_letter_retention: timedelta) -> None:
        """Keep tasks, and dead letters, for so long from the next round on."""
        if (retention, dead_letter_retention) != (self._retention, self._dead_letter_retention):
            self._retention, self._dead_letter_retention = retention, dead_letter_retention
            # what was found out about partitions held for the times before
            self._walked.clear()
            self._walks.clear()
            self._dropping.clear()

    async def run_once(self) -> RetentionRound:
        """Add partitions, remove what was kept for its time; bounded, so that a round is short.

        Raises:
            StoreUnavailableError: the round was not completed.
        """
        done = RetentionRound()
        try:
            async with self._turn() as connection:
                now = await _now(connection)
                there = await list_partitions(connection)
                done.rest_bytes = size = await rest_bytes(connection)
            wanted = missing(there, now, self._span, _AHEAD)
            done.crowded = bool(wanted) and size > MOST_READ_BYTES
            for partition in () if done.crowded else wanted:
                async with self._turn() as connection:
                    if await add(connection, partition):
                        done.added.append(partition.name)
            done.clock_stepped = self._clock.doubt(now)
            if done.clock_stepped is None:
                await self._remove_all(there, now, done)
        except RowLockedError:
            done.locked = True
        except _NotOursError:
            pass
        return done

    async def _remove_all(self, there: list[Partition], now: datetime, done: RetentionRound) -> None:
        limits = {
            "ended_before": now - self._retention,
            "dead_before": now - self._dead_letter_retention,
        }
        await self._forget("expired_dead_letters", limits, done)
        await self._forget("abandoned_sessions", limits, done)
        await self._forget("expired_graphs", limits, done)
        await self._forget("idle_resource_keys", limits, done)
        await self._forget("old_merged_tasks", {}, done)
        await self._walk("unique_keys_without_tasks", limits, now, done)
        await self._walk("attributes_without_tasks", limits, now, done)
        await self._forget("expired_events", {}, done)
        await self._walk("ended_event_waits", {}, now, done)
        await self._forget("idle_event_keys", {}, done)
        await self._forget("settled_operator_changes", {}, done)
        reported = {"reported_before": now - _REPORTS_KEPT}
        await self._forget("ended_hosts", reported, done)
        await self._forget("ended_services", reported, done)
        await self._forget_audit_events(now - self._audit_retention, done)
        problem: StoreUnavailableError | None = None
        for partition in there:
            if partition.ends_at > now - min(self._retention, self._dead_letter_retention):
                continue
            try:
                await self._remove(partition, limits, now, done)
            except RowLockedError:
                raise  # whoever holds it holds up the others, too; each try costs the task path a wait
            except StoreUnavailableError as error:
                problem = error  # a partition that is too much for its time must not keep the others
        await self._thin(REST, limits, now, done)
        if problem is not None:
            raise problem

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[Connection]:
        """A transaction in which nobody else tidies."""
        async with self._store.connection() as connection, connection.transaction():
            cursor = await connection.execute(_TAKE_TURN)
            if await cursor.fetchone() != (True,):
                raise _NotOursError
            await connection.execute(f"set local lock_timeout = '{_LOCK_TIMEOUT}'")
            await connection.execute(PLANNED_ANEW)
            yield connection

    async def _forget(self, name: str, limits: dict[str, Any], done: RetentionRound) -> None:
        """Remove what a statement finds, some pages a round."""
        for _ in range(PAGES_A_ROUND):
            async with self._turn() as connection:
                page = await run(connection, name, limits | {"limit": PAGE})
            if not page:
                return
        done.pause = _AT_ONCE  # such rows may be made faster than so many a minute

    async def _walk(self, name: str, limits: dict[str, Any], now: datetime, done: RetentionRound) -> None:
        """Let a statement look at its whole table in the order of tasks, some pages a round, and then rest for a while."""
        after, walked_at = self._walks.get(name, (LOWEST, None))
        if walked_at is not None and now - walked_at < _THINNED_EVERY:
            return
        for _ in range(PAGES_A_ROUND):
            async with self._turn() as connection:
                page = await run(connection, name, limits | {"after": after, "limit": PAGE})
            if len(page) < PAGE:
                self._walks[name] = LOWEST, now
                return
            after = UUID(bytes=page[-1][0])
            self._walks[name] = after, None
        done.pause = _AT_ONCE

    async def _forget_audit_events(self, before: datetime, done: RetentionRound) -> None:
        for _ in range(PAGES_A_ROUND):
            async with self._turn() as connection:
                cursor = await connection.execute("select duly_forget_audit_events(%s, %s)", (before, PAGE))
                ((forgotten,),) = await cursor.fetchall()
            if not forgotten:
                return
        done.pause = _AT_ONCE

    async def _remove(
        self, partition: Partition, limits: dict[str, Any], now: datetime, done: RetentionRound
    ) -> None:
        """Drop a partition, unless too many of its tasks outlive it: then it stays, and is thinned out."""
        name = partition.name
        thinned_to, walked_at = self._walked.get(name, (LOWEST, None))
        if walked_at is not None and now - walked_at < _THINNED_EVERY:
            return
        if thinned_to == LOWEST:
            dropping = self._dropping.get(name)
            if dropping is None or (dropping.through and now - dropping.begun_at > _LOOK_HOLDS):
                dropping = self._dropping[name] = PartitionDrop(partition, now)
            if not dropping.through:
                await dropping.look(self._turn, limits)
            if not dropping.through:
                done.pause = _AT_ONCE
                return
            if dropping.light:
                with suppress(TooManyError):
                    async with self._turn() as connection:
                        moved = await dropping.drop(connection)
                    del self._dropping[name]
                    done.dropped.append(name)
                    done.moved += moved
                    self._walked.pop(name, None)
                    return
            del self._dropping[name]
        await self._thin(name, limits, now, done)

    async def _thin(self, name: str, limits: dict[str, Any], now: datetime, done: RetentionRound) -> None:
        """Remove rows one by one, some pages a round."""
        after, walked_at = self._walked.get(name, (LOWEST, None))
        if walked_at is not None and now - walked_at < _THINNED_EVERY:
            return
        partition = Partition(name, LOWEST, LOWEST)
        for _ in range(PAGES_A_ROUND):
            async with self._turn() as connection:
                page = await run(connection, "thin", limits | {"after": after, "limit": PAGE}, partition)
            done.removed += sum(1 for _, gone in page if gone)
            if len(page) < PAGE:
                self._walked[name] = (LOWEST, now)
                return
            after = UUID(bytes=page[-1][0])
            self._walked[name] = (after, None)
        done.pause = _AT_ONCE


async def _now(connection: Connection) -> datetime:
    cursor = await connection.execute("select duly_now()")
    ((now,),) = await cursor.fetchall()
    asked_at: datetime = now
    return asked_at
