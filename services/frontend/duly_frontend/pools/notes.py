"""Says what an operator may not expect of a pool that was just declared or changed."""

from collections.abc import Iterator, Mapping, Sequence

from duly_core.pools.lease import Leader
from duly_core.pools.rules import Pool
from duly_core.pools.store import StoredPlan

_MOST_NAMED = 3


def notes_on_lambdas(pool: Pool, others: Sequence[Pool]) -> Iterator[str]:
    """Name the pools that serve the same lambdas: each of them plans for the whole load."""
    named = [(other, both) for other in others if (both := pool.shares(other))]
    for other, both in named[:_MOST_NAMED]:
        which = ", ".join(both[:_MOST_NAMED]) + (" ..." if len(both) > _MOST_NAMED else "")
        yield f"the pool {other.name} serves {which}, too: each plans for all of its load"
    if len(named) > _MOST_NAMED:
        yield f"so do {len(named) - _MOST_NAMED} more pools"


def notes_on_driver(
    pool: Pool, others: Sequence[Pool], plans: Mapping[str, StoredPlan], leader: Leader
) -> Iterator[str]:
    """Say why its driver may start no worker: only autoscalers know which drivers they have."""
    if not leader.leads:
        yield "no autoscaler leads: none starts its workers until `duly autoscaler` runs"
        return
    planned = [
        (other, plans[other.name]) for other in others if other.driver == pool.driver and other.name in plans
    ]
    if not planned:
        yield (
            f"no other pool uses the driver {pool.driver}: `duly pools` says within some seconds if the autoscaler "
            "has no such driver"
        )
    elif all(plan.failure for _, plan in planned):
        other, plan = planned[0]
        yield f"its driver fails for the pool {other.name}: {plan.failure}"
