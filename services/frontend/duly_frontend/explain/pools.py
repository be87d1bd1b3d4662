"""Says which pools serve a task that no host serves, and what the autoscaler does about them."""

from collections.abc import Sequence

from duly_core.pools.lease import Leader, read_leader
from duly_core.pools.rules import Pool
from duly_core.pools.store import PoolWorker, StoredPlan, count_workers, list_plans, list_pools, workers_of
from duly_core.postgres.pool import Store
from duly_core.tasks.store import TaskRow
from duly_frontend.explain.hosts import required_labels
from duly_frontend.explain.text import command, number, one_line
from duly_wire.v1 import explain_pb2

_MOST_NAMED = 3


async def add_pools(store: Store, row: TaskRow, nobody: explain_pb2.Reason) -> None:
    """Add to the reason that no host serves a task the pools whose workers would: there the autoscaler starts workers, not people.

    Args:
        store: has the plans.
        row: of the task.
        nobody: is added to.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    declared = [each.pool for each in await list_pools(store)]
    required = required_labels(row)
    pools = [pool for pool in declared if pool.serves(row["lambda"]) and required <= {*pool.labels}]
    named = pools[:_MOST_NAMED]
    if not named:
        return
    plans = await list_plans(store, [pool.name for pool in named])
    workers = await workers_of(store, named)
    leader = await read_leader(store)
    said = [_said(pool, plans.get(pool.name), workers[pool.name]) for pool in named]
    nobody.text = one_line("; ".join([nobody.text, *said]))
    nobody.action = _action(named, leader)


def _said(pool: Pool, plan: StoredPlan | None, workers: Sequence[PoolWorker]) -> str:
    serves = f"the pool {pool.name} serves it"
    if plan is None:
        return f"{serves}, and no autoscaler planned for it yet"
    alive = count_workers(workers, 0).alive
    text = (
        f"{serves}: it wants {number(plan.desired, 'worker')}, {alive} {'is' if alive == 1 else 'are'} alive"
    )
    return text if plan.failure is None else f"{text}; its driver failed: {plan.failure}"


def _action(named: Sequence[Pool], leader: Leader) -> str:
    explain = command("autoscaler", "explain", *(pool.name for pool in named))
    if leader.leads:
        return f"the autoscaler says why: {explain}"
    return f"no autoscaler leads, so none starts its workers: start one; the last plan: {explain}"
