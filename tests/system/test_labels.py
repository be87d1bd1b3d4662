"""A host with a label runs the tasks that require it, and no others; on both backends."""

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
    pytest.mark.long,  # a stack of its own; tests/lambdas/test_labels.py has its parts
    pytest.mark.timeout(240),
]


class OneLabel(WholeStack):
    program = ("duly_cli", "up", "examples.hello:app", "--free-ports")


@pytest.fixture(params=["store", pytest.param("sqs", marks=pytest.mark.sqs)])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[duly.Client]:
    forms = {"store": (), "sqs": ("--separate",)}[request.param]
    arguments = ("--data", f"{tmp_path}/data", "--queue", request.param, "--processes", "1", *forms)
    started = OneLabel(tmp_path, *arguments, DULY_EXECUTOR_LABELS="gpu")
    try:
        with duly.Client(started.frontend()) as opened:
            yield opened
    finally:
        started.stop()


def test_a_host_with_a_label_runs_what_requires_it_and_leaves_the_rest(client: duly.Client) -> None:
    others = client.schedule(NAME, {"name": "nobody"}, requires=["arm"])
    ours = client.schedule(NAME, {"name": "Ada"}, requires=["gpu"])
    plain = client.schedule(NAME, {"name": "Bob"})

    assert client.wait(plain, LONG).result["text"] == "Hello, Bob!"
    assert client.wait(ours, LONG).result["text"] == "Hello, Ada!"

    assert client.get(others).status in (duly.TaskStatus.NEW, duly.TaskStatus.ENQUEUED)
    assert any("no host has arm" in each.text for each in client.explain(others).reasons)
    (host,) = client.hosts(include_lambdas=True)
    assert host.labels == ("gpu",)
    assert f"{NAME}@:gpu" in {each.name for each in host.lambdas}
