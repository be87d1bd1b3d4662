"""A host of one domain runs its tasks, and no others."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from tests.fixtures.whole_stack import WholeStack

LONG = timedelta(seconds=60)
NAME = "hello.greet"

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,  # a stack of its own; tests/lambdas/test_domains.py has its parts
    pytest.mark.timeout(240),
]


class OneDomain(WholeStack):
    program = ("duly_cli", "up", "examples.hello:app", "--free-ports")


@pytest.fixture(params=["store", pytest.param("sqs", marks=pytest.mark.sqs)])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[duly.Client]:
    forms = {"store": (), "sqs": ("--separate",)}[request.param]
    arguments = ("--data", f"{tmp_path}/data", "--queue", request.param, "--processes", "1", *forms)
    started = OneDomain(tmp_path, *arguments, DULY_EXECUTOR_DOMAINS="lab-b")
    try:
        with duly.Client(started.frontend()) as opened:
            yield opened
    finally:
        started.stop()


def test_a_host_of_a_domain_runs_its_tasks_and_leaves_the_others(client: duly.Client) -> None:
    others = client.schedule(NAME, {"name": "nobody"})
    ours = client.schedule(NAME, {"name": "Ada"}, domain="lab-b")

    ended = client.wait(ours, LONG)

    assert ended.result["text"] == "Hello, Ada!"
    assert client.get(others).status in (duly.TaskStatus.NEW, duly.TaskStatus.ENQUEUED)
    (host,) = client.hosts(include_lambdas=True)
    assert [each.name for each in host.lambdas] == [f"{NAME}@~lab-b"]
