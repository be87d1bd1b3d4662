"""Gates in a whole Duly: with thousands of tasks buffered on the way to a host, none starts later than a heartbeat after a pause."""

import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

import duly
from duly_core.config.timing import Timing
from tests.fixtures.waiting import wait_until
from tests.fixtures.whole_stack import WholeStack

LONG = timedelta(seconds=120)
MANY = 4_000
HEARTBEAT = Timing(profile="embedded").heartbeat_period.total_seconds()
SLACK = 2.0
"""Seconds: calls, and callbacks that are about to start, on a machine that does other things."""
FORMS = {"store": (), "sqs": ("--separate",)}

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,  # a stack of its own; test_hsc_gates.py and test_executor_gates.py have its parts
    pytest.mark.timeout(300),
]


class GatedStack(WholeStack):
    """`duly up` with the application of these tests."""

    program = ("duly_cli", "up", "tests.fixtures.gated_callbacks:app", "--free-ports")


class Starts:
    """What the callbacks wrote down."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return len(self.lines())

    def lines(self) -> list[tuple[float, str]]:
        """When each run started, and of which task."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return [(float(each.split()[0]), each.split()[1]) for each in lines]

    def after(self, instant: float) -> int:
        return sum(at > instant for at, _ in self.lines())


@pytest.fixture(
    scope="module",
    # long: test_whole_path.py has a stack with SQS for `make test`
    params=["store", pytest.param("sqs", marks=[pytest.mark.sqs, pytest.mark.long])],
)
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeStack]:
    folder = tmp_path_factory.mktemp("stack")
    queue = request.param
    sizes = ("--processes", "2", "--slots", "4")
    started = GatedStack(folder, "--data", str(folder / "data"), "--queue", queue, *FORMS[queue], *sizes)
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
def starts(tmp_path: Path) -> Starts:
    return Starts(tmp_path / "journal")


def schedule(client: duly.Client, starts: Starts, count: int, takes_ms: int, **fields: object) -> list:
    payload = {"journal": str(starts.path), "takes_ms": takes_ms}
    return client.schedule_many([duly.NewTask("gated", payload, **fields) for _ in range(count)])


def quiet_from(instant: float, starts: Starts, seconds: float) -> int:
    """Wait until so long after an instant; how many tasks started after it."""
    wait_until(lambda: time.time() > instant + seconds, timedelta(seconds=seconds + 60))
    return starts.after(instant)


@pytest.mark.long
def test_with_thousands_buffered_none_starts_later_than_a_heartbeat_after_a_pause_and_none_is_lost(
    client: duly.Client, starts: Starts
) -> None:
    receipts = schedule(client, starts, MANY, takes_ms=15)
    wait_until(lambda: len(starts) >= MANY // 10, LONG)

    client.put_gate("stop", duly.GateKind.PAUSE, "gated", reason="a test")
    deadline = time.time() + HEARTBEAT + SLACK
    late = quiet_from(deadline, starts, 4 * HEARTBEAT)
    begun = len(starts)

    assert late == 0
    assert begun < MANY
    client.delete_gate("stop")
    assert {task.status for task in client.wait_many(receipts, LONG)} == {duly.TaskStatus.SUCCESS}
    assert Counter(task_id for _, task_id in starts.lines()).most_common(1)[0][1] == 1
    assert len(starts) == MANY


def test_tasks_of_a_paused_collection_wait_while_others_of_their_lambda_run(
    client: duly.Client, starts: Starts
) -> None:
    client.put_gate("marketing", duly.GateKind.PAUSE, "gated", collection="marketing")
    held = schedule(client, starts, 300, takes_ms=1, collection="marketing")
    free = schedule(client, starts, 300, takes_ms=1)

    client.wait_many(free, LONG)
    assert len(starts) == 300
    wait_until(lambda: client.gates()[0].parked == 300, LONG)

    client.delete_gate("marketing")
    client.wait_many(held, LONG)
    assert len(starts) == 600


def test_a_running_callback_is_not_touched_by_a_pause(client: duly.Client, starts: Starts) -> None:
    (running,) = schedule(client, starts, 1, takes_ms=int(3_000 * HEARTBEAT))
    wait_until(lambda: len(starts) == 1, LONG)

    client.put_gate("stop", duly.GateKind.PAUSE, "gated")
    try:
        task = client.wait(running, LONG)
    finally:
        client.delete_gate("stop")

    assert (task.status, task.fence, len(starts)) == (duly.TaskStatus.SUCCESS, 1, 1)


def test_a_gate_ends_by_itself(client: duly.Client, starts: Starts) -> None:
    set_at = time.time()
    client.put_gate(f"brief-{uuid4().hex[:8]}", duly.GateKind.PAUSE, "gated", duration=timedelta(seconds=3))
    (receipt,) = schedule(client, starts, 1, takes_ms=0)

    client.wait(receipt, LONG)

    ((started_at, _),) = starts.lines()
    assert started_at > set_at + 2.5
    assert client.gates() == []


def test_a_bad_deploy_is_paused_by_its_breaker_and_goes_on_when_it_is_fixed(
    client: duly.Client, starts: Starts
) -> None:
    broken = Path(f"{starts.path}.broken")
    broken.touch()
    client.put_breaker("gated", 0.5, minimum=10, pause=timedelta(seconds=5))
    try:
        receipts = schedule(client, starts, 400, takes_ms=100)
        wait_until(lambda: client.breakers()[0].state is duly.BreakerState.OPEN, LONG)
        assert [gate.name for gate in client.gates()] == ["breaker:gated"]

        broken.unlink()
        wait_until(lambda: client.breakers()[0].state is duly.BreakerState.CLOSED, LONG)

        ends = client.wait_many(receipts, LONG)
        assert {task.status for task in ends} <= {duly.TaskStatus.SUCCESS, duly.TaskStatus.FATAL_FAILURE}
        assert sum(task.status is duly.TaskStatus.SUCCESS for task in ends) > 300
    finally:
        client.delete_breaker("gated")
