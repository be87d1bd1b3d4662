"""The retry budget: what a lambda's first attempts pay for, and how long the rest must wait."""

from datetime import timedelta

import pytest

from duly_core.config.live_sections import LiveHscSettings
from duly_hsc.retry_budget import RetryBudget

LONGEST = timedelta(hours=1)


def budget_of(now, share=0.2, floor=10):
    settings = LiveHscSettings(retry_share=share, retry_floor=floor, max_hold_back=LONGEST)
    return RetryBudget(lambda: settings, now)


class Seconds:
    def __init__(self):
        self.at = 0.0

    def __call__(self):
        return self.at


@pytest.fixture
def now():
    return Seconds()


@pytest.fixture
def budget(now):
    """A fifth of first attempts, and ten a second in any case."""
    return budget_of(now)


def test_a_lambda_that_fails_now_and_then_is_never_held_back(budget, now):
    for _ in range(100):
        now.at += 1
        budget.started({"mail": 200})
        budget.retried({"mail": 50})
        assert budget.hold_back() == {}


def test_a_few_failures_are_retried_at_once_though_nothing_else_starts(budget, now):
    for _ in range(100):
        now.at += 1
        budget.retried({"mail": 10})
        assert budget.hold_back() == {}


def test_retries_beyond_the_budget_wait_until_income_has_paid_for_those_before_them(budget):
    budget.retried({"mail": 400})

    assert budget.hold_back() == {"mail": timedelta(seconds=30)}  # 100 were saved, 10 a second come in


def test_the_wait_is_over_when_the_time_has_come(budget, now):
    budget.retried({"mail": 400})
    now.at += 29
    assert budget.hold_back() == {"mail": timedelta(seconds=1)}

    now.at += 1
    assert budget.hold_back() == {}


def test_first_attempts_shorten_the_wait(budget, now):
    for _ in range(200):
        now.at += 0.5
        budget.started({"mail": 50})
    budget.retried({"mail": 1_000})

    held = budget.hold_back()["mail"].total_seconds()
    assert 20 < held < 27  # about 300 were saved, and 30 a second come in


def test_one_lambdas_retries_are_charged_to_no_other(budget):
    budget.started({"report": 1})
    budget.retried({"mail": 5_000})

    assert list(budget.hold_back()) == ["mail"]


def test_nothing_is_held_back_for_longer_than_the_longest(budget):
    budget.retried({"mail": 10_000_000})

    assert budget.hold_back() == {"mail": LONGEST / 1.5}  # the store makes it up to half as much again


def test_no_debt_outlives_the_longest_wait(budget, now):
    budget.retried({"mail": 10_000_000})
    now.at += LONGEST.total_seconds() / 1.5

    assert budget.hold_back() == {}


def test_a_quiet_night_saves_no_more_than_a_few_seconds_of_income(budget, now):
    budget.started({"mail": 0})
    now.at += 36_000
    budget.retried({"mail": 101})

    assert "mail" in budget.hold_back()


def test_without_a_floor_and_first_attempts_a_retry_waits_the_longest_and_no_longer(now):
    budget = budget_of(now, floor=0.001)
    budget.retried({"mail": 5})

    assert budget.hold_back() == {"mail": LONGEST / 1.5}


@pytest.mark.parametrize(
    "share", [0.2, *(pytest.param(other, marks=pytest.mark.long) for other in (0.1, 0.5))]
)
def test_a_lambda_that_always_fails_gets_its_share_of_starts_and_no_more(now, share):
    """Turned by the tenth of a second: every start fails, every retry starts when it may."""
    budget = budget_of(now, share=share)
    due = []
    retries = 0
    for _ in range(1_200):
        now.at += 0.1
        starting = sum(at <= now.at for at in due)
        due = [at for at in due if at > now.at]
        retries += starting
        budget.started({"mail": 20})
        held = budget.hold_back().get("mail", timedelta()).total_seconds()
        failed = 20 + starting
        budget.retried({"mail": failed})
        due += [now.at + max(held, 0.5)] * failed

    first = 1_200 * 20
    assert retries <= first * share + 10 * 120 + 10 * (10 + share * 200)
    assert retries >= 0.8 * (first * share + 10 * 120)


def test_a_share_that_an_operator_sets_holds_for_debts_that_are_there(now):
    settings = LiveHscSettings(max_hold_back=LONGEST)
    budget = RetryBudget(lambda: settings, now)
    budget.retried({"mail": 400})
    assert budget.hold_back() == {"mail": timedelta(seconds=30)}

    settings = LiveHscSettings(max_hold_back=LONGEST, retry_floor=100)
    assert budget.hold_back() == {"mail": timedelta(seconds=3)}

    settings = LiveHscSettings(max_hold_back=timedelta(seconds=1.5), retry_floor=10)
    assert budget.hold_back() == {"mail": timedelta(seconds=1)}


def test_changed_settings_hold_for_debts_that_were_made_before(now):
    settings = LiveHscSettings(retry_share=0.2, retry_floor=10, max_hold_back=LONGEST)
    budget = RetryBudget(lambda: settings, now)
    budget.retried({"mail": 400})  # 100 were saved

    settings = LiveHscSettings(retry_share=0.2, retry_floor=100, max_hold_back=LONGEST)
    assert budget.hold_back() == {"mail": timedelta(seconds=3)}
    settings = LiveHscSettings(retry_share=0.2, retry_floor=10, max_hold_back=timedelta(seconds=6))
    assert budget.hold_back() == {"mail": timedelta(seconds=4)}  # the store makes it up to half as long again
