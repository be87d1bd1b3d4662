"""Who starts before whom in a whole Duly: by the order of starts that the callbacks write down, never by a clock."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from tests.fixtures.waiting import wait_until
from tests.fixtures.whole_stack import WholeStack

LONG = timedelta(seconds=100)
PROCESSES, SLOTS = 2, 4
AT_A_TIME = PROCESSES * SLOTS
BACKLOG = 10_000

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,
    pytest.mark.timeout(240),
]  # long: ten thousand tasks for each test


class PriorityStack(WholeStack):
    """`duly up` with the application of these tests."""

    program = ("duly_cli", "up", "tests.fixtures.priority_callbacks:app", "--free-ports")
    ready_within = timedelta(seconds=100)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeStack]:
    folder = tmp_path_factory.mktemp("stack")
    sizes = ("--processes", str(PROCESSES), "--slots", str(SLOTS))
    started = PriorityStack(folder, "--data", str(folder / "data"), *sizes)
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
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def started(journal: Path) -> list[str]:
    return journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []


@pytest.fixture
def backlog(client: duly.Client, journal: Path) -> Iterator[Callable[..., dict[str, object]]]:
    """Ten thousand tasks that wait, of which the first run; what is left of them is cancelled in the end."""
    receipts: list[duly.ScheduledTask] = []

    def make(priority: duly.Priority, takes_ms: int, begun: int) -> dict[str, object]:
        payload = {"journal": str(journal), "name": "waits", "takes_ms": takes_ms}
        receipts.extend(client.schedule_many([duly.NewTask("steady", payload, priority)] * BACKLOG))
        wait_until(lambda: len(started(journal)) >= begun, LONG)
        return payload

    yield make
    client.cancel_many(receipts)


def test_an_urgent_task_starts_at_once_while_ten_thousand_low_ones_wait(
    client: duly.Client, journal: Path, backlog: Callable[..., dict[str, object]]
) -> None:
    """It overtakes in the store, in the queue and in the Controller's buffer; what the Executor holds ahead starts first."""
    payload = backlog(duly.Priority.LOW, takes_ms=40, begun=300)

    overtaken_by = []
    for number in range(5):
        name = f"urgent {number}"
        before = len(started(journal))
        urgent = client.schedule("steady", payload | {"name": name}, priority=duly.Priority.URGENT)
        client.wait(urgent, LONG)
        overtaken_by.append(started(journal).index(name) - before)

    # first in, first out would have let thousands start first
    assert sorted(overtaken_by)[2] < 150, overtaken_by
    assert max(overtaken_by) < 600, overtaken_by
    assert len(started(journal)) < BACKLOG


def test_another_lambda_of_the_same_priority_does_not_wait_for_a_backlog(
    client: duly.Client, journal: Path, backlog: Callable[..., dict[str, object]]
) -> None:
    payload = backlog(duly.Priority.NORMAL, takes_ms=40, begun=300)
    before = len(started(journal))

    client.wait(client.schedule("short", payload | {"name": "other"}), LONG)

    assert started(journal).index("other") - before < 600


def test_an_urgent_task_gets_one_of_the_next_slots_that_long_low_ones_leave(
    client: duly.Client, journal: Path, backlog: Callable[..., dict[str, object]]
) -> None:
    payload = backlog(duly.Priority.LOW, takes_ms=1_000, begun=AT_A_TIME)
    before = len(started(journal))

    urgent = client.schedule("short", payload | {"name": "urgent"}, priority=duly.Priority.URGENT)
    client.wait(urgent, LONG)

    assert started(journal).index("urgent") - before <= 2 * AT_A_TIME


def test_long_tasks_hold_no_short_one_hostage_while_a_slot_is_free(
    client: duly.Client, journal: Path, tmp_path: Path
) -> None:
    """Short ones that end fast make the Executor hold many ahead; none may be stuck behind a long one."""
    short = {"journal": str(journal), "name": "short"}
    long = {"journal": str(journal), "name": "long", "until": str(tmp_path / "go")}
    client.wait_many(client.schedule_many([duly.NewTask("short", short)] * 2_000), LONG)

    tasks = [duly.NewTask("short", short)] * 2_000
    for place in range(AT_A_TIME - 1):
        tasks.insert(place * 250, duly.NewTask("long", long))
    receipts = client.schedule_many(tasks)

    try:
        shorts = [
            receipt for receipt, task in zip(receipts, tasks, strict=True) if task.lambda_name == "short"
        ]
        assert {task.status for task in client.wait_many(shorts, LONG)} == {duly.TaskStatus.SUCCESS}
        assert started(journal).count("long") == AT_A_TIME - 1
    finally:
        (tmp_path / "go").touch()
