"""The incident board finds what is wrong, keeps since when, and tells each caller what hits theirs."""

from datetime import timedelta

import pytest

import duly
from duly_core.gates import store as store_gates
from duly_core.gates.rules import GateScope, Kind
from duly_core.gates.store import NewGate
from duly_core.problems import store as store_problems
from duly_frontend.problems.board import ProblemBoard
from duly_wire.enums import ProblemKind, ProblemSeverity, ProblemStatus

NOW = timedelta(0)


@pytest.fixture
def board(store):
    """A board that is computed whenever it is told to."""
    return ProblemBoard(store, every=NOW)


async def pause(store, name="deploy", pattern="*", reason="a deploy", **more):
    asked = {"owner": "ann", "delay": None, "expires_at": None} | more
    await store_gates.put_gate(
        store, name, lambda _: NewGate(name, Kind.PAUSE, GateScope(pattern), reason=reason, **asked)
    )


async def ran(store, statement, **parameters):
    async with store.connection() as connection:
        await connection.execute(statement, parameters)


async def test_before_the_first_round_nothing_is_known(client):
    found = await client.problems()

    assert (found.status, found.is_stale, found.as_of) == (ProblemStatus.UNKNOWN, True, None)


async def test_a_store_without_trouble_is_healthy(board, client):
    await board.run_once()
    found = await client.problems()

    assert (found.status, found.is_stale, found.problems) == (ProblemStatus.HEALTHY, False, ())
    assert found.as_of is not None
    assert found.took > NOW


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


async def test_a_round_that_took_too_long_publishes_nothing(store, client):
    late = await store_problems.begin(store, "slow", NOW)
    assert await store_problems.begin(store, "other", NOW) is not None

    assert not await store_problems.publish(store, late, [])
    assert (await client.problems()).as_of is None


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
