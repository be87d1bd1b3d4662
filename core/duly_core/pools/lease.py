"""The lease by which one autoscaler leads: a row, Postgres's clock, and a fence that each new leader raises."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg.types.json import Jsonb

from duly_core.pools.memory import announced_to_json, memory_to_json
from duly_core.pools.planner import Plan
from duly_core.pools.statements import POOLS
from duly_core.postgres.arrays import texts
from duly_core.postgres.pool import Store

NO_FENCE = 0


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads, or led last."""

    holder: str
    fence: int
    until_at: datetime
    leads: bool
    """The lease is in force."""


async def take_lease(store: Store, holder: str, fence: int, lease: timedelta) -> int | None:
    """Take the lease, or renew it; return the fence under which the holder leads. None: somebody else does.

    `fence` is that under which the holder leads already; NO_FENCE: it does not. A holder whose lease was over gets another.

    Raises:
        StoreUnavailableError: the outcome is unknown.
    """
    rows = await store.run(POOLS["take_lease"], {"holder": holder, "fence": fence, "lease": lease})
    return rows[0][0] if rows else None


async def give_lease_up(store: Store, holder: str, fence: int) -> None:
    """Let another lead at once, if this holder still does.

    Raises:
        StoreUnavailableError: the outcome is unknown; the lease ends by itself.
    """
    await store.run(POOLS["give_lease_up"], {"holder": holder, "fence": fence})


async def read_leader(store: Store) -> Leader:
    """Return who leads, or led last.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    (row,) = await store.run(POOLS["read_lease"], {})
    return Leader(*row)


@dataclass(frozen=True, slots=True)
class PlanToWrite:
    """A plan of a pool, with what its driver says."""

    pool: str
    plan: Plan
    failure: str | None = None
    failed_since: datetime | None = None


async def write_plans(
    store: Store,
    holder: str,
    fence: int,
    now: datetime,
    plans: Sequence[PlanToWrite],
    changes: Sequence[str],
) -> set[str] | None:
    """Write plans, with an entry of the audit log for each change; return the pools whose plans were written.

    None: the holder does not lead under this fence, and nothing was written. A pool that is gone is left out.

    Raises:
        StoreUnavailableError: the outcome is unknown; the next plans are written over them.
    """
    asked: dict[str, Any] = {
        "holder": holder,
        "fence": fence,
        "now": now,
        "plans": Jsonb([_as_json(each) for each in plans]),
        "changes": texts(changes),
    }
    ((leads, written),) = await store.run(POOLS["write_plans"], asked)
    return {*written} if leads else None


async def request_drain(
    store: Store, holder: str, fence: int, pool: str, host_ids: Sequence[str]
) -> set[str]:
    """Ask workers of a pool to take no more tasks and end; return those that were asked now. None if the holder does not lead.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    asked = {"holder": holder, "fence": fence, "pool": pool, "host_ids": texts(host_ids)}
    return {host_id for (host_id,) in await store.run(POOLS["request_drain"], asked)}


def _as_json(each: PlanToWrite) -> dict[str, Any]:
    return {
        "pool": each.pool,
        "desired": each.plan.desired,
        "reasons": [*each.plan.reasons],
        "memory": memory_to_json(each.plan.memory),
        "announced": announced_to_json(each.plan.announced),
        "failure": each.failure,
        "failed_since": each.failed_since and each.failed_since.isoformat(),
    }
