"""The demo's checker: it finds every violation that is planted, and nothing where there is none."""

from dataclasses import replace

import pytest

from duly import TaskStatus
from fileindex.demo.checker import Ending, Execution, check, read_log
from fileindex.demo.run import percentile

FACTS = {"sha256": "c0ffee", "size": 10, "lines": 2}
ENDING = Ending("t1", "a.py", TaskStatus.SUCCESS, FACTS)
KILLED, SURVIVOR = 77, 88
# In every run an Executor is killed in the middle of a task, which another one then runs again.
VICTIM = Ending("victim", "v.py", TaskStatus.SUCCESS, FACTS)
VICTIMS_RUNS = [
    Execution("victim", 1, KILLED, True, 1, 1.0),
    Execution("victim", 2, SURVIVOR, True, 5, 5.0, 6, True),
]


def execution(
    started: int, ended: int | None, *, fence: int = 1, executor: int = SURVIVOR, alone: bool = True
) -> Execution:
    return Execution("t1", fence, executor, alone, started, float(started), ended, ended is not None)


def failed(started: int, ended: int, *, fence: int = 1) -> Execution:
    return replace(execution(started, ended, fence=fence), succeeded=False)


def faults(*executions: Execution, ending: Ending = ENDING) -> dict[str, str]:
    """The first fault of each check that found one."""
    expected = {"a.py": FACTS, "v.py": FACTS}
    checks = check([ending, VICTIM], [*VICTIMS_RUNS, *executions], expected, KILLED)
    return {check.claim: check.faults[0] for check in checks if check.faults}


@pytest.mark.parametrize(
    "executions",
    [
        [execution(1, 2)],
        [failed(1, 2), execution(2, 3, fence=2)],
        [execution(1, None, executor=KILLED), execution(5, 6, fence=2)],
        [execution(1, 2, executor=KILLED), execution(5, 6, fence=2)],
    ],
    ids=["once", "failed first", "killed first", "run again after a success that Duly did not hear of"],
)
def test_a_run_without_fault_passes(executions: list[Execution]) -> None:
    assert faults(*executions) == {}


# ---- lost, failed, wrong ---------------------------------------------------------------------------------


def test_a_task_that_duly_does_not_know_is_lost() -> None:
    found = faults(execution(1, 2), ending=Ending("t1", "a.py"))

    assert found == {"lost": "a.py (t1): Duly does not know the task"}


def test_a_task_that_never_ended_is_lost() -> None:
    found = faults(execution(1, 2), ending=replace(ENDING, status=TaskStatus.ENQUEUED))

    assert found["lost"] == "a.py (t1): still ENQUEUED"


@pytest.mark.parametrize("executions", [[], [failed(1, 2)]], ids=["never ran", "only failed"])
def test_a_success_that_the_log_does_not_show_is_lost(executions: list[Execution]) -> None:
    assert faults(*executions) == {"lost": "a.py (t1): SUCCESS, but no execution of it succeeded"}


def test_a_task_that_failed_for_good_is_told_with_its_reason() -> None:
    ending = replace(ENDING, status=TaskStatus.FATAL_FAILURE, failure="no such file")

    found = faults(failed(1, 2), ending=ending)

    assert found == {"ended in SUCCESS": "a.py (t1): FATAL_FAILURE: no such file"}


@pytest.mark.parametrize("result", [None, {**FACTS, "sha256": "decaf"}, {**FACTS, "lines": 3}])
def test_a_result_that_differs_from_the_file_is_wrong(result: object) -> None:
    found = faults(execution(1, 2), ending=replace(ENDING, result=result))

    assert found.keys() == {"equal to direct hashing"}


def test_a_run_without_tasks_proves_nothing() -> None:
    checks = check([], [], {}, None)

    assert {check.claim for check in checks if check.faults} >= {"ended in SUCCESS", "killed, then run again"}


# ---- overlaps --------------------------------------------------------------------------------------------


def test_an_execution_that_begins_before_the_last_one_ended_is_an_overlap() -> None:
    found = faults(execution(1, 5_000_001), execution(2_000_001, 6_000_000, fence=2))

    assert found == {
        "run twice at a time": "a.py (t1): fence 2 began 3.000 ms before an earlier execution ended"
    }


def test_an_execution_inside_a_long_one_is_an_overlap_and_so_is_one_after_both() -> None:
    long_one, short_one = execution(1, 100), execution(2, 3, fence=2)

    assert "run twice at a time" in faults(long_one, short_one)
    assert "run twice at a time" in faults(long_one, failed(100, 300, fence=2), execution(250, 260, fence=3))
    assert faults(long_one, execution(100, 101, fence=2), execution(102, 103, fence=3)) == {}


def test_an_execution_that_found_the_lock_taken_is_an_overlap_whatever_the_clocks_say() -> None:
    found = faults(execution(1, None, executor=KILLED), execution(5, 6, fence=2, alone=False))

    assert found == {
        "run twice at a time": "a.py (t1): fence 2 began while another execution held the task's lock"
    }


# ---- the kill --------------------------------------------------------------------------------------------


def test_an_execution_without_an_end_in_an_executor_that_lived_is_a_fault() -> None:
    found = faults(execution(1, None, executor=99), execution(5, 6, fence=2))

    assert found == {"killed, then run again": "task t1: it has no end, and its Executor 99 was not killed"}


def test_a_task_that_no_other_executor_ran_after_the_kill_is_a_fault() -> None:
    found = faults(execution(0, 1, executor=KILLED), execution(2, None, fence=2, executor=KILLED))

    assert found == {"killed, then run again": "task t1: no other Executor ran it again"}


@pytest.mark.parametrize("killed", [None, 66])
def test_a_run_in_which_no_busy_executor_was_killed_does_not_pass(killed: int | None) -> None:
    checks = check([ENDING], [execution(1, 2)], {"a.py": FACTS}, killed)

    (fault,) = [fault for check in checks for fault in check.faults]
    assert fault == "no Executor was killed in the middle of a task"


# ---- the log, and percentiles ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        '{"event": "started"}',
        '{"event": "succeeded", "task_id": "t1", "fence": 1, "executor": 5, "at_ns": 1}',
    ],
    ids=["not JSON", "fields missing", "an end without a start"],
)
def test_a_line_that_is_no_record_is_refused_with_its_text(line: str) -> None:
    with pytest.raises(ValueError, match="has a line that cannot be") as refused:
        read_log([line])

    assert line in str(refused.value)


@pytest.mark.parametrize(("percent", "value"), [(50, 50), (99, 99), (100, 100), (0, 1)])
def test_a_percentile_is_a_value_that_occurred(percent: int, value: int) -> None:
    assert percentile(list(range(100, 0, -1)), percent) == value
    assert percentile([7], percent) == 7
