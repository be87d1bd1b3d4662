"""Do what gates do to due tasks: park, drop and delay them in batches, and release what was parked."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from duly_core.gates.rules import Gate, GateSet, Kind
from duly_core.gates.store import gate_columns
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.arrays import int2s, texts, uuids
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import READS, TRANSITIONS
from duly_wire.ids import TaskId

_BATCH = {Kind.PAUSE: 5_000, Kind.DELAY: 5_000, Kind.DROP: 500}
"""Tasks of one statement: to end one costs more than to change it."""
_STATEMENTS = {Kind.PAUSE: "park_gated", Kind.DELAY: "delay_gated", Kind.DROP: "drop_gated"}
_MOST_QUEUES = 4_000
"""Of one statement."""


@dataclass(slots=True)
class Swept:
    """What a batch did."""

    tasks: int = 0
    is_full: bool = False
    """There may be more."""
    due_lambdas: set[str] = field(default_factory=set)
    """The lambdas of tasks that waited for a task that was dropped, or that were delayed."""
    due_in: timedelta = timedelta()
    """How far ahead the first of them is due."""


async def sweep(store: Store, gate: Gate, queues: Sequence[QueueKey], since: datetime | None) -> Swept:
    """Do to a batch of due tasks what a gate does, unless it is gone.

    Args:
        store: where.
        gate: hits them.
        queues: those that the gate covers.
        since: tasks that were due before are left out; None: none is.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    swept = Swept()
    ahead: list[timedelta] = []
    for first in range(0, len(queues), _MOST_QUEUES):
        part = queues[first : first + _MOST_QUEUES]
        rows = await store.run(TRANSITIONS[_STATEMENTS[gate.kind]], _parameters(gate, part, since))
        if gate.kind is Kind.DROP:
            tasks = sum(row[0] is not None for row in rows)
            swept.due_lambdas.update(row[1] for row in rows if row[0] is None)
        else:
            tasks = sum(row[1] for row in rows)
        if gate.kind is Kind.DELAY:
            swept.due_lambdas.update(row[0] for row in rows)
            ahead += [row[2] for row in rows]
        swept.tasks += tasks
        swept.is_full |= tasks >= _BATCH[gate.kind]
    swept.due_in = min(ahead, default=timedelta())
    return swept


def _parameters(gate: Gate, queues: Sequence[QueueKey], since: datetime | None) -> dict[str, Any]:
    return {
        "gate_id": gate.gate_id,
        "lambdas": texts([queue.lambda_name for queue in queues]),
        "priorities": int2s([queue.priority for queue in queues]),
        "collection": gate.scope.collection,
        "session": gate.scope.session,
        "since": since,
        "limit": _BATCH[gate.kind],
    }


async def take_from_queues(store: Store, gates: GateSet, lambdas: Collection[str]) -> tuple[int, set[str]]:
    """Take a batch of tasks that gates hold from the queues beside the store.

    Returns how many there were, and the lambdas of tasks that were parked on their units, and are due.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    held = [*gates.all_of(lambdas)]
    if not held:
        return 0, set()
    columns = gate_columns(held)
    rows = await store.run(READS["enqueued_gated"], columns | {"limit": _BATCH[Kind.PAUSE]})
    freed = await dequeue(store, held, [row[0] for row in rows]) if rows else set()
    return len(rows), freed


async def dequeue(
    store: Store, held: Iterable[tuple[str, Sequence[Gate]]], task_ids: Collection[TaskId]
) -> set[str]:
    """Take those of these tasks that gates hold from the queues beside the store.

    Returns the lambdas of tasks that were parked on their units, and are due.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    parameters = gate_columns(held) | {"task_ids": uuids(sorted(task_ids))}
    rows = await store.run(TRANSITIONS["dequeue_gated"], parameters)
    return {row[1] for row in rows if row[0] is None}


async def release_parked(store: Store) -> tuple[dict[str, int], bool]:
    """Release a batch of the tasks that are parked on gates that are gone.

    Returns how many of each lambda, and whether there may be more.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    released: dict[str, int] = {}
    gone = await store.run(READS["parked_on_gates"], {})
    for parked_on, parked_key in gone:
        rows = await store.run(
            TRANSITIONS["release_gated"],
            {"parked_on": parked_on, "parked_key": parked_key, "limit": _BATCH[Kind.PAUSE]},
        )
        for lambda_name, count in rows:
            released[lambda_name] = released.get(lambda_name, 0) + count
    return released, bool(gone)
