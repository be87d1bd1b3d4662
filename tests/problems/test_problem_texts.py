"""What people read of each kind of problem: whole sentences, and commands that the command line takes."""

import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import click
import pytest
import typer

import duly
from duly_cli.__main__ import app
from duly_cli.problems.status import status_lines
from duly_core.access.grants import Scope
from duly_core.problems.kinds import CAUSES_FIRST, Kind, Severity
from duly_core.problems.problem import AboutHost, AboutSession, AboutTask, FoundProblem, found, ranked
from duly_frontend.problems.texts import hits, say
from duly_frontend.problems.wire import problem_to_wire

NOW = datetime(2026, 11, 27, 3, tzinfo=UTC)
HOST = AboutHost("rack-1:1:a", "rack-1", "", NOW, timedelta(seconds=9))
TASK = AboutTask("0190a8a0-0000-7000-8000-000000000000", "mail.send", "processing", NOW, "rack-1:1:a/0", 1)
SESSION = AboutSession("of-another smith", TASK.task_id, NOW, 3)
VALUES = {
    Kind.STORE_AWAY: {"error": "no answer"},
    Kind.CELL_AWAY: {"error": "cell b does not answer", "namespaces": "mail, sort"},
    Kind.STORE_SLOW: {"milliseconds": 700},
    Kind.SLOTS_HELD: {"slots": 8, "held": 8, "shown": 8},
    Kind.LATE: {"why": "it waits for a free slot", "within": "5 s"},
    Kind.BREAKER_OPEN: {"state": "open"},
    Kind.PAUSED: {
        "does": "pauses",
        "what": "all lambdas",
        "pattern": "*",
        "owner": "ann",
        "reason": "a deploy",
        "until": (NOW + timedelta(hours=1)).isoformat(),
    },
    Kind.RESOURCE_FULL: {"capacity": 2, "note": "", "keys": 0, "changed_at": NOW.isoformat()},
    Kind.DEAD_LETTERS: {
        "failure_kind": 1,
        "exception": "KeyError",
        "message": "…",
        "newest_at": NOW.isoformat(),
    },
    Kind.SESSIONS_BLOCKED: {"count": 2, "namespace": "shop"},
    Kind.SILENT_HOSTS: {"number": 1},
    Kind.POOL_DRIVER_FAILS: {"failure": "no such Deployment"},
    Kind.CERTIFICATE_EXPIRES: {"expires_at": NOW.isoformat()},
    Kind.TOKEN_EXPIRES: {"principal": "ann", "note": "laptop", "expires_at": NOW.isoformat()},
    Kind.NOTIFICATIONS_FAIL: {"failure": "it answered 500"},
    Kind.BUDGET_BURNS: {"burn_rate": "6", "within": "5s", "long": "6h", "window": "28d", "calls": 0},
}


def one(
    kind: Kind, severity: Severity = Severity.WARNING, subject: str = "mail.send", tasks: int = 3
) -> FoundProblem:
    return found(
        kind,
        severity,
        NOW - timedelta(minutes=5),
        subject,
        lambdas={"mail.send": tasks},
        hosts=[HOST],
        holders=[TASK],
        sessions=[SESSION] if kind is Kind.SESSIONS_BLOCKED else (),
        **VALUES.get(kind, {}),
    )


def parse(line: str) -> None:
    """Have the command line parse a command, without running it.

    Raises:
        UsageError: it does not take it.
    """
    program, *arguments = shlex.split(line)
    assert program == "duly"
    command = typer.main.get_command(app)
    context = command.make_context("duly", arguments)
    while isinstance(command, click.Group):
        left = [*context._protected_args, *context.args]
        if not left:
            return
        name, command, arguments = command.resolve_command(context, left)
        context = command.make_context(name, arguments, parent=context)


@pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.name)
def test_each_kind_has_a_sentence_and_commands_that_exist(kind: Kind) -> None:
    said = say(one(kind), NOW)

    assert 20 < len(said.text) < 250
    assert said.commands
    for line, purpose in said.commands:
        parse(line)
        assert purpose


@pytest.mark.parametrize("kind", [Kind.LATE, Kind.BUDGET_BURNS], ids=lambda kind: kind.name)
def test_a_lambda_that_is_named_like_a_verb_is_shown_and_not_changed(kind: Kind) -> None:
    problem = replace(one(kind), lambdas={"reset": 3})

    assert "duly slo show reset" in [line for line, _ in say(problem, NOW).commands]


@pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.name)
def test_a_problem_is_the_same_after_it_was_kept(kind: Kind) -> None:
    problem = one(kind)
    kept = FoundProblem.from_facts(
        int(kind), int(problem.severity), problem.subject, problem.since_at, problem.to_facts()
    )

    assert kept is not None
    assert problem_to_wire(kept, NOW) == problem_to_wire(problem, NOW)
    assert kept.fingerprint == problem.fingerprint


OTHERS = {
    Kind.LATE: {"why": "the fair key of-another of bank.pay"},
    Kind.POOL_DRIVER_FAILS: {"failure": "no such Deployment: of-another"},
    Kind.SESSIONS_BLOCKED: {"count": 1, "namespace": "shop"},
}
"""Values that say something of others."""


@pytest.mark.parametrize("kind", list(OTHERS), ids=lambda kind: kind.name)
def test_who_sees_some_lambdas_reads_nothing_of_others(kind: Kind) -> None:
    sessions = [SESSION] if kind is Kind.SESSIONS_BLOCKED else ()
    problem = found(
        kind,
        Severity.WARNING,
        NOW,
        "mail.send",
        lambdas={"mail.send": 3},
        sessions=sessions,
        **OTHERS[kind],
    )
    seen = problem.seen_by(Scope((), ("mail.send",), "ann"))
    assert seen is not None
    message = problem_to_wire(seen, NOW)

    assert "of-another" in str(problem_to_wire(problem, NOW))
    assert "of-another" not in str(message)
    assert not message.text.rstrip().endswith(":")
    assert message.commands
    for each in message.commands:
        parse(each.command)


def test_who_sees_all_tasks_of_a_lambda_sees_which_session_is_blocked() -> None:
    seen = one(Kind.SESSIONS_BLOCKED).seen_by(Scope(("mail.*",), (), "ann"))

    assert seen is not None
    assert say(seen, NOW) == say(one(Kind.SESSIONS_BLOCKED), NOW)
    assert [each.key for each in problem_to_wire(seen, NOW).sessions] == [SESSION.key]


def test_dead_letters_of_a_version_are_listed_by_its_queue_and_redriven_with_all_of_the_lambda() -> None:
    pinned = replace(TASK, lambda_name="mail.send@1.2")
    problem = replace(one(Kind.DEAD_LETTERS), holders=[pinned], key="0" * 16)

    lists, redrives = (line for line, _ in say(problem, NOW).commands)

    assert lists == "duly dead-letters list --lambda mail.send@1.2"
    assert redrives == f"duly redrive --lambda mail.send --cause {'0' * 16} --rate 10/s"


def test_sessions_whose_failed_tasks_are_gone_are_unblocked_by_their_keys() -> None:
    problem = replace(
        one(Kind.SESSIONS_BLOCKED),
        subject="",
        sessions=[replace(SESSION, key=key) for key in ("ann smith", "-b", "c", "d", "e")],
        values={"count": "5", "namespace": "shop"},
    )

    *_, (line, purpose) = say(problem, NOW).commands

    assert line == "duly sessions unblock --namespace shop -- 'ann smith' -b c d"
    assert purpose == "goes on without the first of them: the next task runs"
    parse(line)


def test_each_kind_has_its_place_in_the_order_of_causes() -> None:
    assert sorted(CAUSES_FIRST) == sorted(Kind)


def test_the_worst_stands_first_then_causes_and_then_what_hits_most() -> None:
    ordered = [
        one(Kind.NO_HOST, Severity.CRITICAL),
        one(Kind.LATE, Severity.CRITICAL, tasks=9),
        one(Kind.DEAD_LETTERS, subject="big.one", tasks=9),
        one(Kind.DEAD_LETTERS, subject="small.one"),
        one(Kind.PAUSED, Severity.INFORMATION),
    ]

    assert ranked(reversed(ordered)) == ordered


def test_counts_say_when_they_are_lower_bounds_and_names_stay_few() -> None:
    many = found(
        Kind.NO_HOST,
        Severity.CRITICAL,
        NOW,
        lambdas={f"l{number}@1.0": 1 + number % 2 for number in range(500)},
        at_least=True,
    )

    assert hits(many) == "at least 750 tasks of 500 lambdas"
    assert len(many.lambdas) == 200
    assert len(problem_to_wire(many, NOW).lambdas) == 20


def test_what_others_wrote_is_cut_and_obeyed_by_no_terminal() -> None:
    values = VALUES[Kind.PAUSED] | {"reason": "\x1b]0;owned\x07\n" * 500}
    problem = found(Kind.PAUSED, Severity.INFORMATION, NOW, "deploy", lambdas={}, **values)

    text = problem_to_wire(problem, NOW).text
    assert text.isprintable()
    assert len(text) <= 500


@pytest.mark.parametrize(
    ("subject", "text", "said"),
    [
        ("poison.run", "poison.run holds 8 slots", "    poison.run holds 8 slots"),
        ("mail.send", "too many runs of mail.send failed", "    Too many runs of mail.send failed"),
        ("", "no live host serves mail.send", "    No live host serves mail.send"),
    ],
)
def test_the_command_writes_names_as_they_are_copied_and_other_sentences_with_a_capital(
    subject: str, text: str, said: str
) -> None:
    problem = duly.Problem(
        fingerprint="f",
        kind=duly.ProblemKind.LATE,
        severity=duly.ProblemSeverity.CRITICAL,
        subject=subject,
        since_at=NOW,
        text=text,
        hits="",
        task_count=0,
        at_least=False,
        lambda_count=0,
        lambdas=(),
        host_count=0,
        hosts=(),
        tasks=(),
        commands=(),
        action=None,
        cause=None,
        sessions=(),
        session_count=0,
    )
    found_now = duly.Problems(
        status=duly.ProblemStatus.PROBLEMS,
        as_of=NOW,
        is_stale=False,
        problems=(problem,),
        problem_count=1,
        left_out=0,
        took=timedelta(),
        computed_by="",
    )

    assert [str(line) for line in status_lines(found_now)][-1] == said
