"""The incident board finds what is wrong, keeps since when, and tells each caller what hits theirs."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import REGISTRY

import duly
from duly_core.errors import StoreUnavailableError
from duly_core.gates import store as store_gates
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.problems import budgets
from duly_core.problems import store as store_problems
from duly_core.problems.kinds import Kind
from duly_frontend import events
from duly_frontend.problems import board as boards
from duly_frontend.problems.board import EVERY, ProblemBoard
from duly_frontend.problems.service import ProblemServicer
from duly_frontend.settings import FrontendSettings
from duly_frontend.stores import open_stores
from duly_wire.enums import ProblemKind, ProblemSeverity, ProblemStatus
from duly_wire.v1 import problems_pb2
from tests.fixtures.console import token_of
from tests.fixtures.problems import pause, ran
from tests.fixtures.task_states import SECOND

NOW = timedelta(0)
NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)


async def test_before_the_first_round_nothing_is_known(client):
    found = await client.problems()

    assert (found.status, found.is_stale, found.as_of) == (ProblemStatus.UNKNOWN, True, None)


async def test_a_store_without_trouble_is_healthy(board, client):
    await board.run_once()
    found = await client.problems()

    assert (found.status, found.is_stale, found.problems) == (ProblemStatus.HEALTHY, False, ())
    assert found.as_of is not None
    assert found.took > NOW


SELDOM_FOUND = {
    "breakers_not_closed",
    "hosts_astray",
    "parked_by_resource",
    "newest_dead_letters",
    "blocked_sessions",
    "failing_pools",
    "expiring_tokens",
    "failing_targets",
}


@pytest.fixture
def statements(store, monkeypatch):
    """The names of the statements that are run, as they come."""
    names, run = [], store.run

    async def note_and_run(statement, parameters):
        names.append(statement.name)
        return await run(statement, parameters)

    monkeypatch.setattr(store, "run", note_and_run)
    return names


async def test_a_round_of_a_store_without_trouble_makes_no_read_that_would_find_nothing(store, statements):
    await ProblemBoard(store).run_once()

    assert "problem_signs" in statements
    assert not SELDOM_FOUND.intersection(statements)
    assert "publish_board" not in statements


async def test_a_round_that_finds_nothing_ends_what_was_found_before(board, store, client, statements):
    await pause(store, expires_at=None)
    await board.run_once()
    await store_gates.delete_gates(store, ["deploy"])
    del statements[:]

    await board.run_once()

    assert "publish_board" in statements
    assert (await client.problems()).problems == ()
    await board.run_once()
    assert statements[-3:-2] == ["publish_clear_board"]
    assert (await client.problems()).status is ProblemStatus.HEALTHY


async def test_a_problem_that_ended_is_forgotten_after_a_day_though_nothing_is_found(
    board, store, statements, clock
):
    await pause(store, expires_at=None)
    await board.run_once()
    await store_gates.delete_gates(store, ["deploy"])
    await board.run_once()
    await clock.tick(timedelta(days=1, seconds=1))
    del statements[:]

    await board.run_once()

    assert "publish_board" in statements
    async with store.connection() as connection:
        cursor = await connection.execute("select from problem where kind = %s", [int(Kind.PAUSED)])
        assert await cursor.fetchall() == []


async def test_a_round_goes_on_without_signs_of_what_there_may_be(store, monkeypatch, statements):
    async def fails(*_):
        raise StoreUnavailableError("it took too long")

    monkeypatch.setattr(boards, "read_signs", fails)

    found = await ProblemBoard(store).find()

    assert (found.problems, found.unread) == ([], set())
    assert SELDOM_FOUND.issubset(statements)


async def test_a_pause_is_information_with_who_and_why_and_the_command_that_ends_it(board, store, client):
    await pause(store, expires_at=None, reason="a deploy\x1b[2J of\nann")
    await board.run_once()

    found = await client.problems()
    (problem,) = found.problems
    assert (found.status, found.problem_count) == (ProblemStatus.HEALTHY, 0)
    assert (problem.kind, problem.severity) == (ProblemKind.PAUSED, ProblemSeverity.INFORMATION)
    assert problem.text == "the gate 'deploy' pauses all lambdas (set by ann: a deploy?[2J of ann)"
    assert problem.commands[0].command == "duly gates delete deploy"
    assert (problem.action.kind, problem.action.target) == (duly.ProblemActionKind.REMOVE_GATE, "deploy")


async def test_a_problem_keeps_since_when_while_it_lasts_and_is_gone_with_its_cause(board, store, client):
    await pause(store)
    await board.run_once()
    first = (await client.problems()).problems[0]
    await board.run_once()
    again = (await client.problems()).problems[0]
    await store_gates.delete_gates(store, ["deploy"])
    await board.run_once()

    assert (first.since_at, first.fingerprint) == (again.since_at, again.fingerprint)
    assert (await client.problems()).problems == ()
    async with store.connection() as connection:
        cursor = await connection.execute("select ended_at is not null from problem")
        assert await cursor.fetchall() == [(True,)]


async def test_one_frontend_at_a_time_computes_the_board(store, client):
    first, second = ProblemBoard(store), ProblemBoard(store)
    await first.run_once()
    as_of = (await client.problems()).as_of
    await second.run_once()

    assert (await client.problems()).as_of == as_of


async def test_a_round_that_took_too_long_publishes_nothing(store, client, clock):
    late = await store_problems.begin(store, "slow", NOW)
    await clock.tick(timedelta(seconds=61))
    assert await store_problems.begin(store, "other", NOW) is not None

    assert not await store_problems.publish(store, late, [])
    assert (await client.problems()).as_of is None


async def test_a_round_that_takes_longer_than_the_time_between_two_is_published(store, client, clock):
    slow = await store_problems.begin(store, "slow", 9 * SECOND)
    await clock.tick(30 * SECOND)

    assert await store_problems.begin(store, "other", 9 * SECOND) is None
    assert await store_problems.publish(store, slow, [])
    assert (await client.problems()).as_of is not None
    assert await store_problems.begin(store, "other", 9 * SECOND) is not None


async def test_a_frontend_whose_own_round_failed_begins_another_at_its_time(store, clock):
    failed = await store_problems.begin(store, "first", 9 * SECOND)

    assert await store_problems.begin(store, "first", 9 * SECOND, failed) is None
    await clock.tick(10 * SECOND)
    assert await store_problems.begin(store, "second", 9 * SECOND, failed - SECOND) is None
    assert await store_problems.begin(store, "first", 9 * SECOND, failed) is not None


async def test_a_read_that_is_made_once_a_minute_makes_no_pause_longer(store, monkeypatch):
    now = 0.0

    async def takes_a_second(*_):
        nonlocal now
        now += 1
        return []

    monkeypatch.setattr(budgets, "read_levels", takes_a_second)
    await pause(store)

    assert await ProblemBoard(store, seconds=lambda: now).run_once() == EVERY
    assert now == 1


async def test_a_read_that_fails_costs_its_own_problems_only_and_ends_none_of_them(store, client):
    await client.create_token("ann", lifetime=timedelta(days=5))
    impatient = store.settings.model_copy(update={"statement_timeout": SECOND / 4})
    async with Store(impatient) as reads, store.connection() as holder:
        board = ProblemBoard(reads, every=0 * SECOND)
        await board.run_once()
        await pause(store)
        async with holder.transaction():
            await holder.execute("lock table access_token in access exclusive mode")
            await board.run_once()
            during = await client.problems()
        await ran(store, "delete from access_token")
        await board.run_once()

    assert {each.kind for each in during.problems} == {ProblemKind.TOKEN_EXPIRES, ProblemKind.PAUSED}
    assert not during.is_stale
    assert [each.kind for each in (await client.problems()).problems] == [ProblemKind.PAUSED]


async def test_gauges_of_a_stale_board_tell_nothing(board, store):
    labels = {"kind": "paused", "severity": "information"}

    def shown() -> tuple[float | None, float | None]:
        of_lambda = {"lambda": "mail.send"} | labels
        told = REGISTRY.get_sample_value
        return told("duly_problems", labels), told("duly_lambda_problems", of_lambda)

    await pause(store, pattern="mail.send")
    await board.run_once()
    fresh = shown()
    await ran(store, "update problem_board set computed_at = computed_at - interval '61 seconds'")
    events.board_read(await store_problems.read(store))

    assert fresh == (1, 1)
    assert shown() == (None, None)


async def test_gauges_tell_nothing_once_the_board_was_not_read_for_a_minute(board, store):
    await pause(store)
    await board.run_once()
    now = 0.0
    nowhere = StoreSettings(dsn="host=127.0.0.1 port=1 dbname=none", acquire_timeout=SECOND / 10)

    def paused() -> float | None:
        return REGISTRY.get_sample_value("duly_problems", {"kind": "paused", "severity": "information"})

    async with Store(nowhere) as away:
        lost = ProblemBoard(away, seconds=lambda: now)
        with pytest.raises(StoreUnavailableError):
            await lost.run_once()
        soon = paused()
        now = 61.0
        with pytest.raises(StoreUnavailableError):
            await lost.run_once()

    assert soon == 1
    assert paused() is None


async def test_an_old_board_says_that_it_is_stale(board, store, client):
    await board.run_once()
    await ran(store, "update problem_board set computed_at = computed_at - interval '61 seconds'")

    found = await client.problems()
    assert (found.status, found.is_stale) == (ProblemStatus.HEALTHY, True)


async def test_an_open_breaker_is_critical(board, store, task_states, client):
    await task_states.register("mail.send")
    await ran(
        store,
        """insert into breaker (lambda, failure_rate, minimum, count_window, pause, probes, owner, reason, changed_at, state, state_since)
        values ('mail.send', 0.5, 1, '1 min', '1 min', 1, 'ann', '', duly_now(), 'open', duly_now() - interval '5 min')""",
    )
    await board.run_once()

    (problem,) = (await client.problems()).problems
    assert (problem.kind, problem.severity) == (ProblemKind.BREAKER_OPEN, ProblemSeverity.CRITICAL)
    assert (problem.subject, problem.hits) == ("mail.send", "mail.send")
    assert "its breaker is open" in problem.text


async def test_filters_show_what_hits_a_lambda_and_what_is_about_a_kind(board, store, task_states, client):
    await task_states.register("mail.send")
    await pause(store, "all")
    await pause(store, "mail", "mail.send")
    await board.run_once()

    of_lambda = await client.problems(lambda_name="mail.send")
    assert {each.subject for each in of_lambda.problems} == {"all", "mail"}
    other = await client.problems(lambda_name="other.send")
    assert [each.subject for each in other.problems] == ["all"]
    assert (await client.problems(kinds=[ProblemKind.BREAKER_OPEN])).problems == ()
    with pytest.raises(duly.DulyError, match="kinds"):
        await client.problems(kinds=[99])


async def test_when_postgres_is_away_the_answer_says_so_and_since_when(task_states):
    nowhere = StoreSettings(dsn="host=127.0.0.1 port=1 dbname=none", acquire_timeout=SECOND)
    instants = iter([NOON, NOON + SECOND])
    async with open_stores(nowhere, FrontendSettings()) as stores:
        servicer = ProblemServicer(stores, lambda: next(instants))
        first = await servicer.ListProblems(problems_pb2.ListProblemsRequest(), None)
        again = await servicer.ListProblems(problems_pb2.ListProblemsRequest(), None)

    assert [each.kind for each in first.problems] == [problems_pb2.PROBLEM_KIND_STORE_AWAY]
    assert (first.is_stale, first.problem_count, first.HasField("as_of")) == (True, 1, False)
    assert "does not answer" in first.problems[0].text
    assert again.problems[0].since_at == first.problems[0].since_at


async def test_a_store_that_stands_still_is_away_before_the_caller_has_waited_for_long(store, task_states):
    async with open_stores(store.settings, FrontendSettings()) as stores, store.connection() as holder:
        servicer = ProblemServicer(stores, lambda: NOON, SECOND / 10)
        async with holder.transaction():
            await holder.execute("lock table problem_board in access exclusive mode")
            answer = await servicer.ListProblems(problems_pb2.ListProblemsRequest(), None)

    assert [each.kind for each in answer.problems] == [problems_pb2.PROBLEM_KIND_STORE_AWAY]
    assert "no answer within 0.1 s" in answer.problems[0].text


async def test_an_owner_sees_what_hits_their_lambdas_without_the_numbers_and_names_of_others(
    board, store, guarded, task_states, clock
):
    for name in ("mail.send", "bank.pay"):
        await task_states.register(name)
        await task_states.new(lambda_name=name)
    await pause(store, "bank", "bank.pay")
    await clock.tick(60 * SECOND)
    await board.run_once()

    async with (
        duly.AsyncClient(guarded.address, token=token_of("owner")) as owner,
        duly.AsyncClient(guarded.address, token=token_of("auditor")) as auditor,
        duly.AsyncClient(guarded.address, token=token_of("client")) as client,
    ):
        all_of_them = (await auditor.problems()).problems
        (of_owner,) = (await owner.problems()).problems
        (of_client,) = (await client.problems()).problems
        with pytest.raises(duly.PermissionDeniedError):
            await owner.problems(lambda_name="bank.pay")

    assert {each.kind for each in all_of_them} == {ProblemKind.NO_HOST, ProblemKind.PAUSED}
    assert (of_owner.kind, of_owner.hits) == (ProblemKind.NO_HOST, "1 task of mail.send")
    assert (of_client.task_count, of_client.hits) == (0, "mail.send")


async def test_messages_of_failures_are_for_those_who_may_read_payloads(board, guarded, task_states):
    await task_states.register()
    await task_states.fail(await task_states.claimed(), "KeyError: the card of ann")
    await board.run_once()

    causes = {}
    for principal in ("auditor", "owner", "operator"):
        async with duly.AsyncClient(guarded.address, token=token_of(principal)) as caller:
            (problem,) = (await caller.problems()).problems
            causes[principal] = problem.cause.message, "card of ann" in problem.text

    assert causes["auditor"] == ("", False)
    assert causes["owner"] == causes["operator"] == ("the card of ann", True)


async def test_the_command_says_healthy_or_what_is_wrong_and_its_exit_code_says_so_too(
    board, store, task_states, run_duly, clock
):
    nothing_yet = await run_duly("status")
    await board.run_once()
    healthy = await run_duly("status")
    await pause(store, reason="a long one: " + "why " * 100)
    await board.run_once()
    paused = await run_duly("status")
    await task_states.register()
    await task_states.fail(await task_states.claimed(), "KeyError: 'x'")
    await board.run_once()
    broken = await run_duly("status")
    as_json = await run_duly("status", "--json")
    none = await run_duly("status", "--lambda", "report.make", "--kind", "dead_letters")
    wrong = await run_duly("status", "--kind", "x")

    assert (nothing_yet.exit_code, nothing_yet.stdout) == (2, "Unknown: no Frontend has looked yet\n")
    assert (healthy.exit_code, re.sub(r"\d", "0", healthy.stdout)) == (0, "Healthy as of 00:00:00, 0s old\n")
    assert (paused.exit_code, paused.stdout.split()[0]) == (0, "Healthy")
    assert max(map(len, paused.stdout.splitlines())) <= 80
    assert "    duly gates delete deploy  # ends it" in paused.stdout
    assert (broken.exit_code, broken.stdout.split(" as of")[0]) == (1, "1 problem")
    assert broken.stdout.index("WARNING") < broken.stdout.index("INFORMATION")
    assert json.loads(as_json.stdout)["problems"][0]["kind"] == "dead_letters"
    assert (none.exit_code, none.stdout.split(" as of")[0]) == (0, "Healthy (report.make, dead letters)")
    assert wrong.exit_code == 2
    assert "must be one of store_away" in wrong.stderr


async def test_the_command_has_an_exit_code_of_its_own_for_no_answer(run_duly):
    done = await run_duly("status", "--address", "127.0.0.1:1")

    assert done.exit_code == 2
