"""A cell that is away is a problem of its own, and is told by one board only."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from duly_core.cells.directory import Cell, Directory
from duly_core.problems.kinds import Kind, Severity
from duly_core.problems.problem import fingerprint_of, found
from duly_frontend.cells.away import cells_away, namespaces_of
from duly_frontend.cells.merging import merge
from duly_frontend.problems.board import ProblemBoard
from duly_frontend.problems.texts import say
from duly_frontend.problems.wire import problem_to_wire
from duly_wire.v1 import problems_pb2

NOW = datetime(2026, 11, 27, tzinfo=UTC)
CELLS = {name: Cell(name, f"postgresql://{name}", "public") for name in "abc"}
DIRECTORY = Directory(UUID(int=1), 1, CELLS, {"mail": "b", "sort": "b"}, "a")


def test_a_cell_that_is_away_names_its_namespaces_and_one_without_any_is_a_warning():
    said = {"b": "cell b does not answer: refused", "a": ""}
    first, second = cells_away(DIRECTORY, said, ["c"], NOW)
    assert (first.subject, first.severity, first.values["namespaces"]) == (
        "b",
        Severity.CRITICAL,
        "mail, sort",
    )
    assert first.values["error"] == "cell b does not answer: refused"
    assert (second.subject, second.severity) == ("c", Severity.WARNING)
    assert cells_away(DIRECTORY, {}, [], NOW) == []


def test_a_cell_that_stays_fenced_says_how_its_move_is_ended_and_one_that_does_not_answer_comes_first():
    silent, fenced = cells_away(DIRECTORY, {"a": "cell a does not answer"}, [], NOW, ["a", "b"])

    said = say(fenced, NOW)

    assert silent.values["error"] == "cell a does not answer"
    assert "cell b is fenced" in said.text
    assert "tasks of mail, sort stand" in said.text
    assert [command for command, _ in said.commands][:2] == ["duly cells move b", "duly cells move b --abort"]
    assert next(command for command, _ in say(silent, NOW).commands) == "duly cells check"


@pytest.mark.parametrize(
    ("cell", "words"),
    [("a", "default and all namespaces that are not listed"), ("b", "mail, sort"), ("c", "")],
)
def test_the_default_cell_has_all_that_is_not_listed(cell, words):
    assert namespaces_of(DIRECTORY, cell) == words
    many = replace(DIRECTORY, namespaces={f"n{number:02}": "c" for number in range(13)})
    assert namespaces_of(many, "c").endswith("n09 and 3 more")


async def test_a_board_has_what_is_wrong_beyond_its_store(store):
    away = cells_away(DIRECTORY, {"b": "cell b does not answer"}, [], NOW)
    board = ProblemBoard(store, others=lambda _now: away)
    assert away[0] in (await board.find()).problems


def _board(*problems: Any) -> problems_pb2.ListProblemsResponse:
    return problems_pb2.ListProblemsResponse(
        status=problems_pb2.PROBLEM_STATUS_PROBLEMS,
        problems=[problem_to_wire(each, NOW) for each in problems],
        problem_count=len(problems),
    )


def _merged(**answers: Any) -> problems_pb2.ListProblemsResponse:
    return merge("/duly.v1.ProblemService/ListProblems", problems_pb2.ListProblemsRequest(), answers)


def test_a_store_that_does_not_answer_beside_others_that_do_is_a_cell_away_once():
    store_away = found(Kind.STORE_AWAY, Severity.CRITICAL, NOW, error="no answer")
    (told,) = cells_away(DIRECTORY, {"b": "cell b does not answer"}, [], NOW)
    board = _merged(a=_board(told), b=_board(store_away))
    (problem,) = board.problems
    assert problem.kind == problems_pb2.PROBLEM_KIND_CELL_AWAY
    assert (problem.subject, problem.fingerprint) == ("b", fingerprint_of(Kind.CELL_AWAY, "b"))
    assert board.problem_count == 1


def test_all_stores_away_is_postgres_away():
    store_away = found(Kind.STORE_AWAY, Severity.CRITICAL, NOW, error="no answer")
    board = _merged(a=_board(store_away), b=_board(store_away))
    assert {each.kind for each in board.problems} == {problems_pb2.PROBLEM_KIND_STORE_AWAY}
