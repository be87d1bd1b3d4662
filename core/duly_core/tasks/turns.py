"""Finds lambdas whose keys take turns, and gives their tasks without a fair key the empty one, so that these have turns, too."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from duly_core.errors import DulyError
from duly_core.fairness.statements import FAIRNESS
from duly_core.fairness.store import MOST_WEIGHTS, note_fair_lambdas
from duly_core.gates.store import change_gates
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.arrays import int2s, texts, timestamps
from duly_core.postgres.pool import Store, fetch
from duly_core.postgres.statements import ENTITIES
from duly_wire.enums import Priority

_ROWS = 1_000
"""Of a queue, in one read."""
_MOST_ROWS = 64_000
"""If more rows than that are due at one instant, those that are left wait for the next read from the first row."""
_MOST_QUEUES = 200
"""In one statement."""
_AGAIN = 60.0
"""Seconds after which a queue is read from the first row on: rows may become ready that are due before those that were read."""
_OVERLAP = timedelta(seconds=1)
"""A read that goes on at the end of a queue begins so long before now: transactions commit later than they read the clock."""
_NEXT_INSTANT = timedelta(microseconds=1)


@dataclass(slots=True)
class _Place:
    """How far a queue was read."""

    since: datetime | None = None
    rows: int = _ROWS
    """That the next read may see."""
    again_at: float = 0.0


async def find_fair_lambdas(store: Store) -> list[str]:
    """Note queues that have tasks with a fair key, and tell every service; return those that were not known.

    Raises:
        StoreUnavailableError: nothing is noted.
    """
    async with store.connection() as connection, connection.transaction():
        if names := await note_fair_lambdas(connection):
            await change_gates(connection)
    return names


class TooManyWeightsError(DulyError):
    """A lambda would have more weights than it may have."""


async def put_fair_weights(
    store: Store, lambda_name: str, weights: Mapping[str, int], removed: Collection[str]
) -> bool:
    """Set the weights of some keys of a lambda, and tell every service; False: it is not registered.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
        TooManyWeightsError: nothing was written.
    """
    async with store.connection() as connection, connection.transaction():
        await change_gates(connection)  # which lets one at a time do this
        found = await fetch(
            connection,
            FAIRNESS["put_fair_weights"],
            {
                "lambda": lambda_name,
                "keys": texts([*weights]),
                "weights": [*weights.values()],
                "removed": texts([*removed]),
            },
        )
        kept = await fetch(
            connection, FAIRNESS["fair_weights"], {"lambda": lambda_name, "most": MOST_WEIGHTS + 1}
        )
        if len(kept) > MOST_WEIGHTS:
            raise TooManyWeightsError
    return bool(found)


class TurnGiver:
    """Of one process: remembers how far it has read each queue."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._places: dict[QueueKey, _Place] = {}

    async def run_once(self, lambdas: Collection[str]) -> bool:
        """Read on in these queues; tell whether there is more to read.

        Raises:
            StoreUnavailableError: the round was not completed.
        """
        now = asyncio.get_running_loop().time()
        queues = [QueueKey(name, priority) for name in sorted(lambdas) for priority in Priority]
        self._places = {queue: self._places.get(queue) or _Place() for queue in queues}
        more = False
        for first in range(0, len(queues), _MOST_QUEUES):
            more |= await self._read(queues[first : first + _MOST_QUEUES], now)
        return more

    async def _read(self, queues: Collection[QueueKey], now: float) -> bool:
        places = [self._places[queue] for queue in queues]
        for place in places:
            if now >= place.again_at:
                place.since, place.again_at = None, now + _AGAIN
        rows = await self._store.run(
            ENTITIES["give_turns"],
            {
                "lambdas": texts([queue.lambda_name for queue in queues]),
                "priorities": int2s([queue.priority for queue in queues]),
                "since": timestamps([place.since for place in places]),
                "most": [place.rows for place in places],
            },
        )
        more = False
        for lambda_name, priority, read, last_at, _, now_at in rows:
            place = self._places[QueueKey(lambda_name, Priority(priority))]
            if read < place.rows:
                # nothing comes any more that is due long before now: what waits there is not read each second
                place.since = max(last_at - _OVERLAP, min(last_at + _NEXT_INSTANT, now_at - _OVERLAP))
                place.rows = _ROWS
                continue
            more = True
            if last_at != place.since:
                place.since, place.rows = last_at, _ROWS
            elif place.rows < _MOST_ROWS:
                place.rows *= 4
            else:
                place.since, place.rows = last_at + _NEXT_INSTANT, _ROWS
        return more
