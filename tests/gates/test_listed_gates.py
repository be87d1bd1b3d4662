"""Which gates a caller sees who may see some lambdas."""

import itertools
from datetime import UTC, datetime

import pytest

from duly_core.access.grants import Scope
from duly_core.gates.rules import Gate, GateScope, Kind
from duly_core.gates.store import ListedGate
from duly_frontend.gates.service import _seen

LAMBDAS = sorted(["mail.send", "mail.send@2", "shop/a", "shop/b@1", "shop/b@2", "zoo"])
PATTERNS = [
    "*",
    "mail.*",
    "mail.send",
    "mail.send@2",
    "mail.send@3",
    "shop/*",
    "shop/b",
    "shop/b@2",
    "shop/c",
    "z*",
    "zz*",
    "a",
]


@pytest.mark.parametrize(
    "granted", list(itertools.combinations(["mail.send", "shop/*", "shop/b", "none"], 2))
)
def test_a_gate_is_seen_if_it_may_hit_a_lambda_that_the_caller_may_see(granted):
    scope = Scope(granted, ())
    now = datetime.now(UTC)
    gates = [
        ListedGate(Gate(number, pattern, Kind.PAUSE, GateScope(pattern), None, "ann", "", now, None), 0)
        for number, pattern in enumerate(PATTERNS)
    ]

    seen = [each.gate.name for each in _seen(gates, scope, LAMBDAS)]

    visible = [name for name in LAMBDAS if scope.covers(name)]
    # who may see all that a pattern matches sees its gates before the first of these lambdas is registered
    assert seen == [
        pattern
        for pattern in PATTERNS
        if scope.covers_all_that_match(pattern) or any(map(GateScope(pattern).covers, visible))
    ]


def test_of_a_gate_that_reaches_beyond_the_caller_the_parked_tasks_are_not_told():
    now = datetime.now(UTC)
    gates = [
        ListedGate(Gate(number, pattern, Kind.PAUSE, GateScope(pattern), None, "ann", "", now, None), 7)
        for number, pattern in enumerate(["*", "shop/*", "shop/a"])
    ]

    seen = _seen(gates, Scope(["shop/*"], ()), LAMBDAS)

    assert {each.gate.name: each.parked for each in seen} == {"*": 0, "shop/*": 7, "shop/a": 7}
