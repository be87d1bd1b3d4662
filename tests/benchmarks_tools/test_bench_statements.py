"""The benchmark gives each statement the parameters that it asks for, also after the statement has changed."""

import re
from typing import Any

import pytest

from benchmarks import statements
from duly_core.postgres.statements import READS, TRANSITIONS
from duly_wire.ids import new_task_id

IDS = [new_task_id(), new_task_id()]
GIVEN = {
    "schedule_plain": statements.schedule(IDS, "bench", b"x"),
    "schedule_one": statements.schedule_one(IDS[0], "bench", b"x"),
    "schedule_in_sessions": statements.schedule_in_sessions(IDS, "bench", b"x", ["a", "b"]),
    "enqueue": statements.enqueue("bench", 100),
    "claim_work": statements.claim_work("bench", 100, b"x" * 14),
    "next_triggers": statements.next_triggers([("bench", 3)]),
    "claim": statements.claim(IDS, IDS, "bench"),
    "finish": statements.finish(IDS, IDS),
}


@pytest.mark.parametrize(("name", "given"), GIVEN.items())
def test_a_statement_is_given_what_it_asks_for(name: str, given: dict[str, Any]) -> None:
    asked = set(re.findall(r"%\((\w+)\)b", (TRANSITIONS | READS)[name].sql))

    assert given.keys() == asked
    assert statements.in_binary(given).keys() == asked
