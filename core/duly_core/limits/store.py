"""Resources of which tasks take units while they run: declare them, and see what is taken."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from duly_core.lambdas.names import DEFAULT_NAMESPACE, base_name, namespace_of
from duly_core.limits.statements import LIMITS
from duly_core.postgres.arrays import texts
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import READS
from duly_wire.queue_names import QueueName

QUOTA = "lambda:"
"""Begins the names of quotas: each task of the lambda takes a unit, without naming the resource."""
NAMESPACE_QUOTA = "namespace:"
"""The same of all lambdas of a namespace together."""
DOMAIN_QUOTA = "domain:"
"""The same of all tasks of a domain together."""

SCHEDULING = "schedule:"
"""Begins the names of quotas of scheduling: how many tasks of the lambda clients may schedule over time."""
NAMESPACE_SCHEDULING = "schedule-namespace:"
"""The same of all lambdas of a namespace together."""

_PREFIXES = (QUOTA, NAMESPACE_QUOTA, DOMAIN_QUOTA, SCHEDULING, NAMESPACE_SCHEDULING)


def namespace_of_resource(name: str) -> str | None:
    """Return the namespace whose tasks alone may take units of a resource (empty: the default one); None: tasks of all may.

    >>> namespace_of_resource("database"), namespace_of_resource("shop/database"), namespace_of_resource("lambda:mail.send")
    (None, 'shop', '')
    """
    prefix = next((each for each in _PREFIXES if name.startswith(each)), "")
    rest = name.removeprefix(prefix)
    if prefix == DOMAIN_QUOTA:
        return None
    if prefix in (NAMESPACE_QUOTA, NAMESPACE_SCHEDULING):
        return "" if rest == DEFAULT_NAMESPACE else rest
    return namespace_of(rest) or ("" if prefix else None)


UNLIMITED = 1_000_000
"""The largest capacity: that of a resource which only a rate limits."""


LARGEST_RATE = 1_000_000
"""The most units that a rate may have in a period."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How many units tasks may start to use over time."""

    units: int
    period: timedelta
    burst: int = 1
    """Units that may start at once, after a time in which few did."""


@dataclass(frozen=True, slots=True)
class ResourceLimit:
    """What an operator or an application declared."""

    name: str
    capacity: int
    """Units that tasks may take at a time; 0: none may."""
    per_key: bool = False
    """Each key has as many units of its own."""
    note: str = ""
    rate: Rate | None = None


@dataclass(frozen=True, slots=True)
class ResourceDeclaration:
    """The application that declares a resource, with its lambdas."""

    owner: str
    version: str


@dataclass(frozen=True, slots=True)
class ResourceState:
    """A resource, with what is taken of it."""

    limit: ResourceLimit
    changed_at: datetime
    used: int
    """Units that tasks hold, of all keys together."""
    parked: int
    """Tasks that were due and wait for units."""
    starts_until: datetime | None = None
    """The last start time that its rate gave, of all its keys; None: by now."""
    declaration: ResourceDeclaration | None = None
    """None: an operator made or changed it."""
    set_by: str = ""
    """The principal that set it, or whose declaration did; empty: nobody was asked who they are."""


@dataclass(frozen=True, slots=True)
class KeyState:
    """A key of a resource that is in use."""

    key: str
    used: int
    parked: int


class Deletion(enum.Enum):
    """What became of a resource that was to be removed."""

    DONE = "done"
    UNKNOWN = "unknown"
    IN_USE = "in use"


_END_DELAYS = LIMITS["end_delays"]
_DELETE = LIMITS["delete_resource"]


async def end_delays(store: Store, names: Sequence[str]) -> set[str]:
    """Make due what is put off to a start time of these resources; return the lambdas. Reads all live tasks.

    Raises:
        StoreUnavailableError: some may be due; ask again.
    """
    released: set[str] = set()
    after: bytes | None = bytes(16)
    while after is not None and names:
        parameters = {"names": texts(names), "after": UUID(bytes=after)}
        ((lambdas, after),) = await store.run(_END_DELAYS, parameters)
        released.update(lambdas)
    return released


async def delete_resource(store: Store, name: str) -> Deletion:
    """Remove a resource that no task holds or waits for. What its rate put off stays so until `end_delays`.

    Raises:
        StoreUnavailableError: the outcome is unknown; asked again, what was removed is unknown.
    """
    ((is_done,),) = await store.run(_DELETE, {"name": name})
    return Deletion.UNKNOWN if is_done is None else Deletion.DONE if is_done else Deletion.IN_USE


async def list_resources(
    store: Store, *, after: str = "", skipped: int = 0, limit: int
) -> list[ResourceState]:
    """Return up to `limit` resources by name, from `skipped` behind `after` on.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await store.run(READS["resources"], {"after": after, "skipped": skipped, "limit": limit})
    return [
        ResourceState(
            ResourceLimit(name, capacity, per_key, note, Rate(rate, period, burst) if rate else None),
            changed_at,
            used,
            parked,
            starts_until,
            None if owner is None else ResourceDeclaration(owner, version),
            set_by,
        )
        for (
            name,
            capacity,
            per_key,
            note,
            changed_at,
            rate,
            period,
            burst,
            owner,
            version,
            set_by,
            used,
            parked,
            starts_until,
        ) in rows
    ]


async def list_keys(store: Store, name: str, *, after: str = "", limit: int) -> list[KeyState]:
    """Return up to `limit` keys of a resource that are in use, by key, from behind `after` on.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await store.run(READS["resource_keys"], {"resource": name, "after": after, "limit": limit})
    return [KeyState(*row) for row in rows]


def is_quota(name: str) -> bool:
    """Whether a resource is a quota, which no task names."""
    return name.startswith(_PREFIXES)


def bare_name(name: str) -> str:
    """Return a resource's name without what makes it a quota."""
    return name.removeprefix(next((prefix for prefix in _PREFIXES if name.startswith(prefix)), ""))


def quotas_of(queue: str) -> tuple[str, ...]:
    """Return the names of the quotas of which a task of this queue takes units, if they are declared."""
    name, _, domain, _ = QueueName.parse(queue)
    of_domain = (f"{DOMAIN_QUOTA}{domain}",) if domain else ()
    return f"{QUOTA}{name}", f"{NAMESPACE_QUOTA}{namespace_of(name) or DEFAULT_NAMESPACE}", *of_domain


def scheduling_quotas_of(lambda_name: str) -> tuple[str, str]:
    """Return the names of the quotas of scheduling of a lambda, and of its namespace."""
    namespace = namespace_of(lambda_name) or DEFAULT_NAMESPACE
    return f"{SCHEDULING}{base_name(lambda_name)}", f"{NAMESPACE_SCHEDULING}{namespace}"


async def scheduling_quotas(store: Store) -> dict[str, ResourceLimit]:
    """Return the quotas of scheduling by name.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    return {
        name: ResourceLimit(name, UNLIMITED, per_key, rate=Rate(rate, period, burst))
        for name, per_key, rate, period, burst in await store.run(READS["scheduling_quotas"], {})
    }


async def per_key_of(store: Store, names: Sequence[str]) -> dict[str, bool]:
    """Return whether resources have keys, by name; those that are not declared are left out.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    return {
        row[0]: row[1]
        for row in await store.run(READS["resource_kinds"], {"names": texts(sorted(set(names)))})
    }
