"""Gates and breakers as the Frontend describes them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from duly.transport.message_fields import view
from duly_wire.enums import BreakerState, GateKind, Priority, TaskStatus

if TYPE_CHECKING:
    from duly_wire.v1 import gates_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What an operator pauses, drops or delays; a task is hit if it has all that is set."""

    name: str
    kind: GateKind
    # A lambda, one of its versions, a prefix that ends with *, or *.
    lambda_name: str
    # Empty, or None: of any.
    collection: str = ""
    priority: Priority | None = None
    session: str = ""
    delay: timedelta | None = None
    owner: str
    reason: str
    created_at: datetime
    # None: until it is removed.
    expires_at: datetime | None = None
    # Tasks that are parked on it, counted up to 10,000. A gate on whole queues parks none.
    parked: int = 0
    # The cells that have it: one on * is in all; none: the installation has no cells.
    cells: tuple[str, ...] = ()
    # After `put_gate` of one that was there: the fields that the call changed. None otherwise.
    changed: tuple[str, ...] | None = None

    @classmethod
    def from_proto(cls, gate: gates_pb2.Gate, changed: tuple[str, ...] | None = None) -> Gate:
        """Return the view of a gate as it came over the wire."""
        return view(cls, gate.scope, gate, changed=changed)


@dataclass(frozen=True, slots=True)
class GateHits:
    """How many live tasks a gate would hit."""

    # By status.
    counts: dict[TaskStatus, int]
    # True: there may be more, for there are too many tasks to count them all.
    truncated: bool

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """What pauses a lambda when too many of its runs fail, and where that stands."""

    lambda_name: str
    # Opens when so large a part of the runs that ended within the window failed, if at least `minimum` ended.
    failure_rate: float
    minimum: int
    window: timedelta
    # How long it stays open before it lets `probes` tasks through.
    pause: timedelta
    probes: int
    owner: str
    reason: str
    changed_at: datetime
    state: BreakerState
    state_since: datetime
    # Of the runs that ended within the window.
    ended: int
    failed: int
    # The cell that it lives in; empty: the installation has no cells.
    cell: str = ""
    # After `put_breaker` of one that was there: the fields that the call changed. None otherwise.
    changed: tuple[str, ...] | None = None

    @classmethod
    def from_proto(cls, breaker: gates_pb2.Breaker, changed: tuple[str, ...] | None = None) -> Breaker:
        """Return the view of a breaker as it came over the wire."""
        return view(cls, breaker, changed=changed)
