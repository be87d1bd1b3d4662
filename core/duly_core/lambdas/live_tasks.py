"""Counts the live tasks of some lambdas by status: exactly while there are few, and otherwise at least so many."""

from dataclasses import dataclass

from duly_core.lambdas.patterns import to_regex
from duly_core.postgres.arrays import int2s, texts
from duly_core.postgres.pool import Connection, fetch
from duly_core.postgres.statements import READS
from duly_wire.enums import Priority

MOST_READ = 100_000
"""Rows that are due or run later; as many that are taken, and as many that wait."""


@dataclass(frozen=True, slots=True)
class LiveCounts:
    """Live tasks by status."""

    by_status: dict[str, int]
    is_complete: bool
    """False: there may be more."""


async def count_live(
    connection: Connection,
    pattern: str,
    priority: Priority | None = None,
    *,
    collection: str | None = None,
    session: str | None = None,
) -> LiveCounts:
    """Count the live tasks of the lambdas of a pattern that have all that is named; doomed ones are left out.

    Raises:
        StoreUnavailableError: ask again.
    """
    names = [
        row[0]
        for row in await fetch(
            connection, READS["queues_of"], {"pattern": to_regex([pattern]), "name": pattern}
        )
    ]
    rows = await fetch(
        connection,
        READS["live_by_status"],
        {
            "lambdas": texts(names),
            "priorities": int2s([int(priority)] if priority else [int(each) for each in Priority]),
            "collection": collection,
            "session": session,
            "most": MOST_READ,
        },
    )
    counts = {status: hits for _, status, hits, _ in rows if hits}
    read: dict[str, int] = {}
    for part, _, _, count in rows:
        read[part] = read.get(part, 0) + count
    return LiveCounts(counts, all(count < MOST_READ for count in read.values()))
