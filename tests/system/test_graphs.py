"""The workflow of examples/discovery.py goes through all services, without a queue and over SQS."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

import duly
from duly import TaskStatus
from examples.discovery import write_graph
from tests.fixtures.whole_stack import WholeStack

LONG = timedelta(seconds=60)
FORMS = {"store": (), "sqs": ("--separate",)}

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,  # a stack of its own; test_graph_calls.py and test_graph_rules_in_store.py have its parts
    pytest.mark.timeout(240),
]


class DiscoveryStack(WholeStack):
    """`duly up` with the example's callbacks."""

    program = ("duly_cli", "up", "examples.discovery:app", "--free-ports")


@pytest.fixture(
    scope="module",
    # long: test_whole_path.py has a stack with SQS for `make test`
    params=["store", pytest.param("sqs", marks=[pytest.mark.sqs, pytest.mark.long])],
)
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeStack]:
    folder = tmp_path_factory.mktemp("stack")
    queue = request.param
    started = DiscoveryStack(folder, "--data", str(folder / "data"), "--queue", queue, *FORMS[queue])
    try:
        started.frontend()
        yield started
    finally:
        started.stop()


@pytest.fixture
def client(stack: WholeStack) -> Iterator[duly.Client]:
    with duly.Client(stack.frontend()) as opened:
        yield opened


def run(client: duly.Client, server: str) -> duly.Graph:
    with client.graph("discovery") as graph:
        write_graph(graph, server)
    return client.wait_graph(graph.graph_id, LONG)


def statuses(graph: duly.Graph) -> dict[str, TaskStatus | None]:
    return {label: node.status for label, node in graph.nodes.items()}


def test_nodes_run_after_those_they_wait_for_and_read_their_results(client: duly.Client) -> None:
    graph = run(client, "n1")

    assert graph.status is duly.GraphStatus.SUCCEEDED
    assert statuses(graph) == {
        "power-on": TaskStatus.SUCCESS,
        "ipmi": TaskStatus.SUCCESS,
        "disks": TaskStatus.SUCCESS,
        "catalogue": TaskStatus.SUCCESS,
        "alarm": TaskStatus.DROPPED,
    }
    found = client.get(graph.nodes["catalogue"].task_id).result["found"]
    assert found == {"ipmi": {"fans": 4, "server": "n1"}, "disks": {"disks": ["sda", "sdb"]}}
    assert client.get(graph.nodes["ipmi"].task_id).failures == 1


def test_a_failure_that_is_ignored_fires_what_waits_for_success(client: duly.Client) -> None:
    graph = run(client, "n9")

    assert graph.status is duly.GraphStatus.SUCCEEDED
    assert statuses(graph)["disks"] is TaskStatus.FATAL_FAILURE
    assert client.get(graph.nodes["catalogue"].task_id).result["found"]["disks"] is None


def test_a_failure_skips_its_branch_and_runs_what_waits_for_it(client: duly.Client) -> None:
    graph = run(client, "dead1")

    assert statuses(graph) == {
        "power-on": TaskStatus.FATAL_FAILURE,
        "ipmi": TaskStatus.DROPPED,
        "disks": TaskStatus.DROPPED,
        "catalogue": TaskStatus.DROPPED,
        "alarm": TaskStatus.SUCCESS,
    }
    assert client.get(graph.nodes["alarm"].task_id).result == "dead1: power-on failed"
    assert client.get(graph.nodes["ipmi"].task_id).failure.kind is duly.FailureKind.GRAPH_SKIPPED


def test_a_node_without_a_callback_waits_for_an_event_and_a_later_one_reads_it(client: duly.Client) -> None:
    with client.graph("approval") as graph:
        graph.wait("approved", timeout=timedelta(hours=1))
        graph.wait("asked", key="asked-1", after=graph.wait("first", key="first-1"))
    for key, value in (("first-1", 1), ("asked-1", 2), (f"{graph.graph_id}/approved", {"by": "ann"})):
        client.send_event(key, value)

    ended = client.wait_graph(graph.graph_id, LONG)

    assert set(statuses(ended).values()) == {TaskStatus.SUCCESS}
    results = {label: client.get(node.task_id).result for label, node in ended.nodes.items()}
    assert results == {"approved": {"by": "ann"}, "asked": 2, "first": 1}
