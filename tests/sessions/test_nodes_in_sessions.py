"""Nodes of graphs in sessions: each enters when its graph lets it run, and is then a task of both."""

import asyncio
import random
from dataclasses import replace
from datetime import timedelta

import pytest

from duly_core.graphs import reads
from duly_core.graphs import store as graphs
from duly_core.graphs.growth_rules import NewNode
from duly_core.graphs.rules import Node
from duly_core.lambdas.session_names import SessionId
from duly_core.postgres.arrays import uuids
from duly_core.postgres.pool import fetch
from duly_core.postgres.statements import LOCKS, TRANSITIONS
from duly_core.sessions import store as sessions
from duly_core.tasks import polling, schedule
from duly_core.tasks import store as tasks
from duly_core.tasks.dead_letters import redrive
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import NewTask, Session
from duly_core.tasks.waiting import enter_sessions
from duly_wire.enums import EdgeCondition, Outcome, SessionOrder, SessionPolicy
from duly_wire.ids import new_task_id
from tests.fixtures.database import count, until_a_statement_waits_for_a_lock
from tests.fixtures.graph_states import StoredGraph, claim_work, end, new_graph, write_graph
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, LAMBDA

SUCCEEDED, FAILED = EdgeCondition.SUCCEEDED, EdgeCondition.FAILED
KEY = "vlan-7"
SESSION = Session(KEY)
SEEDS = 3


@pytest.fixture
async def registered(store, task_states):
    await task_states.register()
    return store


async def run_to_the_end(store, graph):
    """Claim and finish what may run until nothing does; the labels that ran, by rounds."""
    rounds = []
    while True:
        await enter_sessions(store)
        if not (claimed := await graph.claim()):
            return rounds
        rounds.append(set(claimed))
        await end(store, list(claimed.values()))


async def end_doomed(store):
    """Do what the Store Consumer does."""
    for _ in range(3):
        await polling.handle_timeouts(store, None, ENQUEUE_TIMEOUT, 1000)


async def state_of(store, key=KEY):
    wanted = SessionId("", key)
    return (await sessions.get_sessions(store, [wanted], 10)).get(wanted)


async def open_nodes(store, graph):
    (row,) = (await reads.get_graphs(store, [graph.new.graph_id])).values()
    return row["open"]


async def write_graph_of(store, waits, sessions_of, **options):
    """Write a graph whose nodes have these sessions, by label."""
    new = new_graph(waits, **options)
    labelled = zip(new.nodes, new.tasks, strict=True)
    new = replace(new, tasks=[task._replace(session=sessions_of.get(node.label)) for node, task in labelled])
    assert (await graphs.schedule_graph(store, new)).verdict is graphs.GraphScheduling.CREATED
    return StoredGraph(store, new)


async def test_nodes_without_predecessors_run_one_at_a_time(registered):
    graph = await write_graph(registered, {"a": {}, "b": {}, "c": {}}, session=SESSION)

    assert await graph.claim() == {}
    rounds = await run_to_the_end(registered, graph)

    assert [len(each) for each in rounds] == [1, 1, 1]
    assert await state_of(registered) is None
    assert await open_nodes(registered, graph) == 0


async def test_a_released_node_goes_behind_the_tasks_that_wait_in_its_session(registered):
    graph = await write_graph(registered, {"b": {"a": SUCCEEDED}, "c": {"a": SUCCEEDED}}, session=SESSION)
    await enter_sessions(registered)
    claimed = await graph.claim()
    other = NewTask(task_id=new_task_id().bytes, lambda_name=LAMBDA, payload=b"{}", session=SESSION)
    await schedule.schedule(registered, [other])

    await end(registered, [claimed["a"]])

    (first,) = await claim_work(registered)
    assert first.task_id == other.task_id
    assert set((await state_of(registered)).waiting) == {graph.ids["b"], graph.ids["c"]}


async def test_the_results_of_a_node_let_the_next_ones_enter_at_once(registered):
    graph = await write_graph(registered, {"b": {"a": SUCCEEDED}}, session=SESSION)
    await enter_sessions(registered)
    claimed = await graph.claim()

    written = await end(registered, [claimed["a"]])

    assert written.due_in == timedelta()
    assert (await graph.claim()).keys() == {"b"}


async def test_a_store_consumer_lets_nodes_enter_that_were_left(registered):
    graph = await write_graph(registered, {"a": {}}, session=SESSION)
    assert await polling.next_timeout(registered) <= timedelta()

    found = await polling.handle_timeouts(registered, None, ENQUEUE_TIMEOUT, 10)

    assert found.released == {LAMBDA}
    assert (await graph.claim()).keys() == {"a"}


async def test_nodes_in_the_order_of_due_times_run_by_these(registered):
    graph = await write_graph(registered, {"a": {}, "b": {}}, session=Session(KEY, SessionOrder.DUE))
    await enter_sessions(registered)

    rounds = await run_to_the_end(registered, graph)

    assert [len(each) for each in rounds] == [1, 1]
    assert await state_of(registered) is None


async def test_a_node_that_any_predecessor_lets_run_keeps_its_place_when_the_others_end(registered):
    graph = await write_graph_of(
        registered, {"c": {"a": SUCCEEDED, "b": SUCCEEDED}}, {"c": SESSION}, any_of=["c"]
    )
    claimed = await graph.claim()
    first = NewTask(task_id=new_task_id().bytes, lambda_name=LAMBDA, payload=b"{}", session=SESSION)
    await schedule.schedule(registered, [first])
    await end(registered, [claimed["a"]])

    await end(registered, [claimed["b"]])

    assert (await graph.statuses())["c"] is Status.WAITING
    assert [task.task_id for task in await claim_work(registered)] == [first.task_id]


@pytest.mark.parametrize("enters", [False, True])
async def test_a_cancel_of_a_graph_ends_nodes_before_and_in_their_session(registered, enters):
    graph = await write_graph(registered, {"a": {}, "b": {}, "c": {"a": SUCCEEDED}}, session=SESSION)
    if enters:
        await enter_sessions(registered)

    await graphs.cancel_graph(registered, graph.new.graph_id)

    await enter_sessions(registered)
    assert set((await graph.statuses()).values()) == {Status.CANCELLED}
    assert await state_of(registered) is None


@pytest.mark.parametrize("enters", [False, True])
async def test_a_cancelled_node_leaves_the_session_and_its_graph_goes_on(registered, enters):
    graph = await write_graph(registered, {"d": {"b": EdgeCondition.FINISHED}, "a": {}}, session=SESSION)
    if enters:
        await enter_sessions(registered)

    cancelled = await tasks.cancel_tasks(registered, [graph.ids["b"]])

    assert cancelled.statuses == {graph.ids["b"]: Status.CANCELLED}
    rounds = await run_to_the_end(registered, graph)
    assert rounds == [{"a"}, {"d"}]
    assert await open_nodes(registered, graph) == 0
    assert await state_of(registered) is None


async def test_nodes_that_fail_with_the_rest_of_their_session_release_what_waits_for_that(registered):
    failing = Session(KEY, SessionOrder.SCHEDULED, SessionPolicy.FAIL_REST)
    graph = await write_graph_of(registered, {"alarm": {"b": FAILED}, "a": {}}, {"a": failing, "b": failing})
    await enter_sessions(registered)
    ((label, head),) = (await graph.claim()).items()

    await end(registered, [head], Outcome.FATAL_FAILURE)
    await end_doomed(registered)

    statuses = await graph.statuses()
    assert statuses["a"] is statuses["b"] is Status.FATAL_FAILURE
    assert statuses["alarm"] is Status.NEW
    assert await state_of(registered) is None
    assert label in "ab"


async def test_a_graph_that_fails_fast_takes_its_nodes_out_of_their_sessions(registered):
    graph = await write_graph_of(
        registered,
        {"x": {}, "a": {}, "b": {}, "c": {"a": SUCCEEDED}},
        {"a": SESSION, "b": SESSION, "c": SESSION},
        fail_fast=True,
    )
    await enter_sessions(registered)
    behind = NewTask(task_id=new_task_id().bytes, lambda_name=LAMBDA, payload=b"{}", session=SESSION)
    await schedule.schedule(registered, [behind])
    claimed = {graph.labels.get(task.task_id): task for task in await claim_work(registered, 1)}
    while "x" not in claimed:
        claimed |= {graph.labels.get(task.task_id): task for task in await claim_work(registered, 1)}

    await end(registered, [claimed["x"]], Outcome.FATAL_FAILURE)
    await end_doomed(registered)
    await end(registered, [task for label, task in claimed.items() if label != "x"])

    assert [task.task_id for task in await claim_work(registered)] == [behind.task_id]
    assert (await state_of(registered)).length == 1
    assert await open_nodes(registered, graph) == 0


async def test_a_dead_node_that_blocks_its_session_is_its_head_again_when_it_is_redriven(registered):
    blocking = Session(KEY, SessionOrder.SCHEDULED, SessionPolicy.BLOCK)
    graph = await write_graph(registered, {"a": {}, "b": {}}, session=blocking)
    await enter_sessions(registered)
    ((label, head),) = (await graph.claim()).items()
    await end(registered, [head], Outcome.FATAL_FAILURE)
    assert await graph.claim() == {}

    await redrive(registered, [graph.ids[label]])

    assert await run_to_the_end(registered, graph) == [{label}, {"a", "b"} - {label}]


async def test_a_node_that_a_callback_adds_enters_its_session(registered):
    graph = await write_graph(registered, {"a": {}}, session=SESSION)
    await enter_sessions(registered)
    claimed = await graph.claim()
    task = NewTask(task_id=new_task_id().bytes, lambda_name=LAMBDA, payload=b"{}", session=SESSION)

    written = await end(registered, [claimed["a"]], nodes={claimed["a"].task_id: [NewNode(Node("b"), task)]})

    assert written.due_in == timedelta()
    assert [each.task_id for each in await claim_work(registered)] == [task.task_id]


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_graphs_in_each_others_sessions_run_to_their_ends_without_a_deadlock(registered, dsn, seed):
    chosen = random.Random(seed)  # noqa: S311 (the same graphs each time)
    written = []
    for _ in range(6):
        labels = [f"n{number}" for number in range(6)]
        waits = {
            label: {
                source: chosen.choice([SUCCEEDED, SUCCEEDED, FAILED, EdgeCondition.FINISHED])
                for source in labels[:place]
                if chosen.random() < 0.3
            }
            for place, label in enumerate(labels)
        }
        policies = [SessionPolicy.SKIP, SessionPolicy.FAIL_REST]
        orders = {"x": SessionOrder.SCHEDULED, "y": SessionOrder.SCHEDULED, "z": SessionOrder.DUE}
        keys = {label: chosen.choice("xyz") for label in labels if chosen.random() < 0.8}
        in_sessions = {
            label: Session(key, orders[key], chosen.choice(policies)) for label, key in keys.items()
        }
        any_of = [label for label in labels if chosen.random() < 0.3]
        written.append(
            await write_graph_of(
                registered, waits, in_sessions, any_of=any_of, fail_fast=chosen.random() < 0.3
            )
        )
    ids = {task_id for graph in written for task_id in graph.labels}

    async def one_after_the_other():
        while await tasks.final_of(registered, ids) < ids:
            await enter_sessions(registered)
            if claimed := await claim_work(registered, 3):
                await end(
                    registered,
                    claimed,
                    chosen.choice([Outcome.SUCCESS, Outcome.SUCCESS, Outcome.FATAL_FAILURE]),
                )
            else:
                await end_doomed(registered)

    async def cancel():
        await graphs.cancel_graph(registered, written[0].new.graph_id)
        await tasks.cancel_tasks(registered, sorted(written[1].labels)[:4])

    async with asyncio.timeout(60):
        await asyncio.gather(cancel(), *(one_after_the_other() for _ in range(3)))

    assert count(dsn, "session") == 0
    assert [await open_nodes(registered, graph) for graph in written] == [0] * len(written)


async def test_a_node_that_enters_its_session_after_a_cancel_has_locked_its_graph_is_left_to_the_next_try(
    registered,
):
    graph = await write_graph(registered, {"a": {}, "b": {}}, session=SESSION)
    which = {"task_ids": uuids(sorted(graph.labels))}

    async with registered.connection() as cancelling, cancelling.transaction():
        found = await fetch(cancelling, LOCKS["lock_waiting"], which)
        await enter_sessions(registered)
        ending = {
            "task_ids": which["task_ids"],
            "without_session": uuids(sorted(row[0] for row in found if row[1])),
            "by": None,
        }
        ended = await fetch(cancelling, TRANSITIONS["cancel_waiting"], ending)

    assert ended == []
    assert (await state_of(registered)).length == 2
    await tasks.cancel_tasks(registered, sorted(graph.labels))
    assert await state_of(registered) is None


async def test_a_node_that_is_cancelled_while_it_enters_leaves_no_session(registered, dsn):
    graph = await write_graph(registered, {"a": {}}, session=SESSION)

    async with registered.connection() as cancelling, cancelling.transaction():
        ending = {"task_ids": uuids(sorted(graph.labels)), "without_session": uuids([]), "by": None}
        await fetch(cancelling, TRANSITIONS["cancel_waiting"], ending)
        entering = asyncio.create_task(enter_sessions(registered))
        await until_a_statement_waits_for_a_lock(dsn)
    await entering

    assert await graph.statuses() == {"a": Status.CANCELLED}
    assert count(dsn, "session") == 0


async def test_a_node_whose_turn_comes_while_its_graph_fails_fast_ends_without_a_run(registered):
    graph = await write_graph_of(
        registered, {"a": {}, "b": {}, "x": {}}, {"a": SESSION, "b": SESSION}, fail_fast=True
    )
    await enter_sessions(registered)
    claimed = await graph.claim()
    (first,) = claimed.keys() - {"x"}

    await asyncio.gather(
        end(registered, [claimed["x"]], Outcome.FATAL_FAILURE), end(registered, [claimed[first]])
    )
    await end_doomed(registered)
    for task in await claim_work(registered):
        await end(registered, [task])

    assert await open_nodes(registered, graph) == 0
    assert await state_of(registered) is None


@pytest.mark.parametrize("policy", [SessionPolicy.SKIP, SessionPolicy.FAIL_REST])
async def test_a_session_goes_on_when_its_head_ends_before_nodes_that_their_graph_stopped(registered, policy):
    head, behind = (
        NewTask(
            task_id=new_task_id().bytes,
            lambda_name=LAMBDA,
            payload=b"{}",
            session=Session(KEY, SessionOrder.SCHEDULED, policy),
        )
        for _ in range(2)
    )
    await schedule.schedule(registered, [head])
    graph = await write_graph_of(registered, {"x": {}, "a": {}}, {"a": SESSION}, fail_fast=True)
    await enter_sessions(registered)
    claimed = {task.task_id: task for task in await claim_work(registered)}
    await end(registered, [claimed[graph.ids["x"]]], Outcome.FATAL_FAILURE)

    await end(registered, [claimed[head.task_id]], Outcome.FATAL_FAILURE)
    await schedule.schedule(registered, [behind])
    await end_doomed(registered)

    assert [task.task_id for task in await claim_work(registered)] == [behind.task_id]
    assert await open_nodes(registered, graph) == 0
