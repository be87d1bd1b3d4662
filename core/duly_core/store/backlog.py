"""Counts what stands before the hosts of each lambda."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from duly.enums import Priority
from duly_core.store.arrays import int2s, texts
from duly_core.store.pool import Store
from duly_core.store.statements import READS

_MOST = 10_000


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
