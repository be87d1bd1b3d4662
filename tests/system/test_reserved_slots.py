"""Reserved slots in a whole Duly: one lambda's long tasks fill a worker, and those that have slots for themselves start."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from tests.fixtures.host import Journal
from tests.fixtures.waiting import wait_until
from tests.fixtures.whole_stack import WholeStack

LONG = timedelta(seconds=40)
SIZES = ("--processes", "2", "--slots", "2")
SHARED = 2
RESERVED = "test.progress=1, test.context:high=1"
FORMS = {"store": (), "sqs": ("--separate",)}

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,  # a stack of its own; test_executor_reserved_slots.py has its parts
    pytest.mark.timeout(240),
]


@pytest.fixture(
    scope="module",
    # long: test_whole_path.py has a stack with SQS for `make test`
    params=["store", pytest.param("sqs", marks=[pytest.mark.sqs, pytest.mark.long])],
)
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeStack]:
    folder = tmp_path_factory.mktemp("stack")
    queue = request.param
    arguments = ("--data", str(folder / "data"), "--queue", queue, *FORMS[queue], *SIZES)
    started = WholeStack(folder, *arguments, DULY_EXECUTOR_RESERVED_SLOTS=RESERVED)
    try:
        started.frontend()
        yield started
    finally:
        started.stop()


@pytest.fixture
def client(stack: WholeStack) -> Iterator[duly.Client]:
    with duly.Client(stack.frontend()) as opened:
        yield opened


@pytest.fixture
def journals(tmp_path: Path) -> Iterator[tuple[Journal, Journal]]:
    """Those of two kinds of tasks that wait; in the end they are let go."""
    made = [Journal(tmp_path / name) for name in ("first", "second")]
    for journal in made:
        journal.folder.mkdir()
    yield made[0], made[1]
    for journal in made:
        journal.let_go()


def begun(journal: Journal) -> int:
    return len(journal.lines("started"))


def test_a_task_with_a_reserved_slot_starts_while_long_tasks_of_others_fill_the_worker(
    client: duly.Client, journals: tuple[Journal, Journal]
) -> None:
    flood, reserved = journals
    flooding = client.schedule_many([duly.NewTask("test.wait", flood.payload())] * 10)
    wait_until(lambda: begun(flood) == SHARED, LONG)
    others = [client.schedule("test.echo", 1), client.schedule("test.context", 1)]

    own = client.schedule("test.progress", reserved.payload())
    wait_until(lambda: begun(reserved) == 1, LONG)
    high = client.wait(client.schedule("test.context", 1, priority=duly.Priority.HIGH), LONG)

    assert high.status is duly.TaskStatus.SUCCESS
    assert begun(flood) == SHARED
    assert not any(client.get(each).status.is_final for each in others)
    for journal in journals:
        journal.let_go()
    ended = client.wait_many([*flooding, *others, own], LONG)
    assert {each.status for each in ended} == {duly.TaskStatus.SUCCESS}
    assert {each.failures + each.crashes for each in ended} == {0}


def test_a_lambda_with_a_reserved_slot_uses_the_shared_ones_as_well_but_none_of_others(
    client: duly.Client, journals: tuple[Journal, Journal]
) -> None:
    journal, _ = journals
    flooding = client.schedule_many([duly.NewTask("test.progress", journal.payload())] * 10)
    wait_until(lambda: begun(journal) == SHARED + 1, LONG)

    high = client.wait(client.schedule("test.context", 1, priority=duly.Priority.HIGH), LONG)

    assert high.status is duly.TaskStatus.SUCCESS
    assert begun(journal) == SHARED + 1
    journal.let_go()
    assert {each.status for each in client.wait_many(flooding, LONG)} == {duly.TaskStatus.SUCCESS}
