"""What Explain says of gates."""

from datetime import UTC, datetime

from duly_core.gates.rules import Gate, GateScope, Kind
from duly_frontend.explain.gates import _reason

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def test_a_gate_of_a_newer_release_is_said_to_hold_the_task_back():
    gate = Gate(1, "new-kind", Kind.UNKNOWN, GateScope("mail.send"), None, "ops", "", NOW, None)

    assert "'new-kind' holds it back" in _reason({"now": NOW, "lambda": "mail.send"}, gate).text
