"""Which failures have the same cause."""

import pytest

from duly_console.causes import cause_of
from duly_core.tasks.causes import normalised
from duly_wire.v1 import task_pb2


def a_failure(message: str, kind: int = 1, name: str = "mail.send") -> task_pb2.Task:
    failure = task_pb2.Failure(message=message, kind=kind)  # type: ignore[arg-type]  # to mypy a number is no member
    return task_pb2.Task(last_failure=failure, **{"lambda": name})  # type: ignore[arg-type]  # the same


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("ValueError: row 17 is gone", "ValueError: row 9,000 is gone", True),
        ("KeyError: 'ann'", "KeyError: 'bob smith'", True),
        (
            "no such task 0190a8a0-0000-7000-8000-000000000000",
            "no such task 0190a8a0-ffff-7000-8000-0123456789ab",
            True,
        ),
        ("at 0x7f3a", "at 0x99ee", True),
        ("failed 3 times; the last: OSError: away", "failed 1 time; the last: OSError: away", True),
        ("smtplib.SMTPError: full\nmore of 1", "smtplib.SMTPError: full\nother", True),
        ("ValueError: full", "OSError: full", False),
        ("ValueError: full", "ValueError: empty", False),
        ("", "ValueError", False),
    ],
)
def test_numbers_ids_and_what_is_quoted_make_no_difference(one: str, other: str, is_same: bool) -> None:
    causes = {cause_of(a_failure(one)), cause_of(a_failure(other))}

    assert (len(causes) == 1) is is_same
    assert len({each.fingerprint for each in causes}) == len(causes)


def test_a_task_that_is_pinned_to_a_version_failed_by_the_cause_of_its_lambda() -> None:
    pinned = cause_of(a_failure("OSError: away", name="mail.send@1.2"))

    assert pinned == cause_of(a_failure("OSError: away", name="mail.send"))


def test_a_cause_has_one_lambda_and_one_kind_and_names_the_exception() -> None:
    causes = {cause_of(a_failure("OSError: away", kind, name)) for kind in (1, 2) for name in ("a", "b")}

    assert len(causes) == 4
    assert {(each.exception, each.message) for each in causes} == {("OSError", "away")}
    assert normalised("a" * 5_000) == "a" * 300
