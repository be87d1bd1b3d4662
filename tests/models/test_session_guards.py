"""Guards of sessions against what comes in steps: nodes that enter late, and ends of many; each scenario fails without its guard."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import psycopg
import pytest

from duly_core.errors import DulyError
from duly_core.graphs import store as graphs
from duly_core.lambdas import store as lambdas
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.postgres.arrays import uuids
from duly_core.postgres.pool import Store, fetch
from duly_core.postgres.statements import LOCKS, TRANSITIONS
from duly_core.tasks import polling, schedule
from duly_core.tasks.task import NewTask, Session
from duly_core.tasks.waiting import enter_sessions
from duly_wire.enums import Outcome, SessionOrder, SessionPolicy
from duly_wire.ids import new_task_id
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.graph_states import StoredGraph, claim_work, end, new_graph
from tests.fixtures.guards import FUNCTION_GUARDS, STATEMENT_GUARDS, InFunction
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, LAMBDA
from tests.models.world import World

SKIP = Session("a", SessionOrder.SCHEDULED, SessionPolicy.SKIP)
FAIL_REST = Session("a", SessionOrder.SCHEDULED, SessionPolicy.FAIL_REST)


async def schedule_in_session(store: Store, session: Session, number: int) -> list[bytes]:
    """Schedule so many tasks; return their ids."""
    new = [NewTask(new_task_id().bytes, LAMBDA, b"", session=session) for _ in range(number)]
    await schedule.schedule(store, new)
    return [task.task_id for task in new]


async def write_graph(store: Store, *labels: str, in_session: str, fail_fast: bool = False) -> StoredGraph:
    """Write a graph of nodes that may run; those of `in_session` enter their session at once."""
    new = new_graph({label: {} for label in labels}, fail_fast=fail_fast)
    placed = [
        task._replace(session=SKIP if node.label in in_session else None)
        for node, task in zip(new.nodes, new.tasks, strict=True)
    ]
    graph = StoredGraph(store, replace(new, tasks=placed))
    await graphs.schedule_graph(store, graph.new)
    return graph


async def end_doomed(store: Store) -> None:
    for _ in range(5):
        await polling.handle_timeouts(store, None, ENQUEUE_TIMEOUT, 1000)


async def nodes_enter_while_a_cancel_holds_their_graph(dsn: str, store: Store) -> bool:
    """Whether the cancel leaves them alone: the end of one has their session, and waits for the graph."""
    graph = await write_graph(store, "x", "y", in_session="xy")
    ids = uuids(sorted(graph.labels))
    try:
        async with store.connection() as connection, connection.transaction():
            found = await fetch(connection, LOCKS["lock_waiting"], {"task_ids": ids})
            await enter_sessions(store)
            ending = asyncio.create_task(end(store, await claim_work(store)))
            await until_a_statement_waits_for_a_lock(dsn)
            without = uuids(sorted(row[0] for row in found if row[1]))
            named = {"task_ids": ids, "without_session": without, "by": None}
            ended = await fetch(connection, TRANSITIONS["cancel_waiting"], named)
    except (DulyError, psycopg.Error):  # a deadlock, and this transaction was its victim
        return False
    finally:
        await asyncio.gather(ending, return_exceptions=True)
    return not ended


async def a_graph_fails_fast_behind_the_head(_dsn: str, store: Store) -> bool:
    """Whether the session goes on that has only nodes of a failed graph when its head ends."""
    (head,) = await schedule_in_session(store, SKIP, 1)
    graph = await write_graph(store, "x", "y", in_session="y", fail_fast=True)
    await enter_sessions(store)
    claimed = {task.task_id: task for task in await claim_work(store)}
    await end(store, [claimed[graph.ids["x"]]], Outcome.FATAL_FAILURE)
    await end(store, [claimed[head]])
    behind = await schedule_in_session(store, SKIP, 1)
    await end_doomed(store)
    return [task.task_id for task in await claim_work(store)] == behind


async def a_failure_ends_more_than_it_can_at_once(_dsn: str, store: Store) -> bool:
    """Whether all that waited ends with the failure, and what came later runs."""
    await schedule_in_session(store, FAIL_REST, 4)
    await end(store, await claim_work(store), Outcome.FATAL_FAILURE)
    later = await schedule_in_session(store, FAIL_REST, 1)
    await end_doomed(store)
    return [task.task_id for task in await claim_work(store)] == later


SCENARIOS: dict[str, Callable[[str, Store], Awaitable[bool]]] = {
    "a node that entered its session meanwhile ends without the lock of that session": nodes_enter_while_a_cancel_holds_their_graph,
    "a session whose head ended before nodes that their graph stopped never goes on": a_graph_fails_fast_behind_the_head,
    "a failure ends only as many of its session as it can at once": a_failure_ends_more_than_it_can_at_once,
}
"""By what is wrong without the guard."""


@pytest.mark.parametrize("what", SCENARIOS)
def test_a_guard_of_sessions_that_is_taken_out_is_missed_at_once(
    dsn: str, world: World, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    InFunction("duly_advance_sessions", "limit 1000", "limit 2").plant(dsn)
    world.run(lambdas.register(world.store, [LambdaPolicy(LAMBDA)]))
    scenario = SCENARIOS[what]
    assert world.run(scenario(dsn, world.store))

    world.reset()
    world.run(lambdas.register(world.store, [LambdaPolicy(LAMBDA)]))
    for statement in STATEMENT_GUARDS.get(what, ()):
        monkeypatch.setitem(
            statement.home(), statement.name, statement.mutated(statement.home()[statement.name])
        )
    for function in FUNCTION_GUARDS.get(what, ()):
        function.plant(dsn)

    assert not world.run(scenario(dsn, world.store))
