"""The example of chains and checkpoints through a whole stack."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from tests.fixtures.waiting import wait_until
from tests.fixtures.whole_stack import WholeStack

LONG = timedelta(seconds=60)

# long: checkpoints and changes have tests of their own
pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(240)]


class Pipeline(WholeStack):
    """`duly up examples.pipeline:app`."""

    program = ("duly_cli", "up", "examples.pipeline:app", "--free-ports")


@pytest.fixture(params=["store", pytest.param("sqs", marks=pytest.mark.sqs)])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[duly.Client]:
    """Long over SQS: what hands a checkpoint and children over does not know the queue."""
    stack = Pipeline(tmp_path, "--data", str(tmp_path / "data"), "--queue", request.param)
    try:
        with duly.Client(stack.frontend()) as opened:
            yield opened
    finally:
        stack.stop()


def test_a_failed_import_goes_on_at_its_checkpoint_and_is_reported_once(client: duly.Client) -> None:
    asked = {"source": "orders", "rows": 500, "fails_at": 300}

    imported = client.wait(client.schedule("pipeline.import", asked), LONG)
    report = client.wait(imported.result["report"], LONG)

    assert (imported.status, imported.failures) == (duly.TaskStatus.SUCCESS, 1)
    assert (imported.result["imported"], imported.checkpoint) == (200, None)
    assert (report.status, report.result) == (duly.TaskStatus.SUCCESS, "500 rows of orders")
    assert len(list(client.list(lambda_name="pipeline.report"))) == 1


def test_tasks_are_changed_while_they_wait_and_start_as_they_were_changed(client: duly.Client) -> None:
    waits = client.schedule("pipeline.report", {"source": "old", "rows": 1}, delay=timedelta(hours=1))

    client.update(waits, delay=timedelta(0), payload={"source": "new", "rows": 2})

    assert client.wait(waits, LONG).result == "2 rows of new"
    with pytest.raises(duly.NotPendingError):
        client.update(waits, priority=duly.Priority.LOW)
    wait_until(lambda: client.purge(lambda_name="pipeline.report", dry_run=True) == 1)
    assert client.purge(lambda_name="pipeline.report") == 1
