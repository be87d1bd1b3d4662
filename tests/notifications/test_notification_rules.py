"""What a target is told, from what it was told and what is wrong: each problem once, its end once, and a flapping one seldom."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from duly_core.notifications.rules import (
    LONGEST_END,
    MOST_SHOWN,
    Event,
    Message,
    Rules,
    Stated,
    Told,
    message_of,
    plan,
)

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
AT_ONCE = Rules(timedelta(), None, is_resolved_told=True)


def problem(number: int = 1, severity: int = 3, text: str = "") -> Stated:
    return Stated(
        fingerprint=f"{number:016}",
        kind="no_host",
        severity=severity,
        subject="mail.send",
        since_at=NOON,
        text=text or f"problem {number}",
        hits="3 tasks",
    )


class Receiver:
    """A target whose messages all arrive; each step is a round."""

    def __init__(self, rules: Rules = AT_ONCE) -> None:
        self.rules, self.known, self.now = rules, {}, NOON

    def after(self, duration: timedelta, *problems: Stated, others: tuple[str, ...] = ()) -> list[str]:
        self.now += duration
        decided = plan(self.known, problems, self.rules, self.now, others)
        self.known = decided.after
        return [each.event.value for each in decided.items]


def test_a_problem_is_told_once_while_it_lasts_and_its_end_once() -> None:
    target = Receiver()

    assert target.after(SECOND, problem()) == ["new"]
    assert target.after(HOUR, problem()) == []
    assert target.after(10 * SECOND) == []  # it may come back
    assert target.after(MINUTE) == ["resolved"]
    assert target.after(HOUR) == []


def test_without_a_message_nothing_is_taken_to_be_told() -> None:
    first = plan({}, [problem()], AT_ONCE, NOON)
    again = plan(first.before, [problem()], AT_ONCE, NOON + MINUTE)

    assert [each.event for each in again.items] == [Event.NEW]


def test_a_new_problem_must_stand_for_the_delay() -> None:
    target = Receiver(AT_ONCE._replace(delay=MINUTE))

    assert target.after(SECOND, problem()) == []
    assert target.after(30 * SECOND, problem()) == []
    assert target.after(30 * SECOND, problem()) == ["new"]


def test_a_problem_that_ends_within_the_delay_is_never_told() -> None:
    target = Receiver(AT_ONCE._replace(delay=5 * MINUTE))

    assert [target.after(MINUTE, problem()), target.after(MINUTE), target.after(HOUR)] == [[], [], []]


def test_short_gaps_do_not_begin_the_delay_again() -> None:
    target = Receiver(AT_ONCE._replace(delay=2 * MINUTE))
    told = [target.after(20 * SECOND, *([problem()] if number % 2 else [])) for number in range(12)]

    assert [each for message in told for each in message] == ["new"]


def test_a_higher_severity_is_told_and_a_lower_one_is_not() -> None:
    target = Receiver()

    assert target.after(SECOND, problem(severity=2)) == ["new"]
    assert target.after(SECOND, problem(severity=3)) == ["worse"]
    assert target.after(SECOND, problem(severity=2)) == []
    assert target.after(SECOND, problem(severity=3)) == []


def test_a_problem_that_is_no_longer_for_the_target_has_not_ended() -> None:
    target = Receiver()
    target.after(SECOND, problem())

    assert target.after(HOUR, others=(problem().fingerprint,)) == []
    assert target.after(HOUR, problem()) == []
    assert [target.after(SECOND), target.after(MINUTE)] == [[], ["resolved"]]


def test_it_is_told_again_after_the_time_to_repeat() -> None:
    target = Receiver(AT_ONCE._replace(repeat=4 * HOUR))

    assert target.after(SECOND, problem()) == ["new"]
    assert target.after(4 * HOUR - SECOND, problem()) == []
    assert target.after(SECOND, problem()) == ["still"]
    assert target.after(HOUR, problem()) == []


def test_ends_that_nobody_wants_are_not_told_and_the_problem_is_new_when_it_comes_back() -> None:
    target = Receiver(AT_ONCE._replace(is_resolved_told=False))
    target.after(SECOND, problem())

    assert [target.after(SECOND), target.after(MINUTE)] == [[], []]
    assert target.after(HOUR, problem()) == ["new"]


@pytest.mark.parametrize("half_period", [20 * SECOND, 2 * MINUTE, 10 * MINUTE, 50 * MINUTE])
def test_a_problem_that_flaps_for_a_day_sends_a_bounded_number_of_messages(half_period: timedelta) -> None:
    target = Receiver()
    step = 10 * SECOND
    told = []
    for number in range(timedelta(days=1) // step):
        is_there = (number * step) // half_period % 2 == 0
        told += target.after(step, *([problem()] if is_there else []))

    assert told[0] == "new"
    assert len(told) <= 14


def test_a_problem_that_stood_for_long_and_ends_is_told_to_be_over_after_a_minute() -> None:
    target = Receiver()
    for _ in range(10):  # it flaps
        target.after(2 * MINUTE, problem())
        target.after(2 * MINUTE)
    target.after(SECOND, problem())

    assert target.after(LONGEST_END + MINUTE, problem()) == []
    assert [target.after(SECOND), target.after(MINUTE)] == [[], ["resolved"]]


def test_a_thousand_new_problems_are_one_message_that_shows_the_worst_and_counts_the_rest() -> None:
    problems = [problem(number, severity=3 if number == 999 else 2) for number in range(1000)]
    decided = plan({}, problems, AT_ONCE, NOON)
    message = message_of(decided.items, "id", NOON)

    assert (len(message.items), message.left_out) == (MOST_SHOWN, 1000 - MOST_SHOWN)
    assert (message.counts, message.worst) == ({"new": 1000}, 3)
    assert message.items[0].problem.fingerprint == problem(999).fingerprint


def test_what_is_remembered_of_problems_that_ended_is_bounded() -> None:
    target = Receiver()
    for number in range(20):
        target.after(SECOND, *(problem(100 * number + each) for each in range(100)))

    assert len(target.known) <= 400


def test_what_was_told_comes_back_from_the_store_as_it_was() -> None:
    decided = plan({}, [problem(1), problem(2)], AT_ONCE, NOON)
    told = Told(problems=decided.before, message=message_of(decided.items, "id", NOON), after=decided.after)
    gone = Told(problems=plan(told.arrived().problems, [], AT_ONCE, NOON + MINUTE).before)

    assert Told.from_facts(told.to_facts()) == told
    assert Told.from_facts(gone.to_facts()) == gone
    assert Told.from_facts({}) == Told()


def test_a_message_that_was_given_up_is_told_again_as_things_stand_then() -> None:
    decided = plan({}, [problem(1), problem(2)], AT_ONCE, NOON)
    told = Told(problems=decided.before, message=message_of(decided.items, "id", NOON), after=decided.after)
    later = plan(told.given_up().problems, [problem(2)], AT_ONCE, NOON + HOUR)

    assert [each.problem.fingerprint for each in later.items] == [problem(2).fingerprint]


def test_texts_of_any_length_are_cut() -> None:
    item = plan({}, [replace(problem(), text="x" * 10_000)], AT_ONCE, NOON).items[0]

    assert len(item.problem.text) == 400
    assert Message.from_facts(message_of([item], "id", NOON).to_facts()).items == [item]
