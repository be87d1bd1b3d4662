"""Which tasks gates hold, decided in memory; and that statements know nothing of gates while there are none."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from duly_core.gates.rules import NO_GATES, Gate, GateScope, GateSet, Kind
from duly_core.lambdas.names import ALL_PRIORITIES, QueueKey
from duly_core.postgres.statements import FAIR, GATED, GATED_FAIR, TRANSITIONS
from duly_wire.enums import Priority

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def a_gate(pattern="mail.send", kind=Kind.PAUSE, gate_id=1, probes_until=None, **scope):
    delay = timedelta(hours=1) if kind is Kind.DELAY else None
    return Gate(gate_id, "held", kind, GateScope(pattern, **scope), delay, "", "", NOW, None, probes_until)


@pytest.mark.parametrize(
    ("pattern", "name", "covered"),
    [
        ("mail.send", "mail.send", True),
        ("mail.send", "mail.send@2", True),
        ("mail.send@2", "mail.send@2", True),
        ("mail.send@2", "mail.send", False),
        ("mail.send@2", "mail.send@3", False),
        ("mail.send", "mail.sender", False),
        ("mail.*", "mail.send", True),
        ("mail.*", "mail", False),
        ("shop/*", "shop/mail.send", True),
        ("shop/*", "mail.send", False),
        ("mail.*", "mail.team/send", False),
        ("mail*", "mail.team/send", False),
        ("m*", "mail/send", False),
        ("*", "anything@1", True),
    ],
)
def test_a_pattern_covers_a_lambda_with_its_versions_or_a_prefix(pattern, name, covered):
    assert GateScope(pattern).covers(name) is covered


@pytest.mark.parametrize(
    ("gate", "closes"),
    [
        (a_gate(), True),
        (a_gate(priority=Priority.LOW), True),
        (a_gate(collection="a"), False),
        (a_gate(session="s"), False),
        (a_gate(kind=Kind.DROP), False),
        (a_gate(kind=Kind.DELAY), False),
        (a_gate(probes_until=NOW), False),
    ],
)
def test_only_a_pause_of_whole_queues_closes_them(gate, closes):
    found = GateSet([gate])

    assert found.is_closed(QueueKey("mail.send", Priority.LOW)) is closes
    assert found.holds_rows(["mail.send"]) is not closes
    assert found.hold_any(["mail.send"])
    assert not found.hold_any(["report.make"])


def test_a_lambda_is_open_as_long_as_one_priority_that_is_asked_for_is():
    found = GateSet([a_gate(priority=Priority.LOW), a_gate("report.make")])
    lambdas = frozenset({"mail.send", "report.make", "other"})

    assert found.open_among(lambdas, ALL_PRIORITIES) == {"mail.send", "other"}
    assert found.open_among(lambdas, frozenset({Priority.LOW})) == {"other"}


def test_without_gates_the_lambdas_come_back_as_they_are():
    lambdas = frozenset({"mail.send"})

    assert NO_GATES.open_among(lambdas, ALL_PRIORITIES) is lambdas
    assert not NO_GATES


@pytest.mark.parametrize(
    ("task", "held"),
    [
        ((Priority.LOW, "a", "/s", None), True),
        ((Priority.LOW, "a", "/s", [7, 1]), False),
        ((Priority.LOW, "a", "/s", [7]), True),
        ((Priority.HIGH, "a", "/s", None), False),
        ((Priority.LOW, "b", "/s", None), False),
        ((Priority.LOW, "a", None, None), False),
    ],
)
def test_a_task_is_held_if_it_has_all_that_the_gate_names_and_has_not_passed_it(task, held):
    found = GateSet([a_gate(priority=Priority.LOW, collection="a", session="s")])

    assert bool(found.holding("mail.send", *task)) is held


@pytest.mark.parametrize(
    "name",
    [
        "claim",
        "claim_work",
        "enqueue",
        "heartbeat",
        "finish",
        "finish_one",
        "fail",
        "schedule",
        "schedule_plain",
        "schedule_one",
    ],
)
def test_a_statement_of_the_way_of_a_task_names_no_gate(name):
    # what a gate did to a task is in its events, for people: no gate is asked
    assert "gate" not in re.sub(r"'(un)?gated'", "", TRANSITIONS[name].sql)


def test_only_statements_that_pick_or_judge_tasks_have_a_twin_that_knows_gates():
    assert GATED.keys() == {"claim_work", "enqueue", "heartbeat"}
    assert all("gate" in statement.sql for statement in GATED.values())


def test_only_statements_that_pick_tasks_have_a_twin_that_knows_turns():
    assert FAIR.keys() == GATED_FAIR.keys() == {"claim_work", "enqueue"}
    assert all(
        "fair_key" not in TRANSITIONS[name].sql.partition("due as")[2].partition("parked as")[0]
        for name in FAIR
    )
