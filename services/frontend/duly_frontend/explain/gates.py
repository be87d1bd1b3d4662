"""The reasons of tasks that gates hit."""

from duly_core.gates.rules import Gate, GateSet, Kind
from duly_core.gates.store import read_gates
from duly_core.postgres.pool import Store
from duly_core.tasks.store import TaskRow
from duly_frontend.explain.text import ago, command, one_line, reason, span
from duly_wire.gate_names import BREAKER
from duly_wire.v1 import explain_pb2

GATE = "gate:"
"""Begins what a task is parked on that a gate holds back."""
_NO_VERSION = -1


async def gate_reasons(store: Store, row: TaskRow) -> list[explain_pb2.Reason]:
    """Say which gates hold a task back that nobody runs, or will do something to it once it is due.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    gates = (await read_gates(store, _NO_VERSION)).gates or []
    found = GateSet(gates).holding(
        row["lambda"], row["priority"], row["collection"], row["session"], row["passed_gates"]
    )
    # what holds it now comes first
    found.sort(key=lambda gate: gate.kind in (Kind.DROP, Kind.DELAY))
    reasons = [_reason(row, gate) for gate in found]
    parked_on = (row["parked_on"] or "").removeprefix(GATE)
    is_parked = (row["parked_on"] or "").startswith(GATE)
    if is_parked and parked_on not in {gate.name for gate in found}:
        return [
            reason(
                explain_pb2.REASON_KIND_GATE,
                f"the gate {parked_on!r} held it and is gone: a Store Consumer releases it",
                f"if it is not released, check the Store Consumer: {command('health')}",
                gate=parked_on,
            ),
            *reasons,
        ]
    return reasons


def _reason(row: TaskRow, gate: Gate) -> explain_pb2.Reason:
    does = {
        Kind.PAUSE: "holds it back",
        Kind.DROP: "drops it once it is due",
        Kind.DELAY: f"delays it by {span(gate.delay)} once it is due" if gate.delay else "delays it",
    }.get(gate.kind, "holds it back")  # of a newer release
    until = "" if gate.expires_at is None else f", for another {span(gate.expires_at - row['now'])}"
    probes = "; some tasks are let through as probes" if gate.probes_until is not None else ""
    why = f": {gate.reason}" if gate.reason else ""
    owner = f" by {gate.owner}" if gate.owner else ""
    is_breaker = gate.name.startswith(BREAKER)
    return reason(
        explain_pb2.REASON_KIND_GATE,
        one_line(
            f"the gate {gate.name!r} {does}{until} (set {ago(row, gate.created_at)}{owner}{why}){probes}"
        ),
        _of_breaker(row["lambda"]) if is_breaker else _of_gate(gate),
        since_at=gate.created_at,
        until_at=gate.expires_at,
        gate=gate.name,
    )


def _of_breaker(name: str) -> str:
    failed = command("dead-letters", "--lambda", name)
    failing = command("list", "--lambda", name, "--status", "retriable_failure")
    return f"fix what fails: {failed}, or {failing}; the breaker closes by itself once probes succeed"


def _of_gate(gate: Gate) -> str:
    return f"once the gate is no longer needed: {command('gates', 'delete', gate.name)}"
