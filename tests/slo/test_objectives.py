"""An objective of a lambda or prefix judges its runs, in place of the settings, wherever promises are shown; bad ones change nothing."""

import json
import sys
from datetime import timedelta

import pytest
from prometheus_client import REGISTRY

import duly
from duly_core.process.lambda_metrics import DEFAULT_MOST, OTHER
from duly_core.slo import store as store_slo
from duly_core.slo.objectives import MOST_OBJECTIVES, Objective, Objectives, Promised
from duly_core.slo.rules import levels_of
from duly_core.trends import store as trends
from duly_core.trends.rules import Sum, Time, on_time, place_of
from duly_frontend import events
from duly_frontend.problems.board import ProblemBoard
from duly_frontend.problems.texts import say
from duly_wire.enums import ProblemKind
from tests.fixtures.task_states import LAMBDA, SECOND
from tests.slo.test_budgets import FAST, GOOD, NOW, SETTINGS, level
from tests.slo.test_slo_calls import of, recent
from tests.trends.test_trend_store import row

MINUTE = timedelta(minutes=1)
IN_THREE, IN_SEVEN_MINUTES = place_of(3), place_of(420)


def objective(pattern, share=0.99, seconds=1.0):
    return Objective(pattern, share, timedelta(seconds=seconds), NOW)


def test_the_longest_pattern_that_covers_a_lambda_holds_as_a_whole():
    found = Objectives(
        SETTINGS,
        [objective("mail.*", 0.5, 60), objective("mail.send", 0.9, 1), objective("mail.bulk.*", 0.8, 600)],
    )

    def said(name):
        held = found.of(name)
        return held.pattern, held.share, held.start_within.total_seconds()

    assert said("mail.send") == ("mail.send", 0.9, 1)
    assert said("mail.bulk.news") == ("mail.bulk.*", 0.8, 600)
    assert said("mail.other") == ("mail.*", 0.5, 60)
    assert said("mail.x/y") == said("shop.pay") == ("", 0.95, 5)


def test_a_namespace_is_a_prefix_and_reaches_no_other_one():
    found = Objectives(SETTINGS, [objective("team/*")])

    assert found.of("team/pay").pattern == "team/*"
    assert found.of("teams/pay").pattern == found.of("team").pattern == ""


def test_a_prefix_ends_at_the_slash_and_covers_its_own_name():
    found = Objectives(SETTINGS, [objective("te*"), objective("team/a*"), objective("mail.send*")])

    assert found.of("team/apply").pattern == found.of("team/a").pattern == "team/a*"
    assert found.of("mail.send").pattern == "mail.send*"
    assert found.of("tell").pattern == "te*"
    assert found.of("team/pay").pattern == found.of("mail.sen").pattern == found.of("t").pattern == ""


def test_a_look_up_takes_no_step_for_each_objective_and_the_next_one_of_the_lambda_takes_one():
    found = Objectives(SETTINGS, [objective(f"mail{n}.*") for n in range(MOST_OBJECTIVES)])

    def steps(name):
        calls = []
        sys.setprofile(lambda _frame, event, called: calls.append(called) if "call" in event else None)
        try:
            assert found.of(name).pattern == ""
        finally:
            sys.setprofile(None)
        return len(calls)

    first, second = steps("reports.nightly"), steps("reports.nightly")

    assert second < first < 30
    assert steps("team/reports.nightly") < 30


def test_runs_of_a_lambda_with_an_objective_are_judged_once():
    time = Time(1_440, NOW - timedelta(days=1), NOW)
    lateness = [0] * 20
    lateness[0], lateness[IN_SEVEN_MINUTES] = 60, 40
    sums = [
        Sum("", time, time.since, None, [160, *lateness[1:]], 0, 0),
        Sum("nightly", time, time.since, None, lateness, 0, 0),
        Sum("quick", time, time.since, None, [100], 0, 0),
    ]

    _, others, nightly, quick = levels_of(
        sums, {time: {SETTINGS.window}}, SETTINGS, (), Objectives(SETTINGS, [objective("nightly", 0.9, 600)])
    )

    assert (others.window.good, others.window.total, others.pattern) == (100, 100, "")
    assert (nightly.window.good, nightly.window.total, nightly.objective, nightly.pattern) == (
        100,
        100,
        0.9,
        "nightly",
    )
    assert (quick.window.total, quick.pattern) == (100, "")


def test_where_every_lambda_has_an_objective_all_others_have_no_data():
    time = Time(1_440, NOW - timedelta(days=1), NOW)
    sums = [Sum(name, time, time.since, None, [7], 0, 0) for name in ("", "a")]

    _, others, _ = levels_of(
        sums, {time: {SETTINGS.window}}, SETTINGS, (), Objectives(SETTINGS, [objective("a")])
    )

    assert (others.window.share, others.first_at) == (None, None)


def test_points_of_before_a_bound_came_count_for_the_next_one():
    stored = [0] * 17
    stored[place_of(800)] = 5

    assert on_time(stored, timedelta(minutes=10)) == 0
    assert on_time(stored, timedelta(minutes=15)) == 5


def test_late_runs_of_different_objectives_are_one_problem_that_names_no_time():
    from dataclasses import replace

    from duly_core.problems.budgets import burning

    slow = replace(level("a", FAST), start_within=timedelta(minutes=10))
    (problem,) = burning(
        [level("", GOOD), slow, replace(slow, lambda_name="b", start_within=SECOND)], SETTINGS, NOW
    )

    assert say(problem, NOW).text.startswith(
        "100 runs of 2 lambdas began later than their objectives allow in the last"
    )

    (problem,) = burning([level("", GOOD), slow], SETTINGS, NOW)
    assert say(problem, NOW).text.startswith("50 runs of a began more than 10m late")


async def test_an_objective_judges_what_was_counted_before_it_was_set(store, client, task_states):
    at = recent()
    await trends.add_runs(store, [row(name, at, starts=10, place=IN_THREE) for name in ("", LAMBDA)])
    assert (await of(client))["STARTS", LAMBDA].window.share == 1

    done = await client.put_objective(LAMBDA, 0.999, start_within=SECOND)

    found = await of(client)
    starts = found["STARTS", LAMBDA]
    assert (done.lambdas, done.changed) == (1, None)
    assert (starts.window.share, starts.objective, starts.start_within) == (0, 0.999, SECOND)
    assert starts.objective_of == LAMBDA
    assert found["STARTS", ""].window.total == 0
    await client.delete_objective(LAMBDA)
    assert (await of(client))["STARTS", LAMBDA].objective_of == ""


async def test_an_objective_may_be_set_before_its_lambda_is_registered(client):
    assert (await client.put_objective("ghost", 0.9, start_within=SECOND)).lambdas == 0
    assert [each.lambda_name for each in await client.objectives()] == ["ghost"]


async def test_a_prefix_holds_for_lambdas_without_a_narrower_objective(client, task_states):
    await task_states.register("mail.one")
    await task_states.register("mail.two")
    await client.put_objective("mail.one", 0.9, start_within=SECOND)

    assert (await client.put_objective("mail.*", 0.5, start_within=MINUTE)).lambdas == 2 - (
        LAMBDA != "mail.send"
    )
    (level,) = await client.service_levels(lambda_name="mail.two")
    assert (level.objective, level.objective_of) == (0.5, "mail.*")


@pytest.mark.parametrize(
    ("pattern", "share", "within", "why"),
    [
        (LAMBDA, 1.0, 1, "less than 1"),
        (LAMBDA, 0.0, 1, "more than 0"),
        (LAMBDA, float("nan"), 1, "more than 0"),
        (LAMBDA, 0.9, 0, "one of 100ms"),
        (LAMBDA, 0.9, -1, "from 0"),
        (LAMBDA, 0.9, 3, "one of 100ms"),
        (LAMBDA, 0.9, 7_200, "to 1h"),
        (LAMBDA, 0.9, None, "new objective has both"),
        (LAMBDA, None, 1, "new objective has both"),
        ("*", 0.9, 1, "slo.starts_objective"),
        ("", 0.9, 1, "is missing"),
        ("Mail Send*", 0.9, 1, "fits no lambda"),
        ("mail.send@2.0", 0.9, 1, "all versions"),
    ],
)
async def test_what_cannot_be_promised_is_refused_and_changes_nothing(client, pattern, share, within, why):
    with pytest.raises(duly.InvalidTaskError, match=why):
        await client.put_objective(
            pattern,
            duly.KEEP if share is None else share,
            start_within=duly.KEEP if within is None else timedelta(seconds=within),
        )

    assert await client.objectives() == []


async def test_a_change_names_what_it_changed_and_an_unknown_objective_is_told(client):
    await client.put_objective("a", 0.9, start_within=SECOND)

    assert (await client.put_objective("a", 0.9)).changed == ()
    changed = await client.put_objective("a", start_within=MINUTE)

    assert (changed.share, changed.start_within, changed.changed) == (0.9, MINUTE, ("start_within",))
    with pytest.raises(duly.UnknownObjectiveError, match="'b' has no objective of its own"):
        await client.delete_objective("b")
    with pytest.raises(duly.InvalidTaskError, match="say what to change"):
        await client.put_objective("a")


async def test_there_is_an_end_to_the_objectives(store, client):
    async with store.connection() as connection:
        await connection.execute(
            "insert into start_objective select 'l' || n, 0.9, '1 s', now() from generate_series(1, %s) as n",
            [MOST_OBJECTIVES],
        )

    with pytest.raises(duly.InvalidTaskError, match="1,000 objectives"):
        await client.put_objective("one.more", 0.9, start_within=SECOND)
    assert (await client.put_objective("l7", 0.8)).share == 0.8


async def test_the_board_and_the_metrics_go_by_the_objective_of_the_lambda(store, client, task_states):
    board = ProblemBoard(store, every=0 * SECOND)
    at = recent()
    await trends.add_runs(store, [row(name, at, starts=50, place=IN_SEVEN_MINUTES) for name in ("", LAMBDA)])
    await client.put_objective(LAMBDA, 0.9, start_within=timedelta(minutes=10))

    await board.run_once()
    kept = (await client.problems()).problems
    shown = [
        REGISTRY.get_sample_value(f"duly_start_objective_{name}", {"lambda": LAMBDA})
        for name in ("seconds", "ratio")
    ]
    await client.put_objective(LAMBDA, start_within=timedelta(minutes=5))
    await ProblemBoard(store, every=0 * SECOND).run_once()
    (broken,) = (await client.problems()).problems

    assert kept == ()
    assert shown == [600, 0.9]
    assert broken.kind is ProblemKind.BUDGET_BURNS
    assert broken.text.startswith(f"50 runs of {LAMBDA} began more than 5m late")


async def test_the_metrics_forget_an_objective_that_was_removed(store, task_states):
    await store_slo.put_objective(store, LAMBDA, lambda _: (0.9, SECOND))
    clock = [0.0]
    board = ProblemBoard(store, every=0 * SECOND, seconds=lambda: clock[0])
    await board.run_once()
    assert REGISTRY.get_sample_value("duly_start_objective_seconds", {"lambda": LAMBDA}) == 1

    await store_slo.delete_objectives(store, [LAMBDA])
    clock[0] += 61
    await board.run_once()

    assert REGISTRY.get_sample_value("duly_start_objective_seconds", {"lambda": LAMBDA}) is None


def test_the_metrics_of_objectives_never_name_the_lambdas_that_share_a_series():
    many = {f"team/l{n}": Promised(0.9, MINUTE, "team/*") for n in range(DEFAULT_MOST + 50)}

    def named():
        return [
            REGISTRY.get_sample_value(f"duly_start_objective_{unit}", {"lambda": name})
            for unit in ("seconds", "ratio")
            for name in ("team/l0", OTHER)
        ]

    try:
        events.objectives_read(many)
        assert named() == [60, None, 0.9, None]
        events.objectives_read({OTHER: Promised(0.9, MINUTE, OTHER)})  # a lambda may be called so
        assert named() == [None] * 4
    finally:
        events.objectives_read({})


async def test_a_chart_draws_the_objective_of_its_lambda_and_marks_its_change(client, frontend, task_states):
    from duly_wire.v1 import inspection_pb2, inspection_pb2_grpc

    await client.put_objective(f"{LAMBDA[:4]}*", 0.5, start_within=timedelta(minutes=2))

    request = inspection_pb2.GetTrendsRequest()
    setattr(request, "lambda", LAMBDA)
    answer = await inspection_pb2_grpc.InspectionServiceStub(frontend.channel).GetTrends(request)

    assert (answer.on_time_within.seconds, answer.objective) == (120, 0.5)


async def test_the_command_sets_shows_and_removes_an_objective(frontend, run_duly, store, task_states):
    async def run(*words):
        return await run_duly("slo", *words, "--address", frontend.address)

    made = await run("set", LAMBDA, "--within", "1s", "--share", "99.9")
    again = await run("set", LAMBDA, "--share", "99.5%")
    ghost = await run("set", "ghost", "--within", "1s", "--share", "90")
    listed = await run("objectives")
    shown = await run(LAMBDA)
    said = json.loads((await run("objectives", "--json")).stdout.splitlines()[0])
    gone = await run("reset", LAMBDA)
    twice = await run("reset", LAMBDA)

    assert "starts within 1 s" in made.stdout
    assert "holds for 1 registered lambda" in made.stdout
    assert "changed: share" in again.stdout
    assert "no lambda of this name is registered yet" in ghost.stdout
    assert ("99.5 %" in listed.stdout, "99.5 %" in shown.stdout) == (True, True)
    assert said["share"] == 0.9
    assert gone.stdout.endswith(f"{LAMBDA}: objective removed\n")
    assert (twice.exit_code, "duly slo objectives" in twice.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--share", "100"], "less than 100"),
        (["--share", "-1"], "from 50 to less than 100"),
        (["--share", "0.999"], "from 50 to less than 100, such as 99.9, not '0.999'"),
        (["--share", "nan"], "from 50 to less than 100"),
        (["--share", "99,9"], "must be a percentage, such as 99.9, not '99,9'"),
        (["--within", "soon"], "duration"),
        ([], "is missing"),
    ],
)
async def test_the_command_says_what_is_wrong_with_an_option(run_duly, words, why):
    refused = await run_duly("slo", "set", LAMBDA, *words)

    assert refused.exit_code == 2
    assert why in refused.stderr
