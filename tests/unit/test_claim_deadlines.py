"""The deadline by which an Executor must be dead, and the strikes that usually come before it."""

import pytest

from duly_executor.claim_deadlines import ClaimDeadlines, Strikes

A, B = b"a" * 16, b"b" * 16
LENGTH = 56


@pytest.fixture
def deadlines() -> ClaimDeadlines:
    return ClaimDeadlines(LENGTH)


def test_without_claims_nothing_limits_the_process(deadlines: ClaimDeadlines) -> None:
    assert deadlines.earliest() is None
    assert len(deadlines) == 0


def test_a_claim_counts_from_when_it_was_sent(deadlines: ClaimDeadlines) -> None:
    assert deadlines.claimed([A, B], sent_ns=100) == 100 + LENGTH

    assert deadlines.earliest_of([A]) == deadlines.earliest_of([B]) == 100 + LENGTH


def test_the_earliest_deadline_of_all_is_that_of_the_process(deadlines: ClaimDeadlines) -> None:
    deadlines.claimed([A], sent_ns=100)
    deadlines.claimed([B], sent_ns=90)

    assert deadlines.earliest() == 90 + LENGTH


def test_an_acknowledged_heartbeat_counts_from_when_it_was_sent(deadlines: ClaimDeadlines) -> None:
    deadlines.claimed([A, B], sent_ns=100)

    deadlines.acknowledged([A, B], sent_ns=115)

    assert deadlines.earliest() == 115 + LENGTH


def test_a_claim_that_a_heartbeat_did_not_name_keeps_its_own_deadline(deadlines: ClaimDeadlines) -> None:
    deadlines.claimed([A, B], sent_ns=100)

    deadlines.acknowledged([A], sent_ns=115)

    assert deadlines.earliest() == 100 + LENGTH


def test_an_answer_that_was_overtaken_takes_nothing_back(deadlines: ClaimDeadlines) -> None:
    deadlines.claimed([A], sent_ns=100)
    deadlines.acknowledged([A], sent_ns=130)

    deadlines.acknowledged([A], sent_ns=115)

    assert deadlines.earliest_of([A]) == 130 + LENGTH


def test_a_heartbeat_does_not_bring_back_a_claim_that_ended(deadlines: ClaimDeadlines) -> None:
    deadlines.claimed([A], sent_ns=100)
    deadlines.ended([A])

    deadlines.acknowledged([A], sent_ns=115)

    assert deadlines.earliest() is None


def test_a_claim_that_ended_limits_nothing_and_may_end_twice(deadlines: ClaimDeadlines) -> None:
    deadlines.claimed([A], sent_ns=90)
    deadlines.claimed([B], sent_ns=100)

    deadlines.ended([A])
    deadlines.ended([A])

    assert deadlines.earliest() == 100 + LENGTH


def test_the_third_failed_call_in_a_row_is_the_last() -> None:
    strikes = Strikes()

    assert [strikes.call_failed() for _ in range(3)] == [False, False, True]


def test_a_call_that_succeeds_breaks_the_row() -> None:
    strikes = Strikes()
    strikes.call_failed()
    strikes.call_failed()

    strikes.call_succeeded()

    assert [strikes.call_failed() for _ in range(3)] == [False, False, True]
