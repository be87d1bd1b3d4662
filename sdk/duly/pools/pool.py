"""Pools of workers: how many there may be, how many there are, and what the autoscaler plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from duly.transport.message_fields import view

if TYPE_CHECKING:
    from duly_wire.v1 import pools_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedWorkers:
    """More workers that a pool will need."""

    # When the autoscaler will ask for them.
    start_at: datetime
    workers: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """How many workers a pool is to have, and why."""

    desired: int
    # In words; the first says what decides.
    reasons: tuple[str, ...]
    planned_at: datetime
    # Since when so many are desired.
    desired_since: datetime
    # How long a worker takes from the request to its first report, and whether that is only assumed: none came yet.
    spin_up: timedelta
    spin_up_assumed: bool
    # Worker time of this day (UTC).
    used: timedelta
    # More workers that will be needed; None: none are known to be.
    announced: AnnouncedWorkers | None
    # Why the driver does not do what it is told, and since when; empty: it does.
    failure: str
    failed_since: datetime | None

    @classmethod
    def from_proto(cls, plan: pools_pb2.PoolPlan) -> PoolPlan:
        """Return the view of a plan as it came over the wire."""
        announced = view(AnnouncedWorkers, plan.announced) if plan.HasField("announced") else None
        return view(cls, plan, announced=announced)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPool:
    """A pool, with its workers and the last plan."""

    name: str
    # What its workers run: names of lambdas, or prefixes that end with `*`.
    lambdas: tuple[str, ...]
    # What its workers have: `gpu`, `region=eu`.
    labels: tuple[str, ...]
    minimum: int
    maximum: int
    # Callbacks that a worker runs at a time, until workers report how many they run.
    worker_slots: int
    # How long a due task may wait for a worker.
    target_age: timedelta
    # How long fewer workers must be enough before some are ended.
    idle_time: timedelta
    # Worker time in a day of UTC; None: as much as it needs.
    budget: timedelta | None
    # A driver of the autoscaler's own settings, and what it is told of this pool.
    driver: str
    driver_settings: Mapping[str, str]
    note: str
    changed_at: datetime
    # Workers that take tasks, their slots, and those of the slots that run a callback.
    alive: int = 0
    slots: int = 0
    busy_slots: int = 0
    # Workers that were asked for and have not reported yet; that take no more tasks.
    starting: int = 0
    draining: int = 0
    # None: no autoscaler planned for it yet.
    plan: PoolPlan | None = None

    @classmethod
    def from_proto(cls, status: pools_pb2.PoolStatus) -> WorkerPool:
        """Return the view of a pool as it came over the wire."""
        return view(
            cls,
            status.pool,
            status,
            slots=status.slots,
            worker_slots=status.pool.slots,
            driver_settings=dict(status.pool.driver_settings),
            plan=PoolPlan.from_proto(status.plan) if status.HasField("plan") else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredPool:
    """What `put_pool` made of a pool."""

    pool: WorkerPool
    # The pool is new.
    created: bool
    # The fields that this call changed, as the wire names them: lambdas, maximum, slots ...
    changed: tuple[str, ...]
    # For people: other pools that serve the same lambdas, and why a new driver may start no worker.
    notes: tuple[str, ...] = ()

    @classmethod
    def from_proto(cls, result: pools_pb2.PutPoolResult) -> DeclaredPool:
        """Return the view of an answer as it came over the wire."""
        pool = view(
            WorkerPool,
            result.pool,
            result,
            slots=0,
            worker_slots=result.pool.slots,
            driver_settings=dict(result.pool.driver_settings),
        )
        return cls(
            pool=pool,
            created=result.created,
            changed=tuple(result.changed_fields.paths),
            notes=tuple(result.notes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerLeader:
    """Which autoscaler leads."""

    # Its host and process.
    holder: str
    # Each new leader has a higher one. What a former leader writes is refused.
    fence: int
    # When its lease ends unless it renews it.
    until_at: datetime
    # The lease is in force.
    leads: bool
