"""Time tables of a whole `duly up`: the example's, declared beside its callbacks, and one that a client creates."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest

import duly
from tests.fixtures.waiting import wait_until
from tests.fixtures.whole_stack import WholeStack

SECOND = timedelta(seconds=1)

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,  # a stack of its own; test_time_table_ticks.py has its parts
    pytest.mark.timeout(240),
]


class Periodic(WholeStack):
    """`duly up examples.periodic:app`."""

    program = ("duly_cli", "up", "examples.periodic:app", "--free-ports")


@pytest.fixture(
    scope="module",
    # long: over SQS a tick's task goes the way of any other
    params=["store", pytest.param("sqs", marks=[pytest.mark.sqs, pytest.mark.long])],
)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[duly.Client]:
    folder = tmp_path_factory.mktemp("periodic")
    stack = Periodic(folder, "--data", str(folder / "data"), "--queue", request.param)
    try:
        with duly.Client(stack.frontend()) as opened:
            yield opened
    finally:
        stack.stop()


def test_declared_and_created_time_tables_run_once_a_tick_and_the_callback_sees_the_tick(
    client: duly.Client,
) -> None:
    client.create_table("beside", "heartbeat.note", every=SECOND)

    def ended() -> list[duly.Task] | None:
        tasks = list(client.list(lambda_name="heartbeat.note", statuses=[duly.TaskStatus.SUCCESS]))
        return tasks if {task.time_table for task in tasks[6:]} == {"heartbeat", "beside"} else None

    tasks = client.get_many(task.task_id for task in wait_until(ended, 60 * SECOND))

    assert all(task is not None and task.result == str(task.scheduled_at) for task in tasks)
    ticks = Counter((task.time_table, task.scheduled_at) for task in tasks if task is not None)
    assert set(ticks.values()) == {1}


def test_a_declared_cron_table_shows_its_next_ticks(client: duly.Client) -> None:
    table = client.table("report.hourly", next_ticks=10)

    assert table.declared
    assert [tick.minute for tick in table.next_ticks] == [0] * 10
    assert table.next_ticks[0] == table.next_tick_at


def test_a_paused_time_table_makes_no_more_tasks(client: duly.Client) -> None:
    client.pause_table("heartbeat", note="enough")
    last = client.table("heartbeat").last_tick_at
    other = client.create_table("witness", "heartbeat.note", every=SECOND)

    def the_witness_fired() -> bool:
        return bool(client.table(other.name).last_tick_at)

    wait_until(the_witness_fired, 30 * SECOND)
    assert client.table("heartbeat").last_tick_at == last
