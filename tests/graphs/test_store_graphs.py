"""Graphs in the store: edges fire in the transaction that ends their source, once; what can never run is skipped."""

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from duly_core.graphs import reads as graph_reads
from duly_core.graphs import store as graphs
from duly_core.graphs.growth_rules import NewNode
from duly_core.graphs.predecessors import graph_places
from duly_core.graphs.rules import Node
from duly_core.graphs.store import GraphScheduling
from duly_core.limits.store import ResourceLimit
from duly_core.postgres.arrays import byteas, int2s, timestamps, uuids
from duly_core.postgres.pool import fetch
from duly_core.postgres.statements import TRANSITIONS
from duly_core.tasks import claims, dead_letters, polling
from duly_core.tasks import store as tasks
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import NewTask, ReleasedClaim
from duly_core.upkeep.retention import Retention
from duly_wire.enums import EdgeCondition, FailureKind, Outcome
from duly_wire.ids import new_task_id
from tests.fixtures import whole
from tests.fixtures.database import count, until_a_statement_waits_for_a_lock
from tests.fixtures.graph_states import StoredGraph, claim_work, end, new_graph, write_graph
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, LAMBDA

SUCCEEDED, FAILED, FINISHED = EdgeCondition.SUCCEEDED, EdgeCondition.FAILED, EdgeCondition.FINISHED


@pytest.fixture
async def registered(store, task_states):
    await task_states.register()
    return store


async def end_doomed(store):
    """End what is to end without a run, as the Store Consumer does."""
    return await polling.handle_timeouts(store, None, ENQUEUE_TIMEOUT, 10_000)


async def counts(store, graph):
    row = (await graph_reads.get_graphs(store, [graph.new.graph_id]))[graph.new.graph_id]
    return {name: row[name] for name in ("open", "succeeded", "failed", "skipped", "cancelled", "unhandled")}


async def test_a_node_runs_once_the_one_it_waits_for_has_succeeded(registered):
    graph = await write_graph(registered, {"b": {"a": SUCCEEDED}})
    assert await graph.statuses() == {"a": Status.NEW, "b": Status.WAITING}

    first = await graph.claim()
    written = await end(registered, list(first.values()))

    assert first.keys() == {"a"}
    assert written.due_in is not None
    assert (await graph.claim()).keys() == {"b"}


async def test_what_waits_for_a_failure_is_skipped_at_a_success_and_the_skip_spreads(registered):
    graph = await write_graph(
        registered, {"mail": {"a": FAILED}, "after mail": {"mail": FINISHED}, "b": {"a": SUCCEEDED}}
    )

    await end(registered, list((await graph.claim()).values()))
    await end_doomed(registered)

    assert await graph.statuses() == {
        "a": Status.SUCCESS,
        "b": Status.NEW,
        "mail": Status.DROPPED,
        "after mail": Status.DROPPED,
    }


async def test_all_edges_must_fire_and_the_last_end_releases(registered):
    graph = await write_graph(registered, {"c": {"a": SUCCEEDED, "b": FINISHED}})
    claimed = await graph.claim()

    await end(registered, [claimed["b"]], Outcome.FATAL_FAILURE)
    assert await graph.claim() == {}
    await end(registered, [claimed["a"]])

    assert (await graph.claim()).keys() == {"c"}


async def test_one_edge_that_fires_is_enough_for_any_of_and_a_second_changes_nothing(registered):
    graph = await write_graph(registered, {"c": {"a": FAILED, "b": FAILED}}, any_of=["c"])
    claimed = await graph.claim()

    await end(registered, [claimed["a"]], Outcome.FATAL_FAILURE)
    (c,) = (await graph.claim()).values()
    await end(registered, [claimed["b"]], Outcome.FATAL_FAILURE)
    await end(registered, [c])

    assert await counts(registered, graph) == {
        "open": 0, "succeeded": 1, "failed": 2, "skipped": 0, "cancelled": 0, "unhandled": 0,
    }  # fmt: skip


async def test_any_of_is_skipped_once_no_edge_is_left_that_could_fire(registered):
    graph = await write_graph(registered, {"c": {"a": FAILED, "b": FAILED}}, any_of=["c"])
    claimed = await graph.claim()

    await end(registered, [claimed["a"]])
    assert (await graph.statuses())["c"] is Status.WAITING
    await end(registered, [claimed["b"]])
    await end_doomed(registered)

    assert (await graph.statuses())["c"] is Status.DROPPED


async def test_an_ignored_failure_fires_what_waits_for_success_and_does_not_fail_the_graph(registered):
    graph = await write_graph(registered, {"b": {"a": SUCCEEDED}, "c": {"a": FAILED}}, ignoring=["a"])

    await end(registered, list((await graph.claim()).values()), Outcome.FATAL_FAILURE)

    assert (await graph.claim()).keys() == {"b", "c"}
    assert (await counts(registered, graph))["unhandled"] == 0


async def test_a_failure_that_no_node_waits_for_fails_the_graph(registered):
    graph = await write_graph(registered, {"b": {"a": SUCCEEDED}})

    await end(registered, list((await graph.claim()).values()), Outcome.FATAL_FAILURE)
    await end_doomed(registered)

    assert await counts(registered, graph) == {
        "open": 0, "succeeded": 0, "failed": 1, "skipped": 1, "cancelled": 0, "unhandled": 1,
    }  # fmt: skip


async def test_a_retry_fires_nothing_and_the_success_after_it_does(registered, clock):
    graph = await write_graph(registered, {"b": {"a": SUCCEEDED}})

    await end(registered, list((await graph.claim()).values()), Outcome.RETRIABLE_FAILURE)
    assert (await graph.statuses())["b"] is Status.WAITING
    await clock.tick(timedelta(days=1))
    await end(registered, list((await graph.claim()).values()))

    assert (await graph.claim()).keys() == {"b"}


async def test_a_silent_holder_and_a_cancel_are_ends_as_well(registered, clock):
    graph = await write_graph(registered, {"b": {"a": FINISHED}})
    await graph.claim()
    await tasks.cancel_tasks(registered, [graph.ids["a"]])

    await clock.tick(timedelta(days=1))
    await end_doomed(registered)

    assert await graph.statuses() == {"a": Status.CANCELLED, "b": Status.NEW}


async def test_a_node_that_expires_while_it_waits_fails_and_its_edges_fire(registered, clock):
    soon = datetime.now(UTC) + timedelta(hours=1)
    new = new_graph({"b": {"a": SUCCEEDED}, "c": {"b": FAILED}})
    place = [node.label for node in new.nodes].index("b")
    new.tasks[place] = new.tasks[place]._replace(expires_at=soon)
    await graphs.schedule_graph(registered, new)
    graph = StoredGraph(registered, new)

    await clock.tick(timedelta(hours=2))
    await end_doomed(registered)

    assert await graph.statuses() == {"a": Status.NEW, "b": Status.FATAL_FAILURE, "c": Status.NEW}


async def test_cancelling_one_that_waits_skips_what_waits_for_its_success(registered):
    graph = await write_graph(
        registered, {"b": {"a": SUCCEEDED}, "c": {"b": SUCCEEDED}, "d": {"b": FINISHED}}
    )

    cancelled = await tasks.cancel_tasks(registered, [graph.ids["b"]])
    await end_doomed(registered)

    assert cancelled.released.keys() == {LAMBDA}
    assert await graph.statuses() == {
        "a": Status.NEW, "b": Status.CANCELLED, "c": Status.DROPPED, "d": Status.NEW,
    }  # fmt: skip


async def test_a_cancelled_graph_releases_nothing_and_what_runs_is_told(registered):
    graph = await write_graph(registered, {"b": {"a": FINISHED}, "c": {"x": SUCCEEDED}})
    (running,) = await claim_work(registered, 1)

    cancelled = await graphs.cancel_graph(registered, graph.new.graph_id)
    assert cancelled.statuses[running.task_id] is Status.CLAIMED
    await end(registered, [running])

    statuses = await graph.statuses()
    assert statuses.pop(graph.labels[running.task_id]) is Status.SUCCESS
    assert set(statuses.values()) == {Status.CANCELLED}
    assert (await counts(registered, graph))["open"] == 0


async def test_a_redriven_node_runs_again_and_its_edges_stay_as_they_were_decided(registered):
    graph = await write_graph(registered, {"b": {"a": SUCCEEDED}, "c": {"a": FAILED}})
    await end(registered, list((await graph.claim()).values()), Outcome.FATAL_FAILURE)
    before = await counts(registered, graph)

    await dead_letters.redrive(registered, [graph.ids["a"]])
    claimed = await graph.claim()
    await end(registered, [claimed["a"]])

    assert claimed.keys() == {"a", "c"}
    await end_doomed(registered)
    assert (await graph.statuses())["b"] is Status.DROPPED
    after = await counts(registered, graph)
    assert (after["failed"], after["succeeded"]) == (before["failed"], before["succeeded"])


async def test_a_node_is_not_due_before_its_own_time(registered, clock):
    new = new_graph({"b": {"a": SUCCEEDED}}, delay=timedelta(hours=1))
    await graphs.schedule_graph(registered, new)
    graph = StoredGraph(registered, new)
    assert await graph.claim() == {}
    await clock.tick(timedelta(hours=1, seconds=1))

    written = await end(registered, list((await graph.claim()).values()))

    assert written.due_in is not None
    assert (await graph.claim()).keys() == {"b"}


async def test_a_fan_in_of_a_thousand_is_released_by_the_last(registered):
    graph = await write_graph(
        registered, {"sum": {f"part {number:04}": SUCCEEDED for number in range(1_000)}}
    )
    parts = list((await graph.claim()).values())
    await end(registered, parts[:-1])
    assert await graph.claim() == {}

    await end(registered, parts[-1:])

    (claimed,) = (await graph.claim()).values()
    place = (await graph_places(registered, [claimed.task_id]))[claimed.task_id]
    assert len(place.predecessors) == 1_000
    assert not place.truncated
    assert {before.result for before in place.predecessors} == {b"1"}


async def test_a_chain_of_a_thousand_is_skipped_in_the_transaction_of_the_failure(registered):
    chain = {f"{number + 1:04}": {f"{number:04}": SUCCEEDED} for number in range(1_000)}
    graph = await write_graph(registered, chain)

    await end(registered, list((await graph.claim()).values()), Outcome.FATAL_FAILURE)
    await end_doomed(registered)

    assert await counts(registered, graph) == {
        "open": 0, "succeeded": 0, "failed": 1, "skipped": 1_000, "cancelled": 0, "unhandled": 1,
    }  # fmt: skip


async def test_results_that_are_too_large_for_one_answer_are_left_out_and_said_so(registered):
    graph = await write_graph(registered, {"sum": {f"part {number}": SUCCEEDED for number in range(4)}})
    await end(registered, list((await graph.claim()).values()), result=b"r" * 400_000)

    (claimed,) = (await graph.claim()).values()

    place = (await graph_places(registered, [claimed.task_id]))[claimed.task_id]
    assert [before.omitted for before in place.predecessors] == [False, False, True, True]
    assert [before.label for before in place.predecessors] == ["part 0", "part 1", "part 2", "part 3"]


async def test_predecessors_take_no_more_room_than_an_answer_has(registered):
    graph = await write_graph(registered, {"sum": {f"part {number}": SUCCEEDED for number in range(4)}})
    await end(registered, list((await graph.claim()).values()), result=b"r" * 10_000)
    (claimed,) = (await graph.claim()).values()

    async def place(room):
        return (await graph_places(registered, [claimed.task_id], room))[claimed.task_id]

    assert [before.omitted for before in (await place(45_000)).predecessors] == [False, False, True, True]
    assert not (await place(45_000)).truncated
    assert len((await place(6 * 256)).predecessors) == 2
    assert (await place(6 * 256)).truncated
    assert len((await place(-1)).predecessors) == 1


async def test_a_claim_has_the_run_time_of_its_node(registered):
    new = new_graph({"b": {"a": SUCCEEDED}})
    timed = dataclasses.replace(new, max_runtimes=[timedelta(seconds=7), timedelta(seconds=7)])
    await graphs.schedule_graph(registered, timed)

    (claimed,) = await claim_work(registered)

    assert claimed.max_runtime == timedelta(seconds=7)
    assert claimed.graph_id == new.graph_id


async def test_two_batches_that_end_nodes_of_the_same_graphs_do_not_deadlock(registered):
    waits = {"sum": {f"part {number}": SUCCEEDED for number in range(20)}}
    written = [await write_graph(registered, waits) for _ in range(20)]
    claimed = await claim_work(registered)
    batches = [claimed[place::4] for place in range(4)]

    await asyncio.gather(*(end(registered, batch) for batch in batches))

    assert len(await claim_work(registered)) == 20
    assert [(await counts(registered, graph))["open"] for graph in written] == [1] * 20


async def test_a_graph_is_removed_with_its_nodes_and_edges_once_its_time_is_over(registered, clock, dsn):
    over = await write_graph(registered, {"b": {"a": SUCCEEDED}})
    for _ in range(2):
        await end(registered, list((await over.claim()).values()))
    failed = await write_graph(registered, {"b": {"a": SUCCEEDED}})
    await end(registered, list((await failed.claim()).values()), Outcome.FATAL_FAILURE)
    await end_doomed(registered)
    running = await write_graph(registered, {"b": {"a": SUCCEEDED}})
    day = timedelta(days=1)
    retention = Retention(registered, day, 5 * day, day, lambda: int(3 * day.total_seconds()) * 10**9)
    await clock.tick(3 * day)

    await retention.run_once()

    left = await graph_reads.get_graphs(registered, [graph.new.graph_id for graph in (over, failed, running)])
    assert left.keys() == {failed.new.graph_id, running.new.graph_id}
    assert count(dsn, "graph_node") == 4
    assert count(dsn, "graph_edge") == 2


async def test_a_cancel_that_was_cut_off_after_its_first_part_is_finished_by_a_repeat(registered):
    graph = await write_graph(registered, {"b": {"a": FINISHED}, "c": {"b": FINISHED}})
    async with registered.connection() as connection:
        await connection.execute("update graph set cancel_requested = true")
    waiting = uuids(sorted(graph.ids[label] for label in "bc"))
    await registered.run(TRANSITIONS["cancel_graph"], {"task_ids": waiting, "by": None})
    assert (await graph.statuses())["a"] is Status.NEW

    await graphs.cancel_graph(registered, graph.new.graph_id)

    assert set((await graph.statuses()).values()) == {Status.CANCELLED}
    assert (await counts(registered, graph))["cancelled"] == 3


async def test_a_graph_of_unknown_lambdas_leaves_nothing(registered, dsn):
    waits = {"b": {"a": SUCCEEDED}}
    some = new_graph(waits)
    some.tasks[1] = some.tasks[1]._replace(lambda_name="unknown")

    for new in (new_graph(waits, lambda_name="unknown"), some):
        assert (await graphs.schedule_graph(registered, new)).verdict is GraphScheduling.UNKNOWN_LAMBDA

    assert [count(dsn, table) for table in ("graph", "graph_node", "graph_edge", "task_assoc")] == [0] * 4


async def test_of_two_ends_at_once_the_one_that_commits_last_releases(registered, dsn):
    graph = await write_graph(registered, {"c": {"a": SUCCEEDED, "b": SUCCEEDED}})
    claimed = await graph.claim()

    async with registered.connection() as connection, connection.transaction():
        await fetch(connection, TRANSITIONS["finish"], finish_parameters(claimed["a"]))
        second = asyncio.create_task(end(registered, [claimed["b"]]))
        await until_a_statement_waits_for_a_lock(dsn)
    await second

    assert (await graph.claim()).keys() == {"c"}


def finish_parameters(task):
    """What the statement that ends a task is given."""
    return {
        "task_ids": uuids([task.task_id]),
        "tokens": uuids([task.token]),
        "results": byteas([b"1"]),
        "encodings": int2s([1]),
        "started_at": timestamps([None]),
    }


LATE = FailureKind.MAX_RUNTIME
"""The kind of failure that a worker reports of an attempt that ran too long: as one to be retried."""


async def test_a_timeout_that_is_final_ends_the_node_and_fires_what_waits_for_it_alone(registered):
    graph = await write_graph(
        registered,
        {"late": {"a": EdgeCondition.TIMED_OUT}, "failed": {"a": FAILED}, "either": {"a": (FAILED, EdgeCondition.TIMED_OUT)}},
        timeouts_final=["a"],
    )  # fmt: skip

    await end(registered, list((await graph.claim()).values()), Outcome.RETRIABLE_FAILURE, kind=LATE)
    await end_doomed(registered)

    assert await graph.statuses() == {
        "a": Status.FATAL_FAILURE, "late": Status.NEW, "failed": Status.DROPPED, "either": Status.NEW,
    }  # fmt: skip
    (a,) = (await tasks.get_tasks(registered, [graph.ids["a"]], most_bytes=None)).values()
    assert (a["failure_kind"], a["failure_message"]) == (LATE, "no")
    assert (await counts(registered, graph))["unhandled"] == 0
    nodes = {node["label"]: node for node in await graph_reads.get_nodes(registered, graph.new.graph_id)}
    assert (nodes["a"]["timed_out"], nodes["late"]["timed_out"]) == (True, False)
    assert nodes["either"]["waits_for"] == [("a", [FAILED, EdgeCondition.TIMED_OUT])]


@pytest.mark.parametrize(
    ("final", "kind", "status"),
    [
        (["a"], LATE, Status.FATAL_FAILURE),
        ([], LATE, Status.RETRIABLE_FAILURE),
        (["a"], FailureKind.EXCEPTION, Status.RETRIABLE_FAILURE),
    ],
)
async def test_only_a_timeout_that_is_final_ends_a_node_with_attempts_left(registered, final, kind, status):
    graph = await write_graph(registered, {"b": {"a": SUCCEEDED}}, timeouts_final=final)

    await end(registered, list((await graph.claim()).values()), Outcome.RETRIABLE_FAILURE, kind=kind)

    assert (await graph.statuses())["a"] is status


async def test_a_timeout_that_nobody_handles_fails_the_graph_though_its_failure_is_handled(registered):
    graph = await write_graph(registered, {"alarm": {"a": FAILED}}, timeouts_final=["a"])

    await end(registered, list((await graph.claim()).values()), Outcome.RETRIABLE_FAILURE, kind=LATE)

    assert (await counts(registered, graph))["unhandled"] == 1


async def test_a_node_after_a_skip_runs_and_the_skip_goes_no_further(registered):
    graph = await write_graph(
        registered,
        {"mail": {"a": FAILED}, "more": {"mail": SUCCEEDED}, "no mail": {"more": EdgeCondition.SKIPPED}},
    )

    await end(registered, list((await graph.claim()).values()))

    assert (await graph.claim()).keys() == {"no mail"}
    await end_doomed(registered)
    assert (await counts(registered, graph))["skipped"] == 2


FAN = {"then": {"bad": SUCCEEDED}, "after ready": {"ready": SUCCEEDED}, "after runs": {"runs": FINISHED}}


@pytest.fixture
async def fan(registered):
    """A graph that fails fast: `bad` and `runs` are claimed, `ready` is due."""
    graph = await write_graph(
        registered, FAN | {"free": {"ignored": SUCCEEDED}}, fail_fast=True, ignoring=["ignored"]
    )
    claimed = await graph.claim()
    await claims.release(registered, [ReleasedClaim(claimed["ready"].task_id, claimed["ready"].token)])
    return graph, claimed


async def test_the_first_failure_that_is_not_handled_skips_what_has_not_started(registered, fan):
    graph, claimed = fan

    await end(registered, [claimed["bad"]], Outcome.FATAL_FAILURE)

    assert await graph.claim() == {}
    await end_doomed(registered)
    statuses = await graph.statuses()
    assert {label for label, status in statuses.items() if status is Status.DROPPED} == {
        "then", "ready", "after ready", "after runs", "free",
    }  # fmt: skip
    assert statuses["runs"] is Status.CLAIMED
    row = (await tasks.get_tasks(registered, [graph.ids["ready"]], most_bytes=None))[graph.ids["ready"]]
    assert row["failure_kind"] == FailureKind.GRAPH_FAILED

    await end(registered, [claimed["runs"], claimed["ignored"]])

    assert await graph.claim() == {}
    found = await counts(registered, graph)
    assert (found["open"], found["unhandled"]) == (0, 1)


async def test_a_failure_that_is_handled_leaves_a_graph_that_fails_fast_as_it_is(registered, fan):
    graph, claimed = fan

    await end(registered, [claimed["ignored"]], Outcome.FATAL_FAILURE)

    assert (await graph.claim()).keys() == {"ready", "free"}


async def test_a_graph_that_failed_fast_takes_no_nodes(registered, fan, dsn):
    graph, claimed = fan
    await end(registered, [claimed["bad"]], Outcome.FATAL_FAILURE)
    added = NewNode(Node("more"), NewTask(new_task_id().bytes, LAMBDA, b"{}"))

    await end(registered, [claimed["runs"]], nodes={claimed["runs"].task_id: [added]})

    assert await graph.claim() == {}
    assert count(dsn, "graph_node") == len(graph.ids)


async def test_a_parked_node_is_skipped_as_well_when_its_graph_fails_fast(registered):
    await whole.put_resource(registered, ResourceLimit(f"lambda:{LAMBDA}", 1))
    graph = await write_graph(registered, {"then": {"a": SUCCEEDED, "b": SUCCEEDED}}, fail_fast=True)
    claimed = await graph.claim()

    await end(registered, list(claimed.values()), Outcome.FATAL_FAILURE)
    await end_doomed(registered)

    assert await graph.claim() == {}
    assert (await counts(registered, graph))["open"] == 0
