"""When the HSC looks at a lambda: as soon as something may be due, and no sooner."""

from datetime import timedelta

import pytest

from duly_core.lambdas.names import QueueKey
from duly_hsc.work.due_times import DueTimes
from duly_wire.enums import Priority

MAIL, REPORT = "mail.send", "report.make"
POLL = 60.0
QUEUE = QueueKey(MAIL, Priority.NORMAL)


@pytest.fixture
def board() -> DueTimes:
    """One that has looked at two lambdas at 100, and found nothing."""
    made = DueTimes()
    made.polling([MAIL, REPORT], 100, POLL)
    made.polled({}, 100)
    return made


def due_at(board: DueTimes, name: str = MAIL, *, exact: bool = True) -> float:
    return board.due_at(name, POLL, exact=exact)


def test_a_lambda_that_nobody_has_looked_at_is_looked_at_now() -> None:
    assert due_at(DueTimes()) == float("-inf")


def test_after_a_look_that_found_nothing_the_next_is_at_the_poll_interval(board: DueTimes) -> None:
    assert due_at(board) == 160


def test_a_look_is_made_when_what_the_last_one_saw_ahead_is_due(board: DueTimes) -> None:
    board.polled({QUEUE: timedelta(seconds=7), QueueKey(MAIL, Priority.LOW): timedelta(seconds=9)}, 100)

    assert due_at(board) == 107
    assert due_at(board, REPORT) == 160


def test_what_is_ahead_beyond_the_poll_interval_waits_for_it(board: DueTimes) -> None:
    board.polled({QUEUE: timedelta(hours=1)}, 100)

    assert due_at(board) == 160


def test_what_the_last_look_did_not_see_is_looked_for_also_after_the_poll_interval_grew(
    board: DueTimes,
) -> None:
    assert board.due_at(MAIL, 10 * POLL, exact=True) == 160


def test_a_hint_is_of_the_lambdas_that_it_names(board: DueTimes) -> None:
    board.note_due([MAIL], 103)

    assert (due_at(board), due_at(board, REPORT)) == (103, 160)


def test_a_hint_that_names_no_lambda_is_of_all(board: DueTimes) -> None:
    board.note_any_due(103)

    assert (due_at(board), due_at(board, REPORT)) == (103, 103)


def test_no_lambdas_are_not_all_lambdas(board: DueTimes) -> None:
    board.note_due([], 103)
    board.unsure([], 103)

    assert (due_at(board), due_at(board, REPORT)) == (160, 160)


def test_a_later_hint_does_not_put_off_an_earlier_one(board: DueTimes) -> None:
    board.note_due([MAIL], 103)
    board.note_due([MAIL], 105)

    assert due_at(board) == 103


def test_hints_of_lambdas_that_nobody_asks_for_are_not_kept() -> None:
    board = DueTimes()

    board.note_due(["made.up"], 103)
    board.note_any_due(103)

    assert board._due_at == {}


def test_a_hint_that_comes_while_a_look_is_under_way_counts_for_the_next(board: DueTimes) -> None:
    board.polling([MAIL], 110, POLL)
    board.note_due([MAIL], 111)
    board.polled({}, 112)

    assert due_at(board) == 111


def test_where_a_look_left_something_or_failed_the_next_is_at_once(board: DueTimes) -> None:
    board.polling([MAIL], 110, POLL)

    board.unsure([MAIL], 111)

    assert due_at(board) == 111
    assert board.may_have_due(MAIL, 111)
    assert not board.may_have_due(REPORT, 111)


def test_without_exactness_the_poll_interval_alone_decides(board: DueTimes) -> None:
    board.note_due([MAIL], 103)

    assert due_at(board, exact=False) == 160


def test_lambdas_that_nobody_has_asked_for_in_two_minutes_are_forgotten(board: DueTimes) -> None:
    board.polling([MAIL], 150, POLL)

    board.forget_unused(221)

    assert due_at(board, REPORT) == float("-inf")
    assert due_at(board) == 210
