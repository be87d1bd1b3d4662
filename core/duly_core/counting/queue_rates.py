"""Reads what is told of queues beside the counts: who serves their lambdas, and how fast tasks come."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from duly_core.counting.queue_statements import HOSTS, NEXT_DUE, SCHEDULED_SINCE
from duly_core.counting.queues import Count
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.arrays import int2s, texts
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import Statement
from duly_wire.enums import Priority
from duly_wire.time_conversion import EPOCH

RATE_WINDOW = timedelta(seconds=10)
_MOST_RECENT = 5_000
"""Tasks of one lambda."""
_MOST_RECENT_TOGETHER = 50_000
_MILLISECOND = timedelta(milliseconds=1)
_NAMES = Statement("lambda_names", "select name from lambda order by name")


async def lambda_names(store: Store) -> list[str]:
    """Return the names of the registered lambdas.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    return [name for (name,) in await store.run(_NAMES, {})]


async def hosts_by_lambda(store: Store, names: Sequence[str], now: datetime) -> dict[str, int]:
    """Return how many hosts that are alive serve each of these lambdas.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    return dict(await store.run(HOSTS, {"lambdas": texts(names), "now": now})) if names else {}


async def next_due(store: Store, keys: Sequence[QueueKey], now: datetime) -> dict[QueueKey, datetime]:
    """Return when the next task of each of these queues is due; those without one are left out.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    if not keys:
        return {}
    parameters = {
        "lambdas": texts([key.lambda_name for key in keys]),
        "priorities": int2s([key.priority for key in keys]),
        "now": now,
    }
    rows = await store.run(NEXT_DUE, parameters)
    return {QueueKey(name, Priority(priority)): due_at for name, priority, due_at in rows}


async def recently_scheduled(store: Store, names: Sequence[str], now: datetime) -> dict[QueueKey, Count]:
    """Return how many tasks of these lambdas were scheduled in the last ten seconds, by the time in their ids.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    if not names:
        return {}
    most = max(1, min(_MOST_RECENT, _MOST_RECENT_TOGETHER // len(names)))
    rows = await store.run(
        SCHEDULED_SINCE, {"lambdas": texts(names), "first_id": _first_id(now - RATE_WINDOW), "most": most}
    )
    totals: dict[str, int] = {}
    for name, _, number in rows:
        totals[name] = totals.get(name, 0) + number
    return {
        QueueKey(name, Priority(priority)): Count(number, is_estimated=totals[name] >= most)
        for name, priority, number in rows
    }


def _first_id(moment: datetime) -> UUID:
    """Return the lowest task id of an instant: they begin with their milliseconds since 1970."""
    return UUID(int=max(0, (moment - EPOCH) // _MILLISECOND) << 80)
