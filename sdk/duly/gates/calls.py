"""The part of AsyncClient that is about gates and breakers."""

from __future__ import annotations

from datetime import datetime, timedelta

from duly.errors import InvalidTaskError
from duly.gates.gate import Breaker, Gate, GateHits
from duly.keep import KEEP, Keep, said
from duly.tasks.new_task import aware
from duly.transport import error_mapping
from duly.transport.client_part import ClientPart
from duly.transport.enum_members import member
from duly.transport.message_fields import wire_member
from duly_wire.enums import GateKind, Priority, TaskStatus
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import gates_pb2


class GateCalls(ClientPart):
    """Pauses, drops and delays tasks that nobody runs yet."""

    async def put_gate(
        self,
        name: str,
        kind: GateKind | Keep = KEEP,
        lambda_name: str | Keep = KEEP,
        *,
        collection: str | Keep | None = KEEP,
        priority: Priority | Keep | None = KEEP,
        session: str | Keep | None = KEEP,
        delay: timedelta | Keep | None = KEEP,
        reason: str | Keep | None = KEEP,
        expires_at: datetime | Keep | None = KEEP,
        duration: timedelta | None = None,
        owner: str = "",
    ) -> Gate:
        """Set a gate, or change the one of its name. What is not given stays as it is, and None removes a value.

            await client.put_gate("black-friday", duly.GateKind.PAUSE, "mail.send", duration=timedelta(hours=2))
            await client.put_gate("black-friday", reason="until the provider is back", expires_at=None)

        - `kind` and `lambda_name`: a new gate needs both. A `kind` other than DELAY removes the `delay`.
        - `lambda_name`: a lambda, one of its versions, a prefix such as `shop/*`, or `*`.
        - `collection`, `priority`, `session`: only tasks that have these.
        - `delay`: with DELAY, by how much due times move.
        - `expires_at` or `duration`: until when it is in force. Without: until it is removed.
        - `owner`: who sets a new gate, if the Frontend does not ask who calls.

        `changed` of the answer names what changed; it is None for a new gate. Raises InvalidTaskError, PermissionDeniedError.
        """
        request = _request(name, kind, lambda_name, collection, priority, session)
        request.gate.owner = owner
        if delay is KEEP and kind is not KEEP and kind is not GateKind.DELAY:
            delay = None
        for field, value in said({"delay": delay, "reason": reason, "expires_at": expires_at}):
            request.update_mask.paths.append(field)
            if value is None:
                continue
            if field == "reason":
                request.gate.reason = value
            elif field == "delay":
                request.gate.delay.CopyFrom(to_duration(value))
            else:
                request.gate.expires_at.CopyFrom(to_timestamp(aware("expires_at", value)))
        if duration is not None:
            request.duration.CopyFrom(to_duration(duration))
            request.update_mask.paths.append("expires_at")
        if not request.update_mask.paths:
            raise InvalidTaskError(f"say what to change of the gate {name!r}", "gate")
        response = await self._caller.call(self._caller.gates.PutGate, request)
        return Gate.from_proto(
            response.gate, None if response.created else tuple(response.changed_fields.paths)
        )

    async def gate_hits(
        self,
        lambda_name: str | Keep = KEEP,
        *,
        name: str = "",
        collection: str | Keep | None = KEEP,
        priority: Priority | Keep | None = KEEP,
        session: str | Keep | None = KEEP,
    ) -> GateHits:
        """Count the live tasks that a gate of this scope would hit now, by status. Nothing is set.

        `name`: of a gate that is there; what is not given is as it is there. Without it `lambda_name` is needed.
        """
        kind = KEEP if name else GateKind.PAUSE
        request = _request(name, kind, lambda_name, collection, priority, session)
        request.dry_run = True
        response = await self._caller.call(self._caller.gates.PutGate, request)
        counts = {wire_member(TaskStatus, each.status): each.count for each in response.hits}
        return GateHits(counts, response.truncated)

    async def delete_gate(self, name: str) -> None:
        """Remove a gate: what it held is due at once. Raises UnknownGateError."""
        request = gates_pb2.DeleteGatesRequest(names=[name])
        (result,) = (await self._caller.call(self._caller.gates.DeleteGates, request)).results
        error_mapping.check(result)

    async def gates(self, *, lambda_name: str = "", cell: str = "") -> list[Gate]:
        """Return the gates in force, by name; those of breakers, too.

        - `lambda_name`: only those that hit tasks of this lambda, version or prefix, or some of them.
        - `cell`: only those of this cell; without cells it is refused.

        Raises InvalidTaskError.
        """
        request = gates_pb2.ListGatesRequest(cell=cell)
        setattr(request, "lambda", lambda_name)
        response = await self._caller.call(self._caller.gates.ListGates, request)
        return [Gate.from_proto(each) for each in response.gates]

    async def put_breaker(
        self,
        lambda_name: str,
        failure_rate: float | Keep = KEEP,
        *,
        minimum: int | Keep | None = KEEP,
        window: timedelta | Keep | None = KEEP,
        pause: timedelta | Keep | None = KEEP,
        probes: int | Keep | None = KEEP,
        reason: str | Keep | None = KEEP,
        owner: str = "",
    ) -> Breaker:
        """Pause a lambda by itself when too many of its runs fail, or change when that is.

            await client.put_breaker("mail.send", 0.5)
            await client.put_breaker("mail.send", pause=timedelta(minutes=5))

        It opens when `failure_rate` of at least `minimum` (20) runs that ended within `window` (1 minute) failed. After
        `pause` (30 s) it lets `probes` (3) tasks through, and closes if they succeed.

        What is not given stays as it is, and None is the default. A new breaker needs `failure_rate`, and is closed. A
        change keeps the state. `owner`: who sets a new one, if the Frontend does not ask who calls. `changed` of the answer
        names what changed; it is None for a new breaker. Raises InvalidTaskError, PermissionDeniedError.
        """
        breaker = gates_pb2.Breaker(owner=owner)
        setattr(breaker, "lambda", lambda_name)
        request = gates_pb2.PutBreakerRequest(breaker=breaker)
        values = {
            "failure_rate": failure_rate,
            "minimum": minimum,
            "window": window,
            "pause": pause,
            "probes": probes,
            "reason": reason,
        }
        for field, value in said(values):
            request.update_mask.paths.append(field)
            if isinstance(value, timedelta):
                getattr(request.breaker, field).CopyFrom(to_duration(value))
            elif value is not None:
                setattr(request.breaker, field, value)
        if not request.update_mask.paths:
            raise InvalidTaskError(f"say what to change of the breaker of {lambda_name!r}", "breaker")
        response = await self._caller.call(self._caller.gates.PutBreaker, request)
        return Breaker.from_proto(
            response.breaker, None if response.created else tuple(response.changed_fields.paths)
        )

    async def delete_breaker(self, lambda_name: str) -> None:
        """Remove the breaker of a lambda: what it held is due at once. Raises UnknownGateError."""
        request = gates_pb2.DeleteBreakersRequest(lambdas=[lambda_name])
        (result,) = (await self._caller.call(self._caller.gates.DeleteBreakers, request)).results
        error_mapping.check(result)

    async def breakers(self, *, cell: str = "") -> list[Breaker]:
        """Return the breakers, by lambda; `cell`: only those that live there."""
        request = gates_pb2.ListBreakersRequest(cell=cell)
        response = await self._caller.call(self._caller.gates.ListBreakers, request)
        return [Breaker.from_proto(each) for each in response.breakers]


def _request(
    name: str,
    kind: GateKind | Keep,
    lambda_name: str | Keep,
    collection: str | Keep | None,
    priority: Priority | Keep | None,
    session: str | Keep | None,
) -> gates_pb2.PutGateRequest:
    """Return a request that names what is given."""
    request = gates_pb2.PutGateRequest(gate=gates_pb2.Gate(name=name))
    if not isinstance(kind, Keep):
        request.gate.kind = member("kind", kind, GateKind)  # type: ignore[assignment]  # the same numbers
        request.update_mask.paths.append("kind")
    scope = {"lambda": lambda_name, "collection": collection, "priority": priority, "session": session}
    for field, value in said(scope):
        request.update_mask.paths.append(f"scope.{field}")
        if value is not None:
            number = member("priority", value, Priority) if field == "priority" else value
            setattr(request.gate.scope, field, number)
    return request
