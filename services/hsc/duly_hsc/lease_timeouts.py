"""The timeouts of leases that hold now, and how an answer names them."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import TypeAlias

from duly_core.config.live_sections import LiveTimingSettings
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import hsc_pb2


@dataclass(frozen=True, slots=True)
class LeaseTimeouts:
    """An answer never names a longer timeout than the statement behind it wrote: workers live by what they are told."""

    claim: timedelta
    heartbeat: timedelta

    @classmethod
    def of(cls, timing: LiveTimingSettings) -> "LeaseTimeouts":
        """Return those that are set."""
        return cls(timing.claim_timeout, timing.heartbeat_timeout)

    def to_wire(self) -> hsc_pb2.LeaseTerms:
        """Return the terms as answers have them; shared, so never changed."""
        return _to_wire(self)


LeaseTimeoutsNow: TypeAlias = Callable[[], LeaseTimeouts]


@lru_cache
def _to_wire(timeouts: LeaseTimeouts) -> hsc_pb2.LeaseTerms:
    return hsc_pb2.LeaseTerms(
        claim_timeout=to_duration(timeouts.claim), heartbeat_timeout=to_duration(timeouts.heartbeat)
    )
