"""The traceback that `duly get` shows."""

from datetime import UTC, datetime

import duly
from duly_cli.output.task_text import traceback_lines


def attempt(number: int, traceback: str) -> duly.Attempt:
    return duly.Attempt(
        attempt=number,
        fence=number + 1,
        outcome=duly.AttemptOutcome.RETRIABLE_FAILURE,
        charged=True,
        holder="host",
        started_at=None,
        ended_at=datetime(2026, 1, 2, tzinfo=UTC),
        failure_kind=duly.FailureKind.EXCEPTION,
        failure_message="",
        traceback=traceback,
    )


def test_the_newest_traceback_is_shown_and_the_number_of_the_others() -> None:
    lines = traceback_lines([attempt(1, "first"), attempt(2, "second\n  line"), attempt(3, "")])

    assert lines == ["", "traceback of attempt 2 (fence 3); --json has 1 more:", "  second", "    line"]


def test_without_a_traceback_there_are_no_lines() -> None:
    assert traceback_lines([attempt(1, "")]) == []


def test_control_characters_do_not_reach_the_terminal() -> None:
    (_, _, line) = traceback_lines([attempt(1, "ValueError: \x1b[2J\r\x07é")])

    assert line == "  ValueError: \\x1b[2J\\r\\x07é"
