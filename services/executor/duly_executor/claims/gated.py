"""Hands back what gates hold: claims whose callbacks have not started. Those that run are left alone."""

from collections.abc import Collection

from duly_executor import events
from duly_executor.claims.ledger import HeldClaims
from duly_executor.processes.pool import CallbackPool
from duly_wire.ids import TaskId


def hand_back_gated(pool: CallbackPool, held_claims: HeldClaims, task_ids: Collection[TaskId]) -> None:
    """Hand back those of these tasks that have not started.

    What waits in a callback process is in its hands: the process gives back all that it has not started.
    """
    unassigned = [
        task_id
        for task_id in task_ids
        if (held := held_claims.get(task_id)) and held.process is None and not held.reporting
    ]
    pool.release(unassigned)
    processes = [
        process for process in pool.processes() if not pool.unstarted_in(process).isdisjoint(task_ids)
    ]
    for process in processes:
        process.recall()
    if unassigned or processes:
        events.log.info("unstarted tasks handed back: gate", tasks=len(unassigned), processes=len(processes))
        pool.freed.set()
