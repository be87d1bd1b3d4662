"""Keep breakers: count how runs end, and move breakers between their states together with their gates."""

import json
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import NamedTuple

from duly_core.gates.breaker_rules import Breaker, State, Verdict, judge
from duly_core.gates.statements import GATES
from duly_core.gates.store import change_gates, name_of_breaker_gate
from duly_core.lambdas.names import base_name
from duly_core.postgres.arrays import int2s, texts, uuids
from duly_core.postgres.pool import Connection, Store, fetch, fetch_as
from duly_core.postgres.rows import named
from duly_core.postgres.statements import TRANSITIONS
from duly_wire.enums import Priority
from duly_wire.ids import TaskId

MOST_BREAKERS = 1_000
_BREAKER = named(Breaker)


class NewBreaker(NamedTuple):
    """What an operator asks for."""

    lambda_name: str
    failure_rate: float
    minimum: int
    window: timedelta
    pause: timedelta
    probes: int
    owner: str
    reason: str


class Moved(NamedTuple):
    """What became of a breaker."""

    lambda_name: str
    state: State
    reason: str


class Judged(NamedTuple):
    """What a look at all breakers did."""

    moved: list[Moved]
    due_lambdas: set[str]
    """The lambdas of which tasks may run now."""
    open_lambdas: set[str] | None
    """Those whose breakers are open or half open; None: nothing was looked at, for somebody changes gates."""


async def list_breakers(store: Store, lambdas: Sequence[str] | None = None) -> list[Breaker]:
    """Return breakers by lambda, with the runs that ended within their windows; None: all.

    Raises:
        StoreUnavailableError: ask again.
    """
    asked = None if lambdas is None else texts(lambdas)
    return await store.run_as(_BREAKER, GATES["list_breakers"], {"lambdas": asked})


class PutBreaker(NamedTuple):
    """A breaker that was set, and what it was before; None: it is new."""

    breaker: Breaker
    before: Breaker | None


async def put_breaker(
    store: Store, lambda_name: str, make: Callable[[Breaker | None], NewBreaker]
) -> PutBreaker | None:
    """Set the breaker of a lambda, or change it; None: there are too many. A new one is closed; a change keeps its state.

    `make` returns the breaker to be, from the one that is there (None: there is none). Nobody changes breakers meanwhile.
    What it raises is raised, and nothing is changed.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    async with store.connection() as connection, connection.transaction():
        await change_gates(connection)  # one change at a time
        parameters = {"lambdas": texts([lambda_name])}
        found = await fetch_as(_BREAKER, connection, GATES["list_breakers"], parameters)
        before = found[0] if found else None
        if before is None and len(await fetch(connection, GATES["breaker_lambdas"], {})) >= MOST_BREAKERS:
            return None
        asked = make(before)
        await fetch(
            connection,
            GATES["put_breaker"],
            {
                "lambda": asked.lambda_name,
                "failure_rate": asked.failure_rate,
                "minimum": asked.minimum,
                "window": asked.window,
                "pause": asked.pause,
                "probes": asked.probes,
                "owner": asked.owner,
                "reason": asked.reason,
            },
        )
        if before is None:
            await _remove_gates(connection, [lambda_name])
        (breaker,) = await fetch_as(_BREAKER, connection, GATES["list_breakers"], parameters)
    return PutBreaker(breaker, before)


async def delete_breakers(store: Store, lambdas: Sequence[str]) -> set[str]:
    """Remove breakers with their gates; return the lambdas that had one.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    async with store.connection() as connection, connection.transaction():
        await change_gates(connection)
        rows = await fetch(connection, GATES["delete_breakers"], {"lambdas": texts(lambdas)})
        await _remove_gates(connection, lambdas)
        for name, state in rows:
            if state != State.CLOSED:
                await _tell(connection, name, state, State.CLOSED, "it was removed")
    return {row[0] for row in rows}


async def count_ends(store: Store, ends: Sequence[tuple[TaskId, bool]]) -> None:
    """Count how runs ended, of lambdas that have breakers: each whether it failed.

    Raises:
        StoreUnavailableError: they may not be counted.
    """
    ordered = sorted(ends)
    await store.run(
        GATES["count_ends"],
        {"task_ids": uuids(each[0] for each in ordered), "failed": int2s([each[1] for each in ordered])},
    )


async def count_silent(store: Store, task_ids: Sequence[TaskId]) -> None:
    """Count runs whose holders fell silent as failed, of lambdas that have breakers.

    Raises:
        StoreUnavailableError: they may not be counted.
    """
    await store.run(GATES["count_silent"], {"task_ids": uuids(sorted(task_ids))})


async def judge_breakers(store: Store, lambdas: Collection[str]) -> Judged:
    """Look at all breakers, and move those whose time has come; at none while somebody else changes gates or breakers.

    `lambdas` has the registered ones, with their versions.

    Raises:
        StoreUnavailableError: nothing was changed, or all; ask again.
    """
    async with store.connection() as connection, connection.transaction():
        if not await fetch(connection, GATES["try_to_lock_gates"], {}):
            return Judged([], set(), None)
        open_lambdas: set[str] = set()
        judged = Judged([], set(), open_lambdas)
        is_changed = False
        for breaker in await fetch_as(_BREAKER, connection, GATES["lock_breakers"], {}):
            name = name_of_breaker_gate(breaker.lambda_name)
            gates = (
                await fetch(connection, GATES["gate_named"], {"name": name})
                if breaker.state != State.CLOSED
                else []
            )
            verdict = judge(breaker, has_gate=bool(gates))
            if (verdict.state or breaker.state) != State.CLOSED:
                open_lambdas.add(breaker.lambda_name)
            if verdict.state == breaker.state:  # other probes are let through: nothing to tell
                await _begin_state(connection, breaker, verdict)
            elif verdict.state is not None:
                is_changed = True
                await _move(connection, breaker, verdict)
                judged.moved.append(Moved(breaker.lambda_name, verdict.state, verdict.reason))
                if verdict.state is State.CLOSED:
                    judged.due_lambdas.add(breaker.lambda_name)
            if verdict.probes and gates:
                queues = [each for each in lambdas if breaker.lambda_name in (each, base_name(each))]
                if probed := await _let_through(connection, breaker, gates[0][0], verdict.probes, queues):
                    is_changed = True
                    judged.due_lambdas.update(probed)
        if is_changed:
            await change_gates(connection)
    return judged


async def forget_counts(store: Store) -> None:
    """Remove counts that no window has any more.

    Raises:
        StoreUnavailableError: ask again.
    """
    await store.run(GATES["forget_counts"], {})


async def _begin_state(connection: Connection, breaker: Breaker, verdict: Verdict) -> None:
    parameters = {"lambda": breaker.lambda_name, "state": str(verdict.state)}
    await fetch(connection, GATES["move_breaker"], parameters)


async def _move(connection: Connection, breaker: Breaker, verdict: Verdict) -> None:
    name = name_of_breaker_gate(breaker.lambda_name)
    await _begin_state(connection, breaker, verdict)
    if verdict.state is State.OPEN:
        await _remove_gates(connection, [breaker.lambda_name])
        opened = {"name": name, "lambda": breaker.lambda_name, "reason": verdict.reason}
        await fetch(connection, GATES["open_gate"], opened)
    elif verdict.state is State.CLOSED:
        await _remove_gates(connection, [breaker.lambda_name])
    await _tell(connection, breaker.lambda_name, breaker.state, str(verdict.state), verdict.reason)


async def _tell(connection: Connection, lambda_name: str, before: str, after: str, reason: str) -> None:
    """Add a move to the audit log, from which histories of tasks have it."""
    told = {"lambda": lambda_name, "from": before, "to": after, "reason": reason}
    # a Store Consumer may add to the audit log, and not read it: nothing is fetched
    await connection.execute(GATES["audit_breaker"].sql, {"request": json.dumps(told)})


async def _let_through(
    connection: Connection, breaker: Breaker, gate_id: int, most: int, lambdas: Sequence[str]
) -> set[str]:
    """Mark the tasks that are due first; return their lambdas."""
    queues = [(name, priority) for name in lambdas for priority in Priority]
    rows = await fetch(
        connection,
        TRANSITIONS["probe_gated"],
        {
            "lambdas": texts([name for name, _ in queues]),
            "priorities": int2s([priority for _, priority in queues]),
            "gate_id": gate_id,
            "limit": most,
        },
    )
    if rows:
        until = max(row[1] for row in rows)
        name = name_of_breaker_gate(breaker.lambda_name)
        await fetch(connection, GATES["probes_pass"], {"name": name, "until": until})
        await fetch(connection, GATES["note_probes"], {"lambda": breaker.lambda_name, "probed": len(rows)})
    return {row[0] for row in rows}


async def _remove_gates(connection: Connection, lambdas: Sequence[str]) -> None:
    names = texts([name_of_breaker_gate(name) for name in lambdas])
    await fetch(connection, GATES["delete_gates"], {"names": names})
