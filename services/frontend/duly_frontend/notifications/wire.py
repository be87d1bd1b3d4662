"""Converts targets of notifications to the wire, without addresses and secrets."""

from typing import cast

from duly_core.notifications.settings import Target
from duly_core.notifications.store import TargetState
from duly_core.problems.kinds import Kind, Severity
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import problems_pb2


def target_to_wire(name: str, target: Target, state: TargetState | None) -> problems_pb2.NotificationTarget:
    """Return a target; `state` is None: nobody has sent to it yet."""
    message = problems_pb2.NotificationTarget(
        name=name,
        kind=target.kind,
        severity=cast("problems_pb2.ProblemSeverity.ValueType", int(Severity[target.severity.upper()])),
        kinds=[cast("problems_pb2.ProblemKind.ValueType", int(Kind[kind.upper()])) for kind in target.kinds],
        lambdas=target.lambdas,
        delay=to_duration(target.delay),
        resolved=target.resolved,
    )
    if target.repeat:
        message.repeat.CopyFrom(to_duration(target.repeat))
    if state is None:
        return message
    message.failure = state.failure
    message.failures = state.failures
    message.is_message_under_way = state.is_message_under_way
    for field in ("last_success_at", "last_failure_at", "failing_since", "next_attempt_at"):
        instant = getattr(state, field)
        if instant is not None:
            getattr(message, field).CopyFrom(to_timestamp(instant))
    return message
