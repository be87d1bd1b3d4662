"""Resources: what tasks share, and how much of it they may take at a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from duly.errors import InvalidTaskError
from duly.transport.message_fields import view
from duly_wire.time_conversion import to_duration, to_timedelta

if TYPE_CHECKING:
    from duly_wire.v1 import limits_pb2, task_pb2

_MOST = 8
_HEAVIEST = 1000


@dataclass(frozen=True, slots=True)
class ResourceNeed:
    """How many units of a resource a task takes while it runs.

    >>> ResourceNeed("tenant", key="acme").weight
    1
    """

    name: str
    # Only of a resource that has units for each key.
    key: str = ""
    weight: int = 1

    @classmethod
    def from_proto(cls, need: task_pb2.ResourceNeed) -> ResourceNeed:
        """Return the view of a need as it came over the wire."""
        return cls(need.name, need.key, need.weight or 1)

    def __str__(self) -> str:
        place = f"{self.name}/{self.key}" if self.key else self.name
        return place if self.weight == 1 else f"{place}={self.weight}"


Need = ResourceNeed
"""The short name: `resources=[duly.Need("gpu")]`."""


def needs_to_fields(resources: Any) -> list[dict[str, Any]]:
    """Return the fields of the messages of needs; a text is the name of a resource.

    Raises InvalidTaskError for what is neither, for too many, and for a weight that is not from 1 to 1,000.
    """
    if isinstance(resources, str | ResourceNeed):
        raise InvalidTaskError(f"resources must be a list: [{resources!r}]", "resources")
    needs = [ResourceNeed(each) if isinstance(each, str) else each for each in resources]
    if len(needs) > _MOST:
        raise InvalidTaskError(f"resources: there may be at most {_MOST}, not {len(needs)}", "resources")
    for need in needs:
        if not isinstance(need, ResourceNeed):
            raise InvalidTaskError(
                f"resources: give names, or ResourceNeed, not {type(need).__name__}", "resources"
            )
        if not 1 <= need.weight <= _HEAVIEST:
            raise InvalidTaskError(
                f"resources: the weight of {need.name} must be 1 to {_HEAVIEST:,}, not {need.weight!r}",
                "resources",
            )
    return [{"name": need.name, "key": need.key, "weight": need.weight} for need in needs]


@dataclass(frozen=True, slots=True)
class Rate:
    """How many units of a resource tasks may start to use over time, evenly spaced.

    >>> Rate(10).period
    datetime.timedelta(seconds=1)
    """

    units: int
    period: timedelta = timedelta(seconds=1)
    # How many of them may start at once, after a time in which few did. None, to set a rate: as many as before; of a new one 1.
    burst: int | None = None

    @classmethod
    def from_proto(cls, rate: limits_pb2.ResourceRate) -> Rate:
        """Return the view of a rate as it came over the wire."""
        return cls(rate.units, to_timedelta(rate.period), rate.burst or 1)

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of its message that it says."""
        fields = {"units": self.units, "period": to_duration(self.period)}
        return fields if self.burst is None else {**fields, "burst": self.burst}

    def __str__(self) -> str:
        seconds = self.period.total_seconds()
        per = {1.0: "s", 60.0: "m", 3600.0: "h"}.get(seconds, f"{seconds:g}s")
        return (
            f"{self.units}/{per}" if self.burst in (None, 1) else f"{self.units}/{per}, {self.burst} at once"
        )


@dataclass(frozen=True, slots=True)
class ResourceKey:
    """What is used of a key of a resource."""

    key: str
    used: int
    parked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A declared resource, as it stood when the Frontend was asked."""

    name: str
    # Units that tasks may take at a time; 0: none may; None: only the rate limits them.
    capacity: int | None
    # True: each key has as many units of its own.
    per_key: bool
    note: str
    changed_at: datetime
    # Units that tasks hold, of all keys together.
    used: int
    # Tasks that were due and wait for units.
    parked: int
    # Keys in use, as many as were asked for.
    keys: tuple[ResourceKey, ...] = ()
    rate: Rate | None = None
    # By when all tasks that its rate put off may have started; None: it put off none.
    starts_until: datetime | None = None
    # The owner and the version of the application that declared it. None: an operator set it, and no declaration changes it.
    declared_by: str | None = None
    declared_version: str | None = None
    # The principal that set it, or whose declaration did; empty: nobody was asked who they are.
    set_by: str = ""
    # The cells whose tasks may take units. Each has the whole capacity and rate, and `used` is the sum. Empty: the installation has no cells.
    cells: tuple[str, ...] = ()

    @classmethod
    def from_proto(cls, resource: limits_pb2.Resource) -> Resource:
        """Return the view of a resource as it came over the wire."""
        declaration = resource.declaration if resource.HasField("declaration") else None
        return view(
            cls,
            resource.limit,
            resource,
            declared_by=declaration and declaration.owner,
            declared_version=declaration and declaration.version,
            keys=tuple(view(ResourceKey, key) for key in resource.keys),
            rate=Rate.from_proto(resource.limit.rate) if resource.limit.HasField("rate") else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredResource:
    """What `put_resource` made of a resource."""

    name: str
    # As those of Resource.
    capacity: int | None
    per_key: bool
    note: str
    rate: Rate | None
    changed_at: datetime
    # The resource is new.
    created: bool
    # The fields that this call changed: capacity, per_key, note, rate.units, rate.period, rate.burst.
    changed: tuple[str, ...]
    # As those of Resource.
    cells: tuple[str, ...] = ()

    @classmethod
    def from_proto(cls, result: limits_pb2.PutResourceResult) -> DeclaredResource:
        """Return the view of an answer as it came over the wire."""
        limit = result.limit
        return view(
            cls,
            limit,
            result,
            rate=Rate.from_proto(limit.rate) if limit.HasField("rate") else None,
            changed=tuple(result.changed_fields.paths),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What stands before the hosts of a lambda; large numbers are counted up to a limit."""

    lambda_name: str
    # Tasks that are due, and that nobody has taken yet, and when the first of them was due.
    ready: int
    ready_since: datetime | None
    # Tasks whose references are in a queue (SQS).
    enqueued: int
    # Tasks that hosts hold: they run, or wait for a slot there.
    held: int
    # Tasks that were due and wait for units of a resource.
    parked: int

    @classmethod
    def from_proto(cls, backlog: limits_pb2.LambdaBacklog) -> Backlog:
        """Return the view of a backlog as it came over the wire."""
        return view(cls, backlog)
