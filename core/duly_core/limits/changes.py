"""Declare resources, and change what a call names of them."""

import enum
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg.rows import TupleRow

from duly_core.lambdas.store import lock_registry
from duly_core.limits.declared import WRITTEN, Fate, StoredResource, decide, read_resources_within
from duly_core.limits.statements import LIMITS
from duly_core.limits.store import UNLIMITED, Rate, ResourceDeclaration, ResourceLimit, end_delays
from duly_core.postgres.arrays import texts
from duly_core.postgres.pool import Store, fetch


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceChange:
    """What a call says of a resource: a field that is not named stays as it is."""

    name: str
    named: Collection[str]
    """Of RESOURCE_FIELDS."""
    capacity: int | None = None
    """None: only the rate limits it."""
    per_key: bool = False
    note: str = ""
    units: int | None = None
    """Of the rate; None with `period`: it has none."""
    period: timedelta | None = None
    burst: int | None = None
    """None: 1."""

    @classmethod
    def whole(cls, limit: ResourceLimit) -> "ResourceChange":
        """Return the change that makes a resource what `limit` says."""
        rate = limit.rate
        return cls(
            name=limit.name,
            named=RESOURCE_FIELDS,
            capacity=None if rate and limit.capacity == UNLIMITED else limit.capacity,
            per_key=limit.per_key,
            note=limit.note,
            units=rate.units if rate else None,
            period=rate.period if rate else None,
            burst=rate.burst if rate else None,
        )


RESOURCE_FIELDS = ("capacity", "per_key", "note", "rate.units", "rate.period", "rate.burst")
"""What a change may name."""


@dataclass(frozen=True, slots=True)
class PutResource:
    """What a call made of a resource."""

    limit: ResourceLimit
    changed_at: datetime
    is_created: bool
    changed: tuple[str, ...]
    """The fields that are different now, of RESOURCE_FIELDS."""
    released: frozenset[str]
    """The lambdas of tasks that are due since."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """The resource would contradict itself: nothing was changed."""

    field: str
    """Of RESOURCE_FIELDS: what is missing, or stands alone."""


class NotPut(enum.Enum):
    """Why a resource was not changed."""

    IN_USE = "in use"
    """Tasks hold units of it, and per_key would be another."""
    CHANGED = "changed"
    """Somebody changed it since the caller read it."""
    UNKNOWN = "unknown"
    """It is not declared any more."""
    KEPT = "kept"
    """This is a declaration of an application, and an operator or an application of another owner set it."""


@dataclass(frozen=True, slots=True)
class Unwritten:
    """A declaration that changes nothing."""

    fate: Fate
    known: StoredResource
    """What stays."""


_PUT = LIMITS["put_resource"]
_RELEASE = LIMITS["release_parked"]
_FORGET = LIMITS["forget_starts"]
_SETTLE = LIMITS["settle_rate"]
_STEP = 1000
"""How many tasks of a lambda and priority one statement releases."""


async def put_resource(
    store: Store,
    change: ResourceChange,
    expected_changed_at: datetime | None = None,
    *,
    set_by: str = "",
) -> PutResource | NotPut | Contradiction:
    """Make a resource as an operator, or change what is named of it; the rest stays as it is.

    No declaration of an application changes it from then on.

    Args:
        store: to change.
        change: what is named. `ResourceChange.whole` names all.
        expected_changed_at: of the resource, which is changed only if this is so, or if it is as `change` says already. None:
            whatever it is.
        set_by: the principal that sets it; empty: nobody is asked who they are.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    rows = await store.run(_PUT, _parameters(change, set_by) | {"expected_at": expected_changed_at})
    return await _settled(store, change, rows)


async def declare_resource(
    store: Store, limit: ResourceLimit, by: ResourceDeclaration, *, set_by: str = ""
) -> PutResource | NotPut | Contradiction | Unwritten:
    """Write what an application declares, if what is there lets it (`decide`).

    It is judged by what is there now, and no other declaration is written meanwhile: an older version never replaces a newer one.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    change = ResourceChange.whole(limit)
    parameters = _parameters(change, set_by) | {"owner": by.owner, "version": by.version}
    async with store.connection() as connection, connection.transaction():
        await lock_registry(connection)
        known = (await read_resources_within(connection, [limit.name])).get(limit.name)
        fate = decide(limit, by, known)
        if known is not None and fate not in WRITTEN:
            return Unwritten(fate, known)
        rows = await fetch(connection, _PUT, parameters)
    return await _settled(store, change, rows)


def _parameters(change: ResourceChange, set_by: str) -> dict[str, Any]:
    return {
        "name": change.name,
        "named": texts(sorted(change.named)),
        "capacity": change.capacity,
        "per_key": change.per_key,
        "note": change.note,
        "units": change.units,
        "period": change.period,
        "burst": change.burst,
        "expected_at": None,
        "set_by": set_by,
        "owner": None,
        "version": None,
    }


async def _settled(
    store: Store, change: ResourceChange, rows: Sequence[TupleRow]
) -> PutResource | NotPut | Contradiction:
    """Return what came of a change, and release what it lets run."""
    ((is_done, is_expected, wrong, put_at, rate_is_new, is_created, changed, *columns, is_kept),) = rows
    if is_kept:
        return NotPut.KEPT
    if not is_done and not is_expected:
        return NotPut.UNKNOWN if is_created else NotPut.CHANGED
    if not is_done:
        return NotPut.IN_USE if wrong is None else Contradiction(wrong)
    capacity, per_key, note, units, period, burst = columns
    rate = Rate(units, period, burst) if units else None
    limit = ResourceLimit(change.name, capacity, per_key, note, rate)
    # in statements of their own: there may be more than fits into one, and nobody takes units while one changes it
    released = await _release_parked(store, limit)
    if rate_is_new:
        from_key: str | None = ""
        while from_key is not None:
            ((from_key,),) = await store.run(_FORGET, {"name": limit.name, "from_key": from_key})
        released |= await end_delays(store, [limit.name])
        await store.run(_SETTLE, {"name": limit.name, "put_at": put_at})
    return PutResource(limit, put_at, is_created, tuple(changed), frozenset(released))


async def _release_parked(store: Store, limit: ResourceLimit) -> set[str]:
    """Release what fits into the capacity; return the lambdas."""
    released: set[str] = set()
    from_key: str | None = "" if limit.capacity else None
    while from_key is not None:
        next_key = None
        for _ in range(math.ceil(limit.capacity / _STEP)):
            parameters = {"name": limit.name, "from_key": from_key}
            ((lambdas, next_key, has_more),) = await store.run(_RELEASE, parameters)
            released.update(lambdas)
            if not has_more:
                break
        from_key = next_key
    return released
