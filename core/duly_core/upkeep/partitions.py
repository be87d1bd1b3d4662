"""The partitions of `task` and `attempt`: which there are, and how one is added.

A task id is a UUIDv7 and begins with milliseconds since 1970, so a partition is a range of ids and of time. Ids that are in
no partition are in the default one, `task_rest`: nothing fails for want of a partition.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from psycopg import sql

from duly_core.postgres.pool import Connection
from duly_core.postgres.statements import load

REST = "rest"
"""The default partition."""

MOST_MOVED = 5_000
"""Rows that are moved while others wait: a quarter of a second or so."""

MOST_MOVED_BYTES = 32 << 20
"""The same of payloads, results and history."""

MOST_READ_BYTES = 64 << 20
"""Of the default partition, while others wait; its payloads are not read."""

_TIME_BITS = 80
"""Of an id, those below its milliseconds."""

_PARTITIONS = load("upkeep/partitions.sql")
_LIST = _PARTITIONS["list_partitions"].sql
_COUNT = _PARTITIONS["count_strays"].sql
_RANGE = re.compile(r"FROM \((?:MINVALUE|'([0-9a-f-]+)')\) TO \('([0-9a-f-]+)'\)")


@dataclass(frozen=True, slots=True)
class Partition:
    """A range of ids."""

    name: str
    """What follows `task_` and `attempt_`."""
    lowest: UUID
    end: UUID
    """The first id that is not in it."""

    @property
    def ends_at(self) -> datetime:
        """When the last of its ids was made."""
        return instant_of(self.end)

    def table(self, parent: str) -> sql.Identifier:
        """Its part of `task` or `attempt`."""
        return sql.Identifier(f"{parent}_{self.name}")


def first_id(instant: datetime) -> UUID:
    """The lowest id of an instant."""
    return UUID(int=round(instant.timestamp() * 1000) << _TIME_BITS)


def instant_of(task_id: UUID) -> datetime:
    """When an id was made, by the clock of its maker."""
    return datetime.fromtimestamp((task_id.int >> _TIME_BITS) / 1000, UTC)


def floor(instant: datetime, span: timedelta) -> datetime:
    """The beginning of the span that an instant is in; spans are counted from 1970."""
    since = instant - datetime.fromtimestamp(0, UTC)
    return instant - since % span


async def list_partitions(connection: Connection) -> list[Partition]:
    """All but the default one, oldest first."""
    cursor = await connection.execute(_LIST)
    found = []
    for name, bounds in await cursor.fetchall():
        if ends := _RANGE.search(bounds):
            lowest = UUID(ends[1]) if ends[1] else UUID(int=0)
            found.append(Partition(name.removeprefix("task_"), lowest, UUID(ends[2])))
    return sorted(found, key=lambda partition: partition.lowest.int)


def missing(there: list[Partition], now: datetime, span: timedelta, ahead: int) -> list[Partition]:
    """The partitions that should be made: for now and `ahead` spans more, between those that are there."""
    begin = floor(now, span)
    last = begin + span * (ahead + 1)
    wanted = []
    while begin < last:
        lowest = first_id(begin)
        around = next((each for each in there if each.lowest <= lowest < each.end), None)
        if around is not None:
            begin = around.ends_at
            continue
        later = [instant_of(each.lowest) for each in there if each.lowest > lowest]
        end = min([floor(begin, span) + span, *later])
        name = f"{begin:%Y%m%d}" if begin == floor(begin, timedelta(days=1)) else f"{begin:%Y%m%dt%H%M%S}"
        wanted.append(Partition(name, lowest, first_id(end)))
        begin = end
    return wanted


async def rest_bytes(connection: Connection) -> int:
    """How much is read, under a lock, when a partition is added."""
    cursor = await connection.execute(
        "select pg_relation_size('task_rest') + pg_relation_size('attempt_rest')"
    )
    ((size,),) = await cursor.fetchall()
    return int(size)


async def add(connection: Connection, partition: Partition) -> bool:
    """Add one, in this transaction, with the rows that the default one has of its time; False: those are too many.

    Attached, not created in place: that locks nothing that the task path needs but the default partition.
    """
    bounds = {"lowest": partition.lowest, "end": partition.end}
    cursor = await connection.execute(_COUNT, bounds | {"most": MOST_MOVED + 1})
    ((count, size),) = await cursor.fetchall()
    if count > MOST_MOVED or size > MOST_MOVED_BYTES:
        return False
    await connection.execute(
        "select duly_add_partition(%s, %s, %s)", (partition.name, partition.lowest, partition.end)
    )
    return True
