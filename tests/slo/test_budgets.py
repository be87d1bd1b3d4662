"""A budget that burns is a problem on the board: one for the late starts of all lambdas of a severity, one for calls."""

from datetime import UTC, datetime, timedelta

from duly_core.access.grants import Scope
from duly_core.config.live_sections import LiveSloSettings
from duly_core.problems.budgets import burning
from duly_core.slo.rules import Level, Span, spans_of
from duly_core.trends import store as trends
from duly_core.trends.rules import minute_of
from duly_frontend.problems.board import ProblemBoard
from duly_frontend.problems.texts import hits, say
from duly_wire.enums import ProblemKind, ProblemSeverity, ServiceLevelIndicator
from tests.fixtures.task_states import LAMBDA, SECOND
from tests.trends.test_trend_store import row

NOW = datetime(2026, 11, 27, 3, tzinfo=UTC)
SETTINGS = LiveSloSettings()
SPANS = spans_of(SETTINGS.window)
FAST, SLOW, GOOD = [50] * 7, [0, 0, 0, 6, 6, 6, 6], [0] * 7
MINUTE = timedelta(minutes=1)


def level(name, bad, indicator=ServiceLevelIndicator.STARTS, objective=0.95, total=100):
    spans = [Span(length, total - number, total) for length, number in zip(SPANS, bad, strict=True)]
    if bad is SLOW:
        spans = [Span(length, 10 * span.good, 1_000) for length, span in zip(SPANS, spans, strict=True)]
    return Level(indicator, name, objective, spans, NOW)


def test_what_is_promised_and_kept_is_no_problem():
    assert burning([level("", GOOD), level("a", GOOD)], SETTINGS, NOW) == []


def test_many_lambdas_are_one_problem_and_all_together_add_none():
    found = burning([level("", FAST), *(level(f"l{n}", FAST) for n in range(30))], SETTINGS, NOW)

    (problem,) = found
    assert (problem.severity, problem.lambda_count, problem.tasks) == (ProblemSeverity.CRITICAL, 30, 1_500)
    assert say(problem, NOW).text == (
        "1,500 runs of 30 lambdas began more than 5s late in the last 6h: the error budget of 28d is spent "
        "6 times as fast as allowed, or faster"
    )


def test_late_runs_are_those_of_the_time_that_is_named():
    in_six_hours = [0] + [310] * 6

    (problem,) = burning(
        [level("a", [80] * 3 + [90] * 4), level("b", in_six_hours, total=1_000)], SETTINGS, NOW
    )

    assert problem.tasks == 90 + 310
    assert say(problem, NOW).text.startswith("400 runs of 2 lambdas began more than 5s late in the last 6h")


def test_all_together_are_a_problem_where_no_lambda_is():
    (problem,) = burning([level("", FAST), level("a", GOOD)], SETTINGS, NOW)

    assert (problem.lambdas, problem.tasks) == ({}, 50)
    assert say(problem, NOW).text.startswith("50 runs began more than 5s late")


def test_a_lambda_that_burns_slowly_is_a_warning_of_its_own():
    found = burning([level("", GOOD), level("a", FAST), level("b", SLOW)], SETTINGS, NOW)

    assert [(each.severity.name, [*each.lambdas]) for each in found] == [
        ("CRITICAL", ["a"]),
        ("WARNING", ["b"]),
    ]
    assert len({each.fingerprint for each in found}) == 2


def test_calls_that_fail_are_told_apart_from_starts():
    (problem,) = burning([level("", FAST, ServiceLevelIndicator.CALLS, 0.999)], SETTINGS, NOW)

    assert say(problem, NOW).text.startswith("50 calls that schedule failed in the last 1h:")
    assert hits(problem) == ""
    assert problem.seen_by(Scope(all_tasks=(LAMBDA,), own_tasks=())) is None


def test_an_owner_reads_of_late_runs_of_the_own_lambda_only():
    (problem,) = burning([level("", GOOD), level("a", FAST), level("b", FAST)], SETTINGS, NOW)

    seen = problem.seen_by(Scope(all_tasks=("a",), own_tasks=()))

    assert (dict(seen.lambdas), seen.tasks) == ({"a": 50}, 50)
    assert say(seen, NOW).text.startswith("50 runs of a began")


async def test_the_board_has_a_budget_that_burns_until_runs_start_on_time_again(store, client, task_states):
    settings = [SETTINGS]
    board = ProblemBoard(store, every=0 * SECOND, slo=lambda: settings[0])
    at = minute_of(datetime.now(UTC)) - 2 * MINUTE
    await trends.add_runs(store, [row(name, at, starts=50, place=10) for name in ("", LAMBDA)])

    await board.run_once()
    (problem,) = (await client.problems()).problems
    settings[0] = LiveSloSettings(start_within=timedelta(minutes=5))
    await board.run_once()

    assert (problem.kind, problem.severity) == (ProblemKind.BUDGET_BURNS, ProblemSeverity.CRITICAL)
    assert problem.commands[0].command == f"duly slo show {LAMBDA}"
    assert (await client.problems()).problems == ()
