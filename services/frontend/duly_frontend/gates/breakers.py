"""The part of GateService that is about breakers."""

import math
from collections.abc import Mapping
from datetime import timedelta

from duly_core.access.current import restriction
from duly_core.access.roles import Action
from duly_core.gates import breakers as store_breakers
from duly_core.gates.breaker_rules import Breaker, State
from duly_core.gates.breakers import NewBreaker
from duly_core.rpc.checks import check_count, check_text, read_duration
from duly_core.rpc.field_masks import changed_fields, is_set, merged, named_fields
from duly_core.rpc.name_checks import check_lambda_name
from duly_core.rpc.problem import Problem
from duly_core.rpc.stubs import Context
from duly_frontend import events
from duly_frontend.gates.checks import LONGEST_NAME, LONGEST_REASON, MOST, owner_of
from duly_frontend.stores import FrontendStores
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import gates_pb2, gates_pb2_grpc, task_pb2

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


class BreakerCalls(gates_pb2_grpc.GateServiceServicer):
    """Sets, removes and lists breakers."""

    _stores: FrontendStores

    async def PutBreaker(  # noqa: N802 (the wire's name)
        self, request: gates_pb2.PutBreakerRequest, _context: Context
    ) -> gates_pb2.PutBreakerResponse:
        name: str = getattr(request.breaker, "lambda")
        check_lambda_name("breaker.lambda", name)
        mask = request.update_mask if request.HasField("update_mask") else None
        named = named_fields("update_mask", mask, request.breaker, BREAKER_FIELDS)
        done = await store_breakers.put_breaker(
            self._stores.writes, name, lambda before: _read(request.breaker, before, named)
        )
        if done is None:
            raise Problem(
                "breaker", f"there are {store_breakers.MOST_BREAKERS:,} breakers: remove some first"
            )
        after = _to_wire(done.breaker)
        before = gates_pb2.Breaker() if done.before is None else _to_wire(done.before)
        changed = changed_fields(before, after, BREAKER_FIELDS)
        events.gates_changed.inc()
        events.log.info(
            "breaker set",
            **{"lambda": name},
            failure_rate=done.breaker.failure_rate,
            changed=[*changed.paths],
        )
        return gates_pb2.PutBreakerResponse(
            breaker=after, created=done.before is None, changed_fields=changed
        )

    async def DeleteBreakers(  # noqa: N802
        self, request: gates_pb2.DeleteBreakersRequest, _context: Context
    ) -> gates_pb2.DeleteBreakersResponse:
        check_count("lambdas", len(request.lambdas), MOST)
        for name in request.lambdas:
            check_text("lambdas", name, LONGEST_NAME)
        gone = await store_breakers.delete_breakers(self._stores.writes, [*request.lambdas])
        events.gates_changed.inc(len(gone))
        for name in sorted(gone):
            events.log.info("breaker removed", **{"lambda": name})
        return gates_pb2.DeleteBreakersResponse(results=[_deleted(name, gone) for name in request.lambdas])

    async def ListBreakers(  # noqa: N802
        self, _request: gates_pb2.ListBreakersRequest, _context: Context
    ) -> gates_pb2.ListBreakersResponse:
        scope = restriction(Action.READ)
        with self._stores.listing("ListBreakers") as lists:
            found = await store_breakers.list_breakers(lists)
        seen = [each for each in found if scope is None or scope.covers(each.lambda_name)]
        return gates_pb2.ListBreakersResponse(breakers=map(_to_wire, seen))


def _deleted(name: str, gone: set[str]) -> gates_pb2.DeleteBreakerResult:
    if name in gone:
        return gates_pb2.DeleteBreakerResult()
    problem = Problem("lambda", f"{name!r} has no breaker", task_pb2.ERROR_CODE_UNKNOWN_GATE)
    return gates_pb2.DeleteBreakerResult(error=problem.to_wire())


def _read(said: gates_pb2.Breaker, before: Breaker | None, named: frozenset[str]) -> NewBreaker:
    """Return the breaker to be: `before`, with the named fields as they were said; those that are unset get their defaults.

    Raises:
        Problem: it is invalid.
    """
    asked = merged(_DEFAULTS if before is None else _to_wire(before), said, named)
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


def _to_wire(breaker: Breaker) -> gates_pb2.Breaker:
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
