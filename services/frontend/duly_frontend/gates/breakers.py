"""Breakers of requests: checked, and written to the wire."""

import math
from collections.abc import Mapping
from datetime import timedelta

from duly_core.gates.breaker_rules import Breaker, State
from duly_core.gates.breakers import NewBreaker
from duly_core.rpc.requests.checks import check_text, read_duration
from duly_core.rpc.requests.field_masks import is_set, merged
from duly_core.rpc.requests.problem import Problem
from duly_frontend.gates.checks import LONGEST_REASON, owner_of
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import gates_pb2, task_pb2

_SECOND = timedelta(seconds=1)
_LONGEST_WINDOW = timedelta(hours=1)
_LONGEST_PAUSE = timedelta(days=1)
_LARGEST_MINIMUM = 1_000_000
_MOST_PROBES = 1_000
_STATES: Mapping[str, gates_pb2.BreakerState.ValueType] = {
    State.CLOSED: gates_pb2.BREAKER_STATE_CLOSED,
    State.OPEN: gates_pb2.BREAKER_STATE_OPEN,
    State.HALF_OPEN: gates_pb2.BREAKER_STATE_HALF_OPEN,
}


BREAKER_FIELDS = ("failure_rate", "minimum", "window", "pause", "probes", "reason")
"""What a mask may name of a breaker."""
_DEFAULTS = gates_pb2.Breaker(
    minimum=20, window=to_duration(timedelta(minutes=1)), pause=to_duration(timedelta(seconds=30)), probes=3
)


def deleted_breaker(name: str, gone: set[str]) -> gates_pb2.DeleteBreakerResult:
    """Return the answer about one breaker that was to be removed."""
    if name in gone:
        return gates_pb2.DeleteBreakerResult()
    problem = Problem("lambda", f"{name!r} has no breaker", task_pb2.ERROR_CODE_UNKNOWN_GATE)
    return gates_pb2.DeleteBreakerResult(error=problem.to_wire())


def read_breaker(said: gates_pb2.Breaker, before: Breaker | None, named: frozenset[str]) -> NewBreaker:
    """Return the breaker to be: `before`, with the named fields as they were said; those that are unset get their defaults.

    Raises:
        Problem: it is invalid.
    """
    asked = merged(_DEFAULTS if before is None else breaker_to_wire(before), said, named)
    for path in BREAKER_FIELDS:
        if not is_set(asked, path):
            asked = merged(asked, _DEFAULTS, [path])
    name: str = getattr(said, "lambda")
    if not (math.isfinite(asked.failure_rate) and 0 < asked.failure_rate <= 1):
        raise Problem("breaker.failure_rate", f"must be above 0 and at most 1, not {asked.failure_rate:g}")
    if not 1 <= asked.minimum <= _LARGEST_MINIMUM:
        raise Problem("breaker.minimum", f"must be 1 to {_LARGEST_MINIMUM:,}, not {asked.minimum:,}")
    if not 1 <= asked.probes <= _MOST_PROBES:
        raise Problem("breaker.probes", f"must be 1 to {_MOST_PROBES:,}, not {asked.probes:,}")
    check_text("breaker.reason", asked.reason, LONGEST_REASON)
    return NewBreaker(
        name,
        asked.failure_rate,
        asked.minimum,
        read_duration("breaker.window", asked.window, _LONGEST_WINDOW, least=_SECOND),
        read_duration("breaker.pause", asked.pause, _LONGEST_PAUSE, least=_SECOND),
        asked.probes,
        owner_of(said.owner) if before is None else before.owner,
        asked.reason,
    )


def breaker_to_wire(breaker: Breaker) -> gates_pb2.Breaker:
    """Return a breaker as the wire has it."""
    message = gates_pb2.Breaker(
        failure_rate=breaker.failure_rate,
        minimum=breaker.minimum,
        window=to_duration(breaker.count_window),
        pause=to_duration(breaker.pause),
        probes=breaker.probes,
        reason=breaker.reason,
        owner=breaker.owner,
        changed_at=to_timestamp(breaker.changed_at),
        state=_STATES.get(breaker.state, gates_pb2.BREAKER_STATE_UNSPECIFIED),
        state_since=to_timestamp(breaker.state_since),
        ended=breaker.ended,
        failed=breaker.failed,
    )
    setattr(message, "lambda", breaker.lambda_name)
    return message
