"""Counts what stands before the hosts of each lambda."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from duly_core.counting.statements import COUNTING
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.arrays import int2s, texts
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import READS
from duly_core.tasks.polling import next_triggers
from duly_wire.enums import Priority

_MOST = 10_000
_MOST_READY = 50_000
_LEAST_OF_A_QUEUE = 10


@dataclass(frozen=True, slots=True)
class LambdaBacklog:
    """What is due, taken and parked of a lambda."""

    lambda_name: str
    ready: int
    """Due, and taken by nobody."""
    ready_since: datetime | None
    """When the first of them was due."""
    enqueued: int
    held: int
    parked: int


async def read_backlog(store: Store, names: Sequence[str] | None = None) -> list[LambdaBacklog]:
    """Return the backlogs of lambdas by name, of all if `names` is None; unknown ones are left out.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    parameters = {
        "names": None if names is None else texts(sorted(set(names))),
        "priorities": int2s(list(Priority)),
        "most": _MOST,
    }
    return [LambdaBacklog(*row) for row in await store.run(READS["backlog"], parameters)]


@dataclass(frozen=True, slots=True)
class Ready:
    """What is due of a queue, and taken by nobody."""

    tasks: int = 0
    """Counted up to a limit."""
    age: timedelta = timedelta()
    """How long the first of them has been due."""

    def waiting_for(self, age: timedelta) -> "Ready":
        """Return the same tasks, the first of which waits for so long."""
        return Ready(self.tasks, age)


_COUNT_READY = COUNTING["count_ready"]

_SLOTS = COUNTING["slots_by_lambda"]


async def read_ready(store: Store, queues: Sequence[QueueKey]) -> dict[QueueKey, Ready]:
    """Return what is due of these queues, each of them in the answer.

    It looks at one row of each queue, and counts 50,000 at most of all those that have something due.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    ready = dict.fromkeys(queues, Ready())
    ahead = await next_triggers(store, queues, timedelta())
    ages = {queue: -due_in for queue, due_in in ahead.items()}
    if not ages:
        return ready
    rows = await store.run(
        _COUNT_READY,
        {
            "lambdas": texts([queue.lambda_name for queue in ages]),
            "priorities": int2s([queue.priority for queue in ages]),
            "most": max(_LEAST_OF_A_QUEUE, min(_MOST, _MOST_READY // len(ages))),
        },
    )
    for name, priority, tasks in rows:
        queue = QueueKey(name, Priority(priority))
        ready[queue] = Ready(tasks, ages[queue])
    return ready


async def read_slots(store: Store, lambdas: Sequence[str]) -> dict[str, int]:
    """Return how many slots the hosts have that serve each of these lambdas, and take tasks; busy slots among them.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    return dict(await store.run(_SLOTS, {"lambdas": texts(lambdas)})) if lambdas else {}
