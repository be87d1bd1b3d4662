"""The demo's figures."""

import pytest

from duly_local.demo.executions import Execution
from duly_local.demo.figures import TaskTimes, by_task, percentile, row

SECOND = 1_000_000_000


def execution(
    task_id: str, started: float, ended: float | None, *, succeeded: bool = True, fence: int = 1
) -> Execution:
    begin, end = int(started * SECOND), None if ended is None else int(ended * SECOND)
    return Execution(
        task_id, 1, fence, 1, alone=True, started_at_ns=begin, started_boot_ns=begin,
        ended_boot_ns=end, succeeded=succeeded and end is not None,
    )  # fmt: skip


def task(task_id: str, due: float) -> TaskTimes:
    return TaskTimes(task_id, "fileindex.index", 3, int(due * SECOND), is_ahead=False)


def test_lateness_counts_from_when_a_task_was_due_to_its_first_start_only() -> None:
    executions = [
        execution("t1", 10.5, 11, succeeded=False),
        execution("t1", 20, 21, fence=2),
        execution("t2", 12, None),
    ]

    figures = row([task("t1", 10), task("t2", 10), task("t3", 10)], by_task(executions))

    assert (figures.tasks, figures.done, figures.executions) == (3, 1, 3)
    assert figures.lateness_s == pytest.approx({"p50": 0.5, "p95": 2, "p99": 2})
    assert figures.per_second == pytest.approx(1 / 10.5)


def test_tasks_of_which_none_has_run_have_no_lateness() -> None:
    figures = row([task("t1", 10)], {})

    assert (figures.done, figures.executions, figures.lateness_s, figures.per_second) == (0, 0, {}, 0)


@pytest.mark.parametrize(("percent", "value"), [(50, 50), (95, 95), (99, 99), (100, 100), (0, 1)])
def test_a_percentile_is_a_value_that_occurred(percent: int, value: int) -> None:
    assert percentile(list(range(100, 0, -1)), percent) == value
    assert percentile([7], percent) == 7
