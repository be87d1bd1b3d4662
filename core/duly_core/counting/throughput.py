"""Reads how much work comes and goes, and how late tasks start, from few rows."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from duly_core.counting.statements import COUNTING
from duly_core.postgres.pool import Store

_MOST = 500
"""Rows of each of the two samples."""

_READ = COUNTING["activity"].sql.encode()


@dataclass(frozen=True, slots=True)
class Activity:
    """What happened until now, and how late tasks started lately."""

    at: datetime
    scheduled: int
    ended: int
    starts: int
    median_lateness: timedelta | None
    p99_lateness: timedelta | None


async def read_activity(store: Store) -> Activity:
    """Return the activity of all lambdas.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    async with store.connection() as connection, connection.cursor() as cursor:
        await cursor.execute(_READ, {"most": _MOST})
        rows = await cursor.fetchall()
    return Activity(*rows[0])
