"""The part of AsyncClient that is about gates and breakers."""

from __future__ import annotations

from datetime import datetime, timedelta

from duly import error_mapping
from duly.client_part import ClientPart
from duly.enums import GateKind, Priority, TaskStatus, member
from duly.gate import Breaker, Gate, GateHits
from duly.time_conversion import to_duration, to_timestamp
from duly.v1 import gates_pb2


class GateCalls(ClientPart):
    """Pauses, drops and delays tasks that nobody runs yet."""

    async def put_gate(
        self,
        name: str,
        kind: GateKind,
        lambda_name: str,
        *,
        collection: str = "",
        priority: Priority | None = None,
        session: str = "",
        delay: timedelta | None = None,
        reason: str = "",
        expires_at: datetime | None = None,
        duration: timedelta | None = None,
        owner: str = "",
    ) -> Gate:
        """Set a gate, or replace the one of its name.

            await client.put_gate("black-friday", duly.GateKind.PAUSE, "mail.send", duration=timedelta(hours=2))

        - `lambda_name`: a lambda, one of its versions, a prefix such as `shop/*`, or `*`.
        - `collection`, `priority`, `session`: only tasks that have these.
        - `delay`: with DELAY, by how much due times move.
        - `expires_at` or `duration`: until when it is in force. Without: until it is removed.
        - `owner`: who sets it, if the Frontend does not ask who calls.

        Raises InvalidTaskError, PermissionDeniedError.
        """
        request = _request(name, kind, lambda_name, collection, priority, session, delay)
        request.gate.reason, request.gate.owner = reason, owner
        if expires_at is not None:
            request.gate.expires_at.CopyFrom(to_timestamp(expires_at))
        if duration is not None:
            request.duration.CopyFrom(to_duration(duration))
        response = await self._caller.call(self._caller.gates.PutGate, request)
        return Gate.from_proto(response.gate)

    async def gate_hits(
        self,
        lambda_name: str,
        *,
        collection: str = "",
        priority: Priority | None = None,
        session: str = "",
    ) -> GateHits:
        """Count the live tasks that a gate of this scope would hit now, by status. Nothing is set."""
        request = _request("dry-run", GateKind.PAUSE, lambda_name, collection, priority, session, None)
        request.dry_run = True
        response = await self._caller.call(self._caller.gates.PutGate, request)
        counts = {TaskStatus(each.status): each.count for each in response.hits}
        return GateHits(counts, response.truncated)

    async def delete_gate(self, name: str) -> None:
        """Remove a gate: what it held is due at once. Raises UnknownGateError."""
        request = gates_pb2.DeleteGatesRequest(names=[name])
        (result,) = (await self._caller.call(self._caller.gates.DeleteGates, request)).results
        error_mapping.check(result)

    async def gates(self) -> list[Gate]:
        """Return the gates in force, by name; those of breakers, too."""
        response = await self._caller.call(self._caller.gates.ListGates, gates_pb2.ListGatesRequest())
        return [Gate.from_proto(each) for each in response.gates]

    async def put_breaker(
        self,
        lambda_name: str,
        failure_rate: float,
        *,
        minimum: int = 20,
        window: timedelta = timedelta(minutes=1),
        pause: timedelta = timedelta(seconds=30),
        probes: int = 3,
        reason: str = "",
        owner: str = "",
    ) -> Breaker:
        """Pause a lambda by itself when too many of its runs fail, or change when that is. It begins closed.

            await client.put_breaker("mail.send", 0.5)

        It opens when `failure_rate` of at least `minimum` runs that ended within `window` failed. After `pause` it lets
        `probes` tasks through, and closes if they succeed. Raises InvalidTaskError, PermissionDeniedError.
        """
        breaker = gates_pb2.Breaker(
            failure_rate=failure_rate,
            minimum=minimum,
            window=to_duration(window),
            pause=to_duration(pause),
            probes=probes,
            reason=reason,
            owner=owner,
        )
        setattr(breaker, "lambda", lambda_name)
        request = gates_pb2.PutBreakerRequest(breaker=breaker)
        response = await self._caller.call(self._caller.gates.PutBreaker, request)
        return Breaker.from_proto(response.breaker)

    async def delete_breaker(self, lambda_name: str) -> None:
        """Remove the breaker of a lambda: what it held is due at once. Raises UnknownGateError."""
        request = gates_pb2.DeleteBreakersRequest(lambdas=[lambda_name])
        (result,) = (await self._caller.call(self._caller.gates.DeleteBreakers, request)).results
        error_mapping.check(result)

    async def breakers(self) -> list[Breaker]:
        """Return the breakers, by lambda."""
        response = await self._caller.call(self._caller.gates.ListBreakers, gates_pb2.ListBreakersRequest())
        return [Breaker.from_proto(each) for each in response.breakers]


def _request(
    name: str,
    kind: GateKind,
    lambda_name: str,
    collection: str,
    priority: Priority | None,
    session: str,
    delay: timedelta | None,
) -> gates_pb2.PutGateRequest:
    scope = gates_pb2.GateScope(collection=collection, session=session)
    setattr(scope, "lambda", lambda_name)
    if priority is not None:
        scope.priority = member("priority", priority, Priority)  # type: ignore[assignment]  # the same numbers
    gate = gates_pb2.Gate(name=name, kind=member("kind", kind, GateKind), scope=scope)  # type: ignore[arg-type]
    if delay is not None:
        gate.delay.CopyFrom(to_duration(delay))
    return gates_pb2.PutGateRequest(gate=gate)
