"""Keep pools of workers, and read what the autoscaler plans for them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from duly_core.lambdas.patterns import to_regex
from duly_core.pools.memory import announced_from_json, memory_from_json
from duly_core.pools.planner import Announced, Memory, Workers
from duly_core.pools.rules import Pool
from duly_core.pools.statements import POOLS
from duly_core.postgres.arrays import texts
from duly_core.postgres.pool import Store, fetch

MOST_POOLS = 500
"""The autoscaler plans for all of them in each round."""


@dataclass(frozen=True, slots=True)
class StoredPool:
    """A pool as the store has it."""

    pool: Pool
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class PutPool:
    """What a call made of a pool."""

    pool: Pool
    before: Pool | None
    """None: it is new."""
    changed_at: datetime


class PoolChangedError(Exception):
    """Somebody changed the pool since the caller read it, or removed it."""

    def __init__(self, *, is_gone: bool) -> None:
        super().__init__("the pool was changed")
        self.is_gone = is_gone


class TooManyPoolsError(Exception):
    """There are as many pools as there may be."""


async def put_pool(
    store: Store, name: str, make: Callable[[Pool | None], Pool], expected_changed_at: datetime | None = None
) -> PutPool:
    """Declare a pool, or change it: `make` returns it as it is to be, from what it was (None: new).

    Raises:
        PoolChangedError: it was not changed last at `expected_changed_at`, and is not as it is to be either.
        TooManyPoolsError: there is no room for another.
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    async with store.connection() as connection, connection.transaction():
        await connection.execute("lock table worker_pool in share row exclusive mode")
        rows = await fetch(connection, POOLS["pool_to_change"], {"name": name})
        before = _stored(rows[0]) if rows else None
        if before is None and expected_changed_at is not None:
            raise PoolChangedError(is_gone=True)
        pool = make(before.pool if before else None)
        if before is not None and pool == before.pool:
            return PutPool(pool, pool, before.changed_at)
        if before is not None and expected_changed_at not in (None, before.changed_at):
            raise PoolChangedError(is_gone=False)
        if before is None:
            ((number,),) = await fetch(connection, POOLS["count_pools"], {})
            if number >= MOST_POOLS:
                raise TooManyPoolsError
        ((changed_at,),) = await fetch(connection, POOLS["put_pool"], _columns(pool))
    return PutPool(pool, before.pool if before else None, changed_at)


async def delete_pools(store: Store, names: Sequence[str]) -> set[str]:
    """Remove pools with their plans; return those that there were. Their workers go on until somebody ends them.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    return {name for (name,) in await store.run(POOLS["delete_pools"], {"names": texts(names)})}


async def list_pools(
    store: Store, *, after: str = "", limit: int = MOST_POOLS, names: Sequence[str] | None = None
) -> list[StoredPool]:
    """Return up to `limit` pools by name, from behind `after` on; with `names` only these.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    asked = {"after": after, "limit": limit, "names": None if names is None else texts(names)}
    return [_stored(row) for row in await store.run(POOLS["list_pools"], asked)]


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """The last plan of a pool."""

    desired: int
    reasons: tuple[str, ...]
    planned_at: datetime
    desired_since: datetime
    memory: Memory
    announced: Announced | None
    failure: str | None
    """Why the driver does not do what it is told; None: it does."""
    failed_since: datetime | None


async def list_plans(store: Store, pools: Sequence[str]) -> dict[str, StoredPlan]:
    """Return the last plans of pools by name; a pool that nobody planned for is left out.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await store.run(POOLS["list_plans"], {"pools": texts(pools)})
    return {
        name: StoredPlan(
            desired,
            tuple(reasons),
            planned_at,
            desired_since,
            memory_from_json(memory),
            announced and announced_from_json(announced),
            failure,
            failed_since,
        )
        for name, desired, reasons, planned_at, desired_since, memory, announced, failure, failed_since in rows
    }


@dataclass(frozen=True, slots=True)
class DesiredWorkers:
    """How many workers a pool is to have by its last plan."""

    number: int
    age: timedelta
    """Of the plan, by Postgres's clock."""


async def desired_workers(store: Store) -> dict[str, DesiredWorkers | None]:
    """Return what the last plan of each pool says; None: nobody planned for it.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await store.run(POOLS["desired_workers"], {})
    return {name: None if number is None else DesiredWorkers(number, age) for name, number, age in rows}


@dataclass(frozen=True, slots=True)
class PoolWorker:
    """A host that says it is a worker of a pool."""

    host_id: str
    state: str
    first_reported_at: datetime
    slots: int
    busy_slots: int
    is_to_drain: bool
    """It was asked to take no more tasks and end."""

    @property
    def takes_tasks(self) -> bool:
        """Whether it counts as one of the pool's workers."""
        return self.state == "alive" and not self.is_to_drain and self.slots > 0


async def workers_of(store: Store, pools: Sequence[Pool]) -> dict[str, list[PoolWorker]]:
    """Return the live workers of pools by the pool's name, by id: those that serve a lambda that the pool is for.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    found: dict[str, list[PoolWorker]] = {pool.name: [] for pool in pools}
    if not pools:
        return found
    asked = {
        "pools": texts([pool.name for pool in pools]),
        "patterns": texts([to_regex(pool.lambdas) for pool in pools]),
    }
    for name, *columns in await store.run(POOLS["workers_of_pools"], asked):
        found[name].append(PoolWorker(*columns))
    return found


def count_workers(found: Sequence[PoolWorker], starting: int) -> Workers:
    """Return how many workers of a pool there are."""
    alive = [each for each in found if each.takes_tasks]
    slots = round(sum(each.slots for each in alive) / len(alive)) if alive else None
    return Workers(len(alive), starting, len(found) - len(alive), slots)


def _stored(row: TupleRow) -> StoredPool:
    (
        name,
        lambdas,
        labels,
        minimum,
        maximum,
        slots,
        target_age,
        idle_time,
        budget,
        driver,
        settings,
        note,
        at,
    ) = row
    pool = Pool(
        name=name,
        lambdas=tuple(lambdas),
        labels=tuple(labels),
        minimum=minimum,
        maximum=maximum,
        slots=slots,
        target_age=target_age,
        idle_time=idle_time,
        budget=budget,
        driver=driver,
        driver_settings=settings,
        note=note,
    )
    return StoredPool(pool, at)


def _columns(pool: Pool) -> Mapping[str, Any]:
    return {
        "name": pool.name,
        "lambdas": texts(pool.lambdas),
        "labels": texts(pool.labels),
        "minimum": pool.minimum,
        "maximum": pool.maximum,
        "slots": pool.slots,
        "target_age": pool.target_age,
        "idle_time": pool.idle_time,
        "budget": pool.budget,
        "driver": pool.driver,
        "driver_settings": Jsonb(dict(sorted(pool.driver_settings.items()))),
        "note": pool.note,
    }
