"""Batches in a whole Duly: many tasks share few calls, and a task that kills its process ends alone."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from tests.fixtures.host import Journal
from tests.fixtures.whole_stack import WholeStack

LONG = timedelta(seconds=90)
FORMS = {"store": (), "sqs": ("--separate",)}

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,  # a stack of its own; test_executor_batches.py has its parts
    pytest.mark.timeout(240),
]


class Batching(WholeStack):
    program = ("duly_cli", "up", "tests.fixtures.batch_callbacks:app", "--free-ports")


@pytest.fixture(params=["store", pytest.param("sqs", marks=pytest.mark.sqs)])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[duly.Client]:
    queue = request.param
    started = Batching(
        tmp_path, "--data", str(tmp_path / "data"), "--queue", queue, "--slots", "2", *FORMS[queue]
    )
    try:
        with duly.Client(started.frontend()) as opened:
            yield opened
    finally:
        started.stop()


def test_tasks_share_calls_and_one_that_kills_its_process_is_quarantined_alone(
    client: duly.Client, tmp_path: Path
) -> None:
    journal = Journal(tmp_path)
    payloads: list[dict[str, object]] = [{**journal.payload(), "n": number} for number in range(60)]
    payloads[17]["kill"] = True
    payloads[30]["fail"] = True

    tasks = client.schedule_many([duly.NewTask("batch.sizes", each) for each in payloads])

    ended = client.wait_many(tasks, LONG)
    kinds = [each.failure.kind if each.failure else None for each in ended]
    assert (kinds[17], ended[17].crashes) == (duly.FailureKind.QUARANTINED, 3)
    assert kinds[30] is duly.FailureKind.CALLBACK
    others = [each for number, each in enumerate(ended) if number not in (17, 30)]
    assert {each.status for each in others} == {duly.TaskStatus.SUCCESS}
    assert [each.result[1] for each in others] == [n for n in range(60) if n not in (17, 30)]
    assert {each.crashes for each in others} <= {0, 1}
    assert max(each.result[0] for each in others) > 1
    runs = Counter(line.split()[1] for line in journal.lines("started"))
    assert max(runs[str(task.task_id)] for number, task in enumerate(tasks) if number != 17) <= 2
