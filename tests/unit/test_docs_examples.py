"""The examples of the quickstart and of the page for clients are Python that fits the SDK."""

import ast
import runpy
from datetime import UTC, datetime
from pathlib import Path

import pytest

import duly
from duly.testing import run
from tests.fixtures.documents import python_blocks


def test_the_application_of_the_quickstart_runs(tmp_path: Path) -> None:
    application, _ = python_blocks("quickstart.md")
    (tmp_path / "mail.py").write_text(application, encoding="utf-8")

    app = runpy.run_path(str(tmp_path / "mail.py"))["app"]

    assert run(app, "mail.send", {"to": "ada@example.org"}).result == "sent to ada@example.org"


def test_the_application_of_the_page_on_time_tables_declares_what_it_says(tmp_path: Path) -> None:
    application, _ = python_blocks("time-tables.md")
    (tmp_path / "report.py").write_text(application, encoding="utf-8")

    app = runpy.run_path(str(tmp_path / "report.py"))["app"]

    (declared,) = app.lambdas()
    assert [table.name for table in declared.time_tables] == ["report.nightly", "report.often"]
    tick = datetime(2026, 11, 22, tzinfo=UTC)
    assert run(app, "report.build", "sales", tick_at=tick).result == f"sales until {tick}"


@pytest.mark.parametrize("page", ["quickstart.md", "clients.md", "lambdas.md", "time-tables.md"])
def test_every_method_of_an_example_exists(page: str) -> None:
    used = {
        node.func.attr
        for block in python_blocks(page)
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "client"
    }

    assert used
    assert {name for name in used if not hasattr(duly.Client, name)} == set()
