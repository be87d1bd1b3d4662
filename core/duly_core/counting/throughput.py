"""Reads how much work comes and goes, and how late tasks start, from few rows."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from duly_core.postgres.pool import Store

_MOST = 500
"""Rows of each of the two samples."""

# The counters are Postgres's own: a count of rows would read them all. The first sample is of what runs now. It misses short
# runs, which the second has; the second misses what was scheduled long ago.
_READ = b"""
with lateness as (
    select claimed_at - due_at as late from (
        select claimed_at, due_at from task_assoc
        where status in ('claimed', 'processing') and session is null and graph is null and resources is null
        limit %(most)s
    ) as held
    union all
    select started_at - scheduled_at from (
        select started_at, scheduled_at, fence, session, graph, resources from task
        order by task_id desc
        limit %(most)s
    ) as latest
    where fence = 1 and started_at is not null and session is null and graph is null and resources is null
)
select duly_now(), pg_stat_get_tuples_inserted('task_assoc'::regclass), pg_stat_get_tuples_deleted('task_assoc'::regclass),
    count(*)::int4,
    percentile_cont(0.5) within group (order by greatest(late, interval '0')),
    percentile_cont(0.99) within group (order by greatest(late, interval '0'))
from lateness
"""


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
