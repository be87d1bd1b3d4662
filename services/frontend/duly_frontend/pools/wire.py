"""Converts pools of workers, and their plans, for the wire."""

from collections.abc import Sequence
from datetime import timedelta

from duly_core.pools.lease import Leader
from duly_core.pools.rules import Pool
from duly_core.pools.store import PoolWorker, StoredPlan, StoredPool, count_workers
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import pools_pb2

DEFAULTS = pools_pb2.Pool(
    minimum=0,
    slots=1,
    target_age=to_duration(timedelta(seconds=30)),
    idle_time=to_duration(timedelta(minutes=1)),
)
"""What a pool has of what nobody said."""


def pool_to_wire(pool: Pool) -> pools_pb2.Pool:
    """Return a pool as the wire has it."""
    return pools_pb2.Pool(
        name=pool.name,
        lambdas=pool.lambdas,
        labels=pool.labels,
        minimum=pool.minimum,
        maximum=pool.maximum,
        slots=pool.slots,
        target_age=to_duration(pool.target_age),
        idle_time=to_duration(pool.idle_time),
        budget=None if pool.budget is None else to_duration(pool.budget),
        driver=pool.driver,
        driver_settings=pool.driver_settings,
        note=pool.note,
    )


def status_to_wire(
    stored: StoredPool, workers: Sequence[PoolWorker], plan: StoredPlan | None
) -> pools_pb2.PoolStatus:
    """Return a pool with its workers and its last plan."""
    counted = count_workers(workers, 0)
    alive = [each for each in workers if each.takes_tasks]
    return pools_pb2.PoolStatus(
        pool=pool_to_wire(stored.pool),
        changed_at=to_timestamp(stored.changed_at),
        alive=counted.alive,
        slots=sum(each.slots for each in alive),
        busy_slots=sum(each.busy_slots for each in alive),
        starting=0 if plan is None else len(plan.memory.spin_up.asked),
        draining=counted.draining,
        plan=None if plan is None else _plan_to_wire(plan),
    )


def _plan_to_wire(plan: StoredPlan) -> pools_pb2.PoolPlan:
    spin_up = plan.memory.spin_up
    message = pools_pb2.PoolPlan(
        desired=plan.desired,
        reasons=plan.reasons,
        planned_at=to_timestamp(plan.planned_at),
        desired_since=to_timestamp(plan.desired_since),
        spin_up=to_duration(spin_up.expected),
        spin_up_assumed=not spin_up.is_measured,
        used=to_duration(plan.memory.used),
        failure=plan.failure or "",
    )
    if plan.failed_since is not None:
        message.failed_since.CopyFrom(to_timestamp(plan.failed_since))
    if plan.announced is not None:
        message.announced.CopyFrom(
            pools_pb2.AnnouncedWorkers(
                start_at=to_timestamp(plan.announced.start_at),
                workers=plan.announced.workers,
                reason=plan.announced.reason,
            )
        )
    return message


def leader_to_wire(leader: Leader) -> pools_pb2.AutoscalerLeader | None:
    """Return which autoscaler leads; None: none ever did."""
    if not leader.fence:
        return None
    return pools_pb2.AutoscalerLeader(
        holder=leader.holder, fence=leader.fence, until_at=to_timestamp(leader.until_at), leads=leader.leads
    )
