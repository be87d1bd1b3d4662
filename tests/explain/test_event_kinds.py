"""Events of tasks: what statements write, the Frontend can tell, and the documents explain."""

import re
from pathlib import Path

import pytest

import duly_core
from duly_frontend.explain.event_kinds import KINDS
from duly_wire.enums import HistoryKind, ReasonKind
from duly_wire.v1 import explain_pb2

ROOT = Path(__file__).parents[2]
CORE = Path(duly_core.__file__).parent
WRITTEN = {
    kind
    for path in sorted(CORE.rglob("*.sql"))
    for kind in re.findall(r"duly_note\(\s*[^']*'(\w+)'|\),\s*'(redriven)'", path.read_text("utf-8"))
    for kind in kind
    if kind
}


def test_each_event_that_a_statement_writes_has_a_sentence_and_no_other_has():
    assert KINDS.keys() - {"left_out"} == WRITTEN


@pytest.mark.parametrize("kinds", [ReasonKind, HistoryKind])
def test_the_sdk_has_each_kind_of_the_wire(kinds):
    wire = getattr(explain_pb2, kinds.__name__)
    names = {
        name.removeprefix(re.sub("(?<!^)(?=[A-Z])", "_", kinds.__name__).upper() + "_"): number
        for name, number in wire.items()
    }

    assert {kind.name: kind.value for kind in kinds} == {
        name: number for name, number in names.items() if number
    }


@pytest.mark.parametrize("kinds", [ReasonKind, HistoryKind])
def test_the_documents_explain_each_kind(kinds):
    page = (ROOT / "docs/explain.md").read_text("utf-8")

    assert {kind.name.lower() for kind in kinds} - set(re.findall(r"`(\w+)`", page)) == set()
