"""The demo's checker: it finds every violation that is planted, and nothing where there is none."""

from dataclasses import replace

import pytest

from duly_local.demo.checker import Ending, Findings, check
from duly_local.demo.executions import Execution
from duly_local.demo.figures import account, was_retried
from duly_local.demo.files import Facts
from duly_local.demo.killing import Killing
from duly_local.demo.verdict import Claim, claim_of_killing, claims_of

FACTS = Facts("c0ffee", 10, 2)
RESULT = {"sha256": "c0ffee", "size": 10, "lines": 2}
ENDING = Ending("t1", "a.py", "SUCCESS", is_final=True, result=RESULT)
KILLED = 77


def execution(
    started: int, ended: int | None, *, fence: int = 1, pid: int = 1, alone: bool = True, task_id: str = "t1"
) -> Execution:
    return Execution(
        task_id,
        attempt=1,
        fence=fence,
        pid=pid,
        alone=alone,
        started_at_ns=started,
        started_boot_ns=started,
        ended_boot_ns=ended,
        succeeded=ended is not None,
    )


def failed(started: int, ended: int, *, fence: int = 1) -> Execution:
    return replace(execution(started, ended, fence=fence), succeeded=False)


def found(*executions: Execution, ending: Ending = ENDING, facts: Facts | None = FACTS) -> Findings:
    return check([ending], executions, {ending.path: facts}, {KILLED})


def claims(findings: Findings, *executions: Execution, retries: tuple[int, int] = (0, 0)) -> dict[str, Claim]:
    made = claims_of(findings, account(executions), 1, retries, unreadable=0)
    return {claim.name: claim for claim in made}


def broken(findings: Findings, *executions: Execution) -> set[str]:
    return {name for name, claim in claims(findings, *executions).items() if not claim.holds}


# ---- nothing is found where nothing is wrong -------------------------------------------------------------


@pytest.mark.parametrize(
    "executions",
    [
        [execution(1, 2)],
        [failed(1, 2), execution(2, 3, fence=2)],
        [execution(1, None, pid=KILLED), execution(5, 6, fence=2)],
        [execution(1, 2, pid=KILLED), execution(5, 6, fence=2)],
    ],
    ids=["once", "failed first", "cut off by the kill", "done again"],
)
def test_a_run_without_fault_passes(executions: list[Execution]) -> None:
    findings = found(*executions)

    assert findings == Findings(succeeded=1, compared=1)
    assert broken(findings, *executions) == set()


def test_nothing_is_said_about_a_file_that_changed_meanwhile() -> None:
    other = replace(ENDING, result={"sha256": "other"})
    gone = replace(ENDING, status="FATAL_FAILURE", failure="a.py: No such file or directory")

    assert found(execution(1, 2), ending=other, facts=None) == Findings(succeeded=1, changed=["a.py"])
    assert found(failed(1, 2), ending=gone, facts=None) == Findings(changed=["a.py"])


# ---- lost ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (replace(ENDING, status="", is_final=False), "does not know the task"),
        (replace(ENDING, status="ENQUEUED", is_final=False), "still ENQUEUED"),
    ],
)
def test_a_task_that_never_ended_is_lost(ending: Ending, words: str) -> None:
    findings = found(execution(1, 2), ending=ending)

    assert words in findings.lost[0]
    assert {"lost", "succeeded"} <= broken(findings, execution(1, 2))


@pytest.mark.parametrize("executions", [[], [failed(1, 2)], [execution(1, None, pid=KILLED)]])
def test_a_success_that_the_log_knows_nothing_of_is_lost(executions: list[Execution]) -> None:
    findings = found(*executions)

    assert "no execution of it ended well" in findings.lost[0]


# ---- concurrent ------------------------------------------------------------------------------------------


def test_an_execution_that_begins_before_the_last_one_ended_is_concurrent() -> None:
    findings = found(execution(1, 5_000_001), execution(2_000_001, 6_000_000, fence=2))

    assert findings.concurrent == ["a.py (t1): fence 2 began 3.000 ms before fence 1 ended"]
    assert broken(findings) == {"concurrent"}


def test_an_execution_inside_another_one_is_concurrent_and_so_is_one_after_it() -> None:
    long_one = execution(1, 100)

    assert found(long_one, execution(2, 3, fence=2)).concurrent
    assert found(long_one, execution(100, 101, fence=2), execution(102, 103, fence=3)).concurrent == []
    assert found(long_one, failed(200, 300, fence=2), execution(250, 260, fence=3)).concurrent


def test_an_execution_that_found_the_lock_taken_is_concurrent_whatever_the_clocks_say() -> None:
    cut_off = execution(1, None, pid=KILLED)

    findings = found(cut_off, execution(5, 6, fence=2, alone=False))

    assert "while another execution held the task's lock" in findings.concurrent[0]


def test_executions_of_different_tasks_may_overlap() -> None:
    second = replace(ENDING, task_id="t2", path="b.py")

    findings = check(
        [ENDING, second],
        [execution(1, 9), execution(2, 8, task_id="t2")],
        {"a.py": FACTS, "b.py": FACTS},
        {KILLED},
    )

    assert findings == Findings(succeeded=2, compared=2)


# ---- wrong results and failures --------------------------------------------------------------------------


@pytest.mark.parametrize("result", [None, {}, RESULT | {"lines": 3}, RESULT | {"sha256": "c0ffef"}])
def test_a_result_that_is_not_what_the_file_says_is_wrong(result: object) -> None:
    findings = found(execution(1, 2), ending=replace(ENDING, result=result))

    assert findings.wrong[0].startswith("a.py (t1): the result is")
    assert broken(findings, execution(1, 2)) == {"results"}


def test_a_task_that_ended_otherwise_than_in_success_failed() -> None:
    ending = replace(ENDING, status="FATAL_FAILURE", failure="attempts exhausted")

    findings = found(failed(1, 2), ending=ending)

    assert findings.failed == ["a.py (t1): FATAL_FAILURE: attempts exhausted"]
    assert "succeeded" in broken(findings, failed(1, 2))


def test_where_no_result_could_be_compared_nothing_is_claimed_of_them() -> None:
    findings = found(execution(1, 2), facts=None)

    assert broken(findings, execution(1, 2)) == {"results"}


def test_first_attempts_that_should_have_failed_and_did_not_break_the_claim() -> None:
    findings = found(execution(1, 2))

    assert not claims(findings, execution(1, 2), retries=(3, 0))["retried"].holds
    assert claims(findings, execution(1, 2), retries=(3, 2))["retried"].holds


def test_retried_is_what_failed_first_and_succeeded_later() -> None:
    assert was_retried([failed(1, 2), execution(3, 4, fence=2)])
    assert was_retried([execution(1, None, pid=KILLED), failed(2, 3, fence=2), execution(4, 5, fence=3)])
    assert not was_retried([execution(1, 2)])
    assert not was_retried([failed(1, 2)])
    assert not was_retried([execution(1, None, pid=KILLED), execution(3, 4, fence=2)])


# ---- what nothing explains -------------------------------------------------------------------------------


def test_an_execution_without_an_end_in_a_process_that_lived_is_unexplained() -> None:
    findings = found(execution(1, None, pid=5), execution(5, 6, fence=2))

    assert findings.unexplained == ["a.py (t1): never ended in process 5, which was not killed"]
    assert broken(findings) == {"log"}


def test_a_fence_that_does_not_grow_is_unexplained() -> None:
    findings = found(execution(1, 2, fence=2), execution(3, 4, fence=2))

    assert findings.unexplained == ["a.py (t1): ran with fence 2 after fence 2"]


def test_an_execution_of_a_task_that_nobody_scheduled_is_unexplained() -> None:
    findings = found(execution(1, 2), execution(1, 2, task_id="stranger"))

    assert findings.unexplained == ["task stranger ran, and was never scheduled"]


def test_lines_of_the_log_that_are_no_record_break_the_claim() -> None:
    made = claims_of(found(execution(1, 2)), account([execution(1, 2)]), 1, (0, 0), unreadable=2)

    assert [claim.faults for claim in made if not claim.holds] == [["2 lines of the log are no record"]]


# ---- the kill --------------------------------------------------------------------------------------------


def killing(**changes: object) -> Killing:
    made = Killing(1, 70, (KILLED,), (60,), 3, 0.0, gone_after_s=0.01, successor=80)
    return replace(made, **changes)


def test_a_kill_is_told_with_what_it_cut_off() -> None:
    claim = claim_of_killing(killing(), [execution(1, None, pid=KILLED), execution(3, 4, fence=2)])

    assert claim.holds
    assert claim.text == "Executor 70 was killed with -9 while it ran 3 callbacks; 1 never ended"


@pytest.mark.parametrize(
    "happened",
    [None, killing(gone_after_s=None), killing(successor=None)],
    ids=["no kill", "survived", "not replaced"],
)
def test_a_kill_that_did_not_go_as_claimed_fails(happened: Killing | None) -> None:
    assert not claim_of_killing(happened, []).holds


def test_the_account_adds_up() -> None:
    executions = [
        failed(1, 2),
        execution(3, None, fence=2, pid=KILLED),
        execution(5, 6, fence=3, pid=KILLED),
        execution(7, 8, fence=4),
    ]

    parts = account(executions)

    assert (parts.succeeded, parts.failed, parts.cut_off, parts.repeated) == (1, 1, 1, 1)
    assert parts.total == len(executions)
