"""Which lambdas have keys that take turns, and the weights of keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from duly_core.fairness.statements import FAIRNESS
from duly_core.postgres.pool import Connection, Store, fetch

FairLambdas = Mapping[str, bool]
"""The queues whose keys take turns, by name, and whether one of their keys has a weight."""


HEAVIEST = 1_000
MOST_WEIGHTS = 1_000
"""Of a lambda."""
_MOST_TASKS = 1_000
"""That are counted of a key and priority."""
_NEXT = "\x01"
"""A key with this at its end is the first one after it."""


@dataclass(frozen=True, slots=True)
class WaitingKey:
    """A key with tasks that wait."""

    fair_key: str
    waiting: int
    has_more: bool
    """There are more than were counted."""
    first_at: datetime
    """When the first of them is due."""


async def fair_lambdas(store: Store) -> FairLambdas:
    """Read the queues whose keys take turns.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    return dict(await store.run(FAIRNESS["fair_lambdas"], {}))


async def note_fair_lambdas(connection: Connection) -> list[str]:
    """Note queues that have tasks with a fair key; return those that were not known.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    return [row[0] for row in await fetch(connection, FAIRNESS["note_fair_lambdas"], {})]


async def fair_weights(store: Store, lambda_name: str) -> dict[str, int]:
    """Return the weights of a lambda's keys.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    return dict(await store.run(FAIRNESS["fair_weights"], {"lambda": lambda_name, "most": MOST_WEIGHTS}))


async def waiting_keys(store: Store, queue: str, after: str | None, most: int) -> list[WaitingKey]:
    """Return keys of a queue with tasks that wait, by key; those after one.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    from_key = "" if after is None else after + _NEXT
    rows = await store.run(
        FAIRNESS["waiting_by_key"],
        {"queue": queue, "from_key": from_key, "most": most, "most_tasks": _MOST_TASKS},
    )
    return [WaitingKey(*row) for row in rows]
