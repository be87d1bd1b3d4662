"""A lambda as the registry knows it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from duly.policy import Backoff
from duly.time_conversion import to_datetime, to_timedelta
from duly.v1 import registry_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaInfo:
    """A registered lambda with every default filled in; the fields are those of `App.callback`."""

    name: str
    owner: str
    version: str
    max_attempts: int
    max_crashes: int
    crash_window: timedelta
    max_runtime: timedelta
    backoff: Backoff
    payload_limit: int
    registered_at: datetime
    updated_at: datetime

    @classmethod
    def from_proto(cls, registered: registry_pb2.RegisteredLambda) -> LambdaInfo:
        """Return the view of a lambda as it came over the wire."""
        declared = getattr(registered, "lambda")
        return cls(
            name=declared.name,
            owner=declared.owner,
            version=declared.version,
            max_attempts=declared.max_attempts,
            max_crashes=declared.max_crashes,
            crash_window=to_timedelta(declared.crash_window),
            max_runtime=to_timedelta(declared.max_runtime),
            backoff=Backoff(
                initial=to_timedelta(declared.backoff.initial) or None,
                factor=declared.backoff.factor or None,
                maximum=to_timedelta(declared.backoff.max) or None,
            ),
            payload_limit=declared.payload_limit,
            registered_at=to_datetime(registered.registered_at),
            updated_at=to_datetime(registered.updated_at),
        )
