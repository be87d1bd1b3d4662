"""The guards that chaos runs are done without: each is still where it is said to be, and the documentation has each."""

import re
import sys
from pathlib import Path

import pytest

import tests.chaos.checker
import tests.chaos.roles
from duly_core.postgres.statements import READS, TRANSITIONS
from tests.chaos.mutation_search import LONGEST, Search, describe, rules_of
from tests.chaos.mutations import MUTATIONS
from tests.chaos.single import EXIT_BROKEN, EXIT_HELD
from tests.fixtures.guards import InCode, InFunction, InStatement
from tests.models import test_mutations, test_session_mutations

DOCUMENT = Path(__file__).parents[2] / "docs" / "chaos.md"
ROW = re.compile(r"^\| `([\w-]+)` \| ([^|]*) \| ([^|]*) \| (\d+) \| ([\d,]+) s \| ([^|]*) \|$", re.MULTILINE)

EDITS = [(name, edit) for name, mutation in MUTATIONS.items() for edit in mutation.edits]


def rows() -> list[tuple[str, ...]]:
    return [match.groups() for match in ROW.finditer(DOCUMENT.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("name", "edit"), EDITS)
def test_each_guard_is_where_it_is_said_to_be(name: str, edit: object) -> None:
    if isinstance(edit, InStatement):
        statement = edit.home()[edit.name]
        assert edit.mutated(statement) != statement
    elif isinstance(edit, InCode):
        owner = sys.modules[edit.module]
        for part in edit.name.split("."):
            owner = getattr(owner, part)
        assert owner is not edit.instead
    else:
        assert isinstance(edit, InFunction)  # tests/tasks/test_guards.py


def test_a_planted_statement_guard_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    edit, _ = MUTATIONS["finish-without-token"].edits
    assert isinstance(edit, InStatement)
    monkeypatch.setitem(TRANSITIONS, edit.name, TRANSITIONS[edit.name])

    edit.plant()

    assert edit.guard not in TRANSITIONS[edit.name].sql
    with pytest.raises(AssertionError, match="finish has changed: say anew what its guard is"):
        edit.plant()


def test_a_guard_of_python_is_gone_from_every_module_that_imported_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (edit,) = MUTATIONS["claim-any-lambda"].edits
    assert isinstance(edit, InCode)
    names = ("duly_hsc.access", "duly_hsc.servicer")
    for name in names:
        monkeypatch.setattr(sys.modules[name], "require_run", sys.modules[name].require_run)

    edit.plant()

    assert all(sys.modules[name].require_run is edit.instead for name in names)


def test_the_table_of_the_documentation_has_each_mutation_once() -> None:
    assert [row[0] for row in rows()] == list(MUTATIONS)


def test_the_table_names_rules_that_exist_and_times_within_the_limit() -> None:
    known = rules_of_the_checker() | {
        "C3.stale",
        "C16.role",
    }  # the replayer and the intruders see these themselves

    for name, _, found_by, runs, seconds, _ in rows():
        assert set(re.findall(r"C\d+\.[\w-]+", found_by)) <= known, name
        assert found_by.strip(), name
        assert int(runs) > 0
        assert int(seconds.replace(",", "")) <= LONGEST.total_seconds(), name


def test_the_table_says_which_guards_are_taken_out_for_the_models_as_well() -> None:
    sessions = {(InFunction(*edit),) for edit in test_session_mutations.MUTATIONS.values()}
    modelled = {*test_mutations.MUTATIONS.values(), *sessions}

    said = {row[0]: row[5].strip() for row in rows()}

    for name, mutation in MUTATIONS.items():
        assert said[name] == ("yes" if mutation.edits in modelled else "no"), name


def test_the_table_says_what_is_wrong_as_the_list_does() -> None:
    assert {row[0]: row[1] for row in rows()} == {name: each.what for name, each in MUTATIONS.items()}


def test_the_rules_that_found_a_mutation_are_read_from_reports() -> None:
    broken = {
        "exit": EXIT_BROKEN,
        "violations": ["C3.replayed task x: no", "C8.row task y: no"],
        "problems": ["C3.replayed z", "a client failed: no"],
    }
    held = {"exit": EXIT_HELD, "violations": [], "problems": []}

    rules = rules_of([held, broken])

    assert rules == ("C3.replayed", "C8.row", "a client's answer")
    assert describe(Search("x", rules, 2, 31.2)) == (
        "x: found by C3.replayed, C8.row, a client's answer in 2 runs, 31 s"
    )
    assert describe(Search("x", (), 20, 600.4)) == "x: NOT FOUND in 20 runs, 600 s"


def rules_of_the_checker() -> set[str]:
    found = set()
    number = ""
    for line in (tests.chaos.checker.__doc__ or "").splitlines():
        match = re.match(r"(C\d+)? +(\S.*?)(?:  |$)", line)
        if match:
            number = match[1] or number
            found |= {f"{number}.{name.strip()}" for name in match[2].split(",")}
    return found


def test_reads_and_transitions_have_no_name_in_common() -> None:
    """Else a guard could be looked for in the wrong statement."""
    assert not READS.keys() & TRANSITIONS.keys()
