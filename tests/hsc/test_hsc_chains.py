"""What an HSC takes of checkpoints and children, and what it refuses."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from duly_core.lambdas import store as lambdas
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.tasks import polling
from duly_wire.ids import new_task_id
from duly_wire.v1 import frontend_pb2, graphs_pb2, hsc_pb2, task_pb2
from tests.fixtures.database import count
from tests.fixtures.graph_states import claim_work, write_graph
from tests.fixtures.services import refusal
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, LAMBDA


def claim_of(task):
    return hsc_pb2.Claim(task_id=task.task_id, token=task.token)


def kid(**fields):
    return frontend_pb2.NewTask(**{"task_id": str(new_task_id()), "payload": b"1", "lambda": LAMBDA} | fields)


def aged_id(age):
    return UUID(int=new_task_id().int - (int(age / timedelta(milliseconds=1)) << 80))


async def succeed(hsc, task, *children):
    result = hsc_pb2.TaskResult(claim=claim_of(task), outcome=hsc_pb2.OUTCOME_SUCCESS, children=children)
    return await hsc.stub.SetResults(hsc_pb2.SetResultsRequest(results=[result]))


async def test_a_child_that_no_frontend_would_take_makes_the_attempt_a_fatal_failure(hsc, task_states):
    for bad, said in [
        ({"lambda": "nobody.knows"}, "lambda: no lambda 'nobody.knows' is registered"),
        ({"payload": b"x" * 300_000}, "payload: 300,000 bytes exceed"),
        ({"priority": 9}, "priority: 9 is not a priority"),
        ({"task_id": ""}, "task_id: a task that a callback schedules has an id"),
        ({"task_id": str(aged_id(-timedelta(days=2)))}, "task_id: its time is more than a day from now"),
        ({"collection": "NO"}, "collection: must be"),
        ({"session": {"key": ""}}, "session.key: must be 1 to 255 bytes"),
        ({"resources": b"x"}, "resources: must be a serialized ResourceNeeds"),
        ({"unique": b"x"}, "unique: must be a serialized duly.v1.Unique"),
        (
            {"unique": frontend_pb2.Unique(key="k" * 256).SerializeToString()},
            "unique.key: must be",
        ),
        (
            {
                "unique": frontend_pb2.Unique(
                    key="k", on_conflict=task_pb2.ON_CONFLICT_REPLACE
                ).SerializeToString()
            },
            "unique.on_conflict: a task that a callback schedules replaces none",
        ),
        (
            {
                "unique": frontend_pb2.Unique(
                    key="k",
                    debounce=frontend_pb2.Debounce(wait={"seconds": 1}, at_most={"seconds": 2}),
                ).SerializeToString()
            },
            "unique.on_conflict: a task that a callback schedules replaces none",
        ),
        (
            {"unique": frontend_pb2.Unique(key="k").SerializeToString(), "session": {"key": "s"}},
            "session: a task that a callback schedules has a unique key or a session",
        ),
    ]:
        claimed_task = await task_states.claimed()
        good = kid()

        response = await succeed(hsc, claimed_task, good, kid(**bad))

        row = await task_states.row(claimed_task.task_id)
        assert list(response.verdicts) == [hsc_pb2.RESULT_VERDICT_APPLIED]
        assert (row["status"], row["failure_kind"]) == ("fatal_failure", task_pb2.FAILURE_KIND_BAD_RESULT)
        assert row["failure_message"].startswith(f"ctx.schedule: {said}")


@pytest.mark.parametrize("age", [timedelta(hours=25), timedelta(days=400)])
async def test_a_child_whose_id_was_made_long_before_the_result_is_written(
    hsc, task_states, claimed_task, age
):
    child = kid(task_id=str(aged_id(age)))

    await succeed(hsc, claimed_task, child)

    assert await task_states.status(claimed_task.task_id) == "success"
    assert await task_states.status(UUID(child.task_id).bytes) == "new"


async def test_a_child_that_has_expired_by_the_time_of_the_result_is_written_and_ended_by_expire(
    hsc, task_states, claimed_task
):
    child = kid()
    child.expires_at.FromDatetime(datetime.now(UTC) - timedelta(seconds=1))

    await succeed(hsc, claimed_task, child)
    await polling.handle_timeouts(task_states.store, None, ENQUEUE_TIMEOUT, 10)

    assert await task_states.status(claimed_task.task_id) == "success"
    row = await task_states.row(UUID(child.task_id).bytes)
    assert (row["status"], row["failure_kind"]) == ("fatal_failure", task_pb2.FAILURE_KIND_EXPIRED)


async def test_more_children_than_one_attempt_may_have_are_refused(hsc, task_states, claimed_task):
    refused = await refusal(succeed(hsc, claimed_task, *[kid() for _ in range(1001)]))

    assert (refused.code.name, refused.field) == ("INVALID_ARGUMENT", "results.children")
    assert await task_states.status(claimed_task.task_id) == "claimed"


async def test_a_checkpoint_goes_to_the_next_host_through_the_wire(hsc, task_states, processing_task):
    beat = hsc_pb2.HeartbeatItem(claim=claim_of(processing_task), checkpoint=b'{"row": 7}')
    await hsc.stub.Heartbeat(hsc_pb2.HeartbeatRequest(items=[beat], holder="host"))
    await hsc.stub.Release(hsc_pb2.ReleaseRequest(claims=[claim_of(processing_task)]))

    request = hsc_pb2.ClaimWorkRequest(
        holder="other", lambdas=[LAMBDA], max_tasks=1, token_prefix=b"p" * 14, timeout={"seconds": 5}
    )
    (task,) = (await hsc.stub.ClaimWork(request)).tasks

    assert task.checkpoint == b'{"row": 7}'


async def test_a_checkpoint_that_is_too_large_is_refused(hsc, claimed_task):
    beat = hsc_pb2.HeartbeatItem(claim=claim_of(claimed_task), checkpoint=b"x" * 65_537)

    refused = await refusal(hsc.stub.Heartbeat(hsc_pb2.HeartbeatRequest(items=[beat], holder="host")))

    assert (refused.code.name, refused.field) == ("INVALID_ARGUMENT", "items.checkpoint")


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (hsc_pb2.OUTCOME_FATAL_FAILURE, "fatal_failure"),
        (hsc_pb2.OUTCOME_RETRIABLE_FAILURE, "retriable_failure"),
    ],
)
async def test_the_children_of_an_attempt_that_did_not_succeed_are_not_written(
    hsc, task_states, dsn, claimed_task, outcome, status
):
    result = hsc_pb2.TaskResult(claim=claim_of(claimed_task), outcome=outcome, children=[kid()])

    await hsc.stub.SetResults(hsc_pb2.SetResultsRequest(results=[result]))

    assert await task_states.status(claimed_task.task_id) == status
    assert count(dsn, "task") == 1


async def finish_node(hsc, task, node):
    result = hsc_pb2.TaskResult(claim=claim_of(task), outcome=hsc_pb2.OUTCOME_SUCCESS, nodes=[node])
    return await hsc.stub.SetResults(hsc_pb2.SetResultsRequest(results=[result]))


async def test_a_node_is_added_through_the_wire(hsc, task_states, store):
    await task_states.register()
    graph = await write_graph(store, {"a": {}})
    task = (await graph.claim())["a"]
    node = graphs_pb2.GraphNode(label="b", task=kid(), waits_for=[graphs_pb2.GraphEdge(label="a")])

    response = await finish_node(hsc, task, node)

    assert list(response.verdicts) == [hsc_pb2.RESULT_VERDICT_APPLIED]
    assert await task_states.status(UUID(node.task.task_id).bytes) == "new"


async def test_a_node_that_no_frontend_would_take_makes_the_attempt_a_fatal_failure(hsc, task_states):
    for bad, said in [
        ({"task": kid(session={"key": ""})}, "nodes['b'].task.session.key: must be 1 to 255 bytes"),
        ({"task": kid(idempotency_key="k", task_id="")}, "nodes['b'].task.idempotency_key: a node has none"),
        ({"task": kid(priority=9)}, "nodes['b'].task.priority: 9 is not a priority"),
        (
            {"waits_for": [graphs_pb2.GraphEdge(label="a", condition=9)]},
            "nodes['b'].waits_for: 9 is no condition",
        ),
        ({"max_runtime": {"seconds": -1}}, "nodes['b'].max_runtime: must be from 1us to 365d"),
        ({"label": "b\0"}, "the label 'b\\x00' must be 1 to 128 bytes without NUL"),
        ({"waits_for": [graphs_pb2.GraphEdge(label="a\0")]}, "the label 'a\\x00' must be 1 to 128 bytes"),
        (
            {"waits_for": [graphs_pb2.GraphEdge(label=f"n{number}") for number in range(10_000)]},
            "the nodes name 10,001 labels",
        ),
    ]:
        claimed_task = await task_states.claimed()
        node = graphs_pb2.GraphNode(**{"label": "b", "task": kid()} | bad)

        await finish_node(hsc, claimed_task, node)

        row = await task_states.row(claimed_task.task_id)
        assert (row["status"], row["failure_kind"]) == ("fatal_failure", task_pb2.FAILURE_KIND_BAD_RESULT)
        assert row["failure_message"].startswith(f"ctx.add_node: {said}")


async def test_a_child_of_a_lambda_that_was_registered_a_moment_ago_is_written(
    hsc, task_states, claimed_task
):
    other = await task_states.new()
    (claimed,) = await claim_work(task_states.store)
    await succeed(hsc, claimed, kid(**{"lambda": "nobody.knows"}))  # the HSC has read the lambdas just now

    await lambdas.register(
        task_states.store, [LambdaPolicy("nobody.knows"), LambdaPolicy(LAMBDA, payload_limit=500_000)]
    )
    children = [kid(**{"lambda": "nobody.knows"}), kid(payload=b"x" * 400_000)]
    await succeed(hsc, claimed_task, *children)

    assert await task_states.status(other.task_id) == "fatal_failure"
    assert await task_states.status(claimed_task.task_id) == "success"
    assert [await task_states.status(UUID(child.task_id).bytes) for child in children] == ["new", "new"]
