"""Nodes that are parked on a quota of their lambda: they may run, and wait for no edge any more."""

import asyncio
from datetime import timedelta

import psycopg
import pytest

from duly_core.graphs import store as graphs
from duly_core.limits.store import ResourceLimit
from duly_core.results.store import set_results
from duly_core.tasks import polling
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import Result
from duly_wire.enums import EdgeCondition, Outcome
from tests.fixtures import whole
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.graph_states import end, write_graph
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, LAMBDA

SUCCEEDED = EdgeCondition.SUCCEEDED
QUOTA = f"lambda:{LAMBDA}"


@pytest.fixture
async def registered(store, task_states):
    await task_states.register()
    return store


async def end_doomed(store):
    """End what is to end without a run, as the Store Consumer does."""
    return await polling.handle_timeouts(store, None, ENQUEUE_TIMEOUT, 10_000)


@pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.FATAL_FAILURE])
async def test_a_parked_node_is_not_judged_by_edges_again(registered, outcome):
    graph = await write_graph(registered, {"c": {"a": SUCCEEDED, "b": SUCCEEDED}}, any_of=["c"])
    claimed = await graph.claim()
    await end(registered, [claimed["a"]])
    await whole.put_resource(registered, ResourceLimit(QUOTA, 0))
    assert await graph.claim() == {}

    await end(registered, [claimed["b"]], outcome)
    await end_doomed(registered)

    assert (await graph.statuses())["c"] is Status.WAITING
    await whole.put_resource(registered, ResourceLimit(QUOTA, 1))
    assert (await graph.claim()).keys() == {"c"}


async def test_a_node_that_is_parked_before_its_second_attempt_is_not_skipped(registered):
    graph = await write_graph(registered, {"c": {"a": SUCCEEDED, "b": SUCCEEDED}}, any_of=["c"])
    claimed = await graph.claim()
    await end(registered, [claimed["a"]])
    (c,) = (await graph.claim()).values()
    await whole.put_resource(registered, ResourceLimit(QUOTA, 0))
    retry = Result(
        c.task_id, c.token, Outcome.RETRIABLE_FAILURE, retry_after=timedelta(), failure_message="no"
    )
    await set_results(registered, [retry])
    assert await graph.claim() == {}

    await end(registered, [claimed["b"]], Outcome.FATAL_FAILURE)
    await end_doomed(registered)

    assert (await graph.statuses())["c"] is Status.WAITING


async def test_the_cancel_of_a_graph_and_an_end_that_releases_its_node_do_not_deadlock(registered, dsn):
    await whole.put_resource(registered, ResourceLimit(QUOTA, 1))
    graph = await write_graph(registered, {"a": {}, "b": {}})
    running = await graph.claim()
    (parked,) = graph.ids.keys() - running.keys()

    async with await psycopg.AsyncConnection.connect(dsn) as ending:
        await ending.execute("select from resource_use for update")  # as duly_free does
        cancelling = asyncio.create_task(graphs.cancel_graph(registered, graph.new.graph_id))
        await until_a_statement_waits_for_a_lock(dsn)
        await ending.execute("update resource_use set used = 0")
        await ending.execute("select from duly_unpark(%s, %s)", [[QUOTA], [""]])
        await ending.commit()
    cancelled = await cancelling

    assert cancelled.statuses[graph.ids[parked]] is Status.CANCELLED
    assert (await graph.statuses())[parked] is Status.CANCELLED


async def test_a_parked_node_is_cancelled_with_its_graph(registered):
    graph = await write_graph(registered, {"a": {}, "b": {}, "c": {"a": SUCCEEDED}})
    await whole.put_resource(registered, ResourceLimit(QUOTA, 0))
    assert await graph.claim() == {}

    await graphs.cancel_graph(registered, graph.new.graph_id)

    assert set((await graph.statuses()).values()) == {Status.CANCELLED}
