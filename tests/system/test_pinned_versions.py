"""Tasks pinned to a version, with hosts of two versions side by side."""

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from typer.testing import CliRunner

import duly
from duly_cli.__main__ import app
from tests.fixtures.whole_stack import WholeStack

LONG = timedelta(seconds=60)
NAME = "test.version"
APPS = ("tests.fixtures.versioned_callbacks:first", "tests.fixtures.versioned_callbacks:third")
FORMS = {"store": (), "sqs": ("--separate",)}

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,  # a stack of its own; test_registry.py and test_executor_work.py have its parts
    pytest.mark.timeout(240),
]


class TwoVersions(WholeStack):
    program = ("duly_cli", "up", *APPS, "--free-ports")


@pytest.fixture(
    scope="module",
    # long: test_whole_path.py has a stack with SQS for `make test`
    params=["store", pytest.param("sqs", marks=[pytest.mark.sqs, pytest.mark.long])],
)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("stack")
    queue = request.param
    arguments = ("--data", str(folder / "data"), "--queue", queue, "--processes", "1", *FORMS[queue])
    started = TwoVersions(folder, *arguments)
    try:
        yield started.frontend()
    finally:
        started.stop()


@pytest.fixture
def client(address: str) -> Iterator[duly.Client]:
    with duly.Client(address) as opened:
        yield opened


def results(client: duly.Client, version: str, count: int = 6) -> list[object]:
    scheduled = [client.schedule(NAME, lambda_version=version) for _ in range(count)]
    return [task.result for task in client.wait_many(scheduled, LONG)]


def test_a_pinned_task_runs_only_where_its_version_is_served(client: duly.Client) -> None:
    assert results(client, "1") == ["1"] * 6
    assert results(client, "3") == [["3", NAME]] * 6
    assert results(client, "2") == [["3", NAME]] * 6
    assert len(results(client, "")) == 6


def test_a_task_of_a_version_that_nobody_declared_is_refused_and_leaves_no_queue(client: duly.Client) -> None:
    with pytest.raises(
        duly.UnknownLambdaError, match=r"version '9' of test.version.*duly lambdas test.version"
    ):
        client.schedule(NAME, lambda_version="9")

    assert f"{NAME}@9" not in client.get_lambda(NAME).pinned
    client.wait_many([client.schedule(NAME, lambda_version="3")], LONG)


def test_the_newer_version_is_in_force_whichever_host_started_last(client: duly.Client, address: str) -> None:
    detail = client.get_lambda(NAME)

    shown = CliRunner().invoke(app, ["lambdas", NAME, "--address", address])

    assert detail.in_force is not None
    assert (detail.in_force.version, detail.in_force.max_attempts) == ("3", 5)
    assert {"test.version@1", "test.version@2", "test.version@3"} <= set(detail.pinned)
    assert re.search(r"^ +owner  tests$", shown.output, re.MULTILINE)
    assert re.search(r"^3 +in force ", shown.output, re.MULTILINE)
