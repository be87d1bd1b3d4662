"""Keep gates: what operators pause, drop and delay. What is done to tasks is in `gate_sweeps.py`."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any, NamedTuple

from psycopg.rows import TupleRow

from duly_core.errors import DulyError
from duly_core.gates.rules import Gate, GateScope, Kind
from duly_core.gates.statements import GATES
from duly_core.lambdas.live_tasks import count_live
from duly_core.postgres.arrays import int2s, texts, timestamps
from duly_core.postgres.pool import Connection, Store, fetch
from duly_core.process.newer_values import known
from duly_wire.enums import Priority
from duly_wire.gate_names import BREAKER

MOST_GATES = 1_000
"""In force at a time: each service keeps all of them in memory."""
MOST_PARKED = 10_000
"""Of the tasks parked on a gate so many are counted."""

MayChange = Callable[[Gate], bool]
"""Whether the caller may replace or remove a gate."""


class Snapshot(NamedTuple):
    """The gates in force at an instant of the store's clock."""

    version: int
    read_at: datetime
    gates: list[Gate] | None
    """None: those of the version that is known already."""


class ListedGate(NamedTuple):
    """A gate, with what is parked on it."""

    gate: Gate
    parked: int


class NewGate(NamedTuple):
    """What an operator asks for."""

    name: str
    kind: Kind
    scope: GateScope
    delay: timedelta | None
    owner: str
    reason: str
    expires_at: datetime | None
    duration: timedelta | None = None
    """Instead of expires_at."""


def gate_of(row: TupleRow) -> Gate:
    """Make a gate of a row's columns."""
    gate_id, name, kind, pattern, collection, priority, session, *rest = row
    # a priority that only a newer release knows is that of no task here
    scope = GateScope(pattern, collection, priority and (known(Priority, priority) or priority), session)
    return Gate(gate_id, name, known(Kind, kind) or Kind.UNKNOWN, scope, *rest)


async def read_gates(store: Store, known_version: int) -> Snapshot:
    """Read the gates in force, if their version is not the known one.

    Raises:
        StoreUnavailableError: ask again.
    """
    rows = await store.run(GATES["read_gates"], {"version": known_version})
    version, read_at = rows[0][:2]
    if version == known_version:
        return Snapshot(version, read_at, None)
    return Snapshot(version, read_at, [gate_of(row[2:]) for row in rows if row[2] is not None])


async def breaker_lambdas(store: Store) -> frozenset[str]:
    """Return the lambdas that have breakers.

    Raises:
        StoreUnavailableError: ask again.
    """
    return frozenset(row[0] for row in await store.run(GATES["breaker_lambdas"], {}))


async def list_gates(store: Store) -> list[ListedGate]:
    """Return the gates in force, by name."""
    return [
        ListedGate(gate_of(row[:-1]), row[-1])
        for row in await store.run(GATES["list_gates"], {"most": MOST_PARKED})
    ]


class GateRefusedError(DulyError):
    """The caller may not change the gate of this name."""


class PutGate(NamedTuple):
    """A gate that was set, and what it was before; None: it is new."""

    gate: Gate
    before: Gate | None


async def put_gate(
    store: Store,
    name: str,
    make: Callable[[Gate | None], NewGate],
    may_change: MayChange = lambda _: True,
    most_of_owner: int = MOST_GATES,
    most: int | None = None,
) -> PutGate | None:
    """Set a gate, or change the one of its name; None: there are too many for a new one, of this owner or in all.

    Args:
        store: where.
        name: of the gate.
        make: returns the gate to be from the gate of this name that is in force (None: there is none). Nobody changes gates
            meanwhile. What it raises is raised, and nothing is changed.
        may_change: whether the caller may change this gate.
        most_of_owner: a new gate is refused where its owner has so many others.
        most: a new gate is refused where there are so many others. None: MOST_GATES.

    Raises:
        GateRefusedError: the name is that of a gate of which `may_change` says no.
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    async with store.connection() as connection, connection.transaction():
        await fetch(connection, GATES["lock_gates"], {})  # one change at a time
        before = await _in_force(connection, name, may_change)
        asked = make(before)
        others_like = {"name": asked.name, "owner": asked.owner}
        ((others, of_owner),) = await fetch(connection, GATES["count_gates"], others_like)
        if before is None and (others >= (MOST_GATES if most is None else most) or of_owner >= most_of_owner):
            return None
        columns = _columns(asked)
        rows = await fetch(connection, GATES["keep_gate"], columns)
        if not rows:
            await fetch(connection, GATES["delete_gates"], {"names": texts([asked.name])})
            rows = await fetch(connection, GATES["insert_gate"], columns)
        await change_gates(connection)
    return PutGate(gate_of(rows[0]), before)


async def gate_in_force(store: Store, name: str, may_change: MayChange) -> Gate | None:
    """Return the gate of a name; None: there is none.

    Raises:
        GateRefusedError: `may_change` says no.
        StoreUnavailableError: ask again.
    """
    async with store.connection() as connection:
        return await _in_force(connection, name, may_change)


async def gates_in_force(store: Store, names: Sequence[str]) -> list[Gate]:
    """Return the gates of these names that are in force.

    Raises:
        StoreUnavailableError: ask again.
    """
    async with store.connection() as connection:
        return await _of_those_in_force(connection, await _named(connection, names))


async def _in_force(connection: Connection, name: str, may_change: MayChange) -> Gate | None:
    found = await _named(connection, [name])
    if any(not may_change(gate) for gate in found):
        raise GateRefusedError(name)
    return next(iter(await _of_those_in_force(connection, found)), None)


async def _of_those_in_force(connection: Connection, found: Sequence[Gate]) -> list[Gate]:
    names = texts([gate.name for gate in found])
    in_force = {row[0] for row in await fetch(connection, GATES["gates_in_force"], {"names": names})}
    return [gate for gate in found if gate.gate_id in in_force]


async def delete_gates(
    store: Store, names: Sequence[str], may_change: MayChange = lambda _: True
) -> tuple[set[str], list[Gate]]:
    """Remove gates; return the names of those that are gone, and those of which `may_change` says no, which stay.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    async with store.connection() as connection, connection.transaction():
        await fetch(connection, GATES["lock_gates"], {})
        refused = [gate for gate in await _named(connection, names) if not may_change(gate)]
        allowed = texts(sorted({*names} - {gate.name for gate in refused}))
        rows = await fetch(connection, GATES["delete_gates"], {"names": allowed})
        if rows:
            await change_gates(connection)
    return {row[0] for row in rows}, refused


async def _named(connection: Connection, names: Sequence[str]) -> list[Gate]:
    return [gate_of(row) for row in await fetch(connection, GATES["gates_named"], {"names": texts(names)})]


async def expire_gates(store: Store) -> list[str]:
    """Remove the gates whose time is over; return their names.

    Raises:
        StoreUnavailableError: ask again.
    """
    async with store.connection() as connection, connection.transaction():
        await fetch(connection, GATES["lock_gates"], {})
        rows = await fetch(connection, GATES["expire_gates"], {})
        if rows:
            await change_gates(connection)
    return [row[0] for row in rows]


async def count_hits(store: Store, scope: GateScope) -> tuple[dict[str, int], bool]:
    """Count the live tasks that a gate of this scope would hit, by status; and whether there may be more.

    Raises:
        StoreUnavailableError: ask again.
    """
    async with store.connection() as connection:
        found = await count_live(
            connection, scope.pattern, scope.priority, collection=scope.collection, session=scope.session
        )
    return found.by_status, not found.is_complete


def gate_columns(gates_by_lambda: Iterable[tuple[str, Sequence[Gate]]]) -> dict[str, Any]:
    """Return the parameters by which statements judge rows.

    Many lambdas share their gates, such as those on `*`. So each set of gates is told once, and of each lambda the number of
    its set: what a statement reads grows with lambdas plus gates, not with their product.
    """
    numbers: dict[tuple[int, ...], int] = {}
    sets: list[Sequence[Gate]] = []
    set_of: dict[str, str] = {}
    for name, gates in gates_by_lambda:
        number = numbers.setdefault(tuple(gate.gate_id for gate in gates), len(numbers) + 1)
        if number > len(sets):
            sets.append(gates)
        set_of[name] = str(number)
    ends = [*accumulate(len(gates) for gates in sets)]
    told = [gate for gates in sets for gate in gates]
    return {
        "gated_lambdas": texts([*set_of]),
        "gate_sets": texts([*set_of.values()]),
        "set_firsts": [end - len(gates) + 1 for end, gates in zip(ends, sets, strict=True)],
        "set_lasts": ends,
        "set_probes_until": timestamps([_probes_until(gates) for gates in sets]),
        "gate_ids": [gate.gate_id for gate in told],
        "gate_priorities": int2s([gate.scope.priority for gate in told]),
        "gate_collections": texts([gate.scope.collection for gate in told]),
        "gate_sessions": texts([gate.scope.session for gate in told]),
    }


def _probes_until(gates: Iterable[Gate]) -> datetime | None:
    return min((gate.probes_until for gate in gates if gate.probes_until is not None), default=None)


async def change_gates(connection: Connection) -> None:
    """Raise the version and tell every service, in the transaction of a change."""
    await fetch(connection, GATES["raise_gate_version"], {})
    await fetch(connection, GATES["notify_gates_changed"], {})


def name_of_breaker_gate(lambda_name: str) -> str:
    """Return the name of the gate of a lambda's breaker."""
    return f"{BREAKER}{lambda_name}"


def _columns(asked: NewGate) -> dict[str, Any]:
    return {
        "name": asked.name,
        "kind": str(asked.kind),
        "pattern": asked.scope.pattern,
        "collection": asked.scope.collection,
        "priority": asked.scope.priority and int(asked.scope.priority),
        "session": asked.scope.session,
        "delay": asked.delay,
        "owner": asked.owner,
        "reason": asked.reason,
        "expires_at": asked.expires_at,
        "duration": asked.duration,
    }
