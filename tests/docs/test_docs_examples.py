"""The examples of the quickstart and of the page for clients are Python that fits the SDK."""

import ast
import base64
import json
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


def test_the_application_of_the_page_on_encryption_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (module,) = python_blocks("encryption.md")
    (tmp_path / "payment.py").write_text(module, encoding="utf-8")
    (tmp_path / "keys.json").write_text(json.dumps({"2026-11": base64.b64encode(bytes(32)).decode()}))
    monkeypatch.setenv("PAYMENT_KEYS", str(tmp_path / "keys.json"))

    app = runpy.run_path(str(tmp_path / "payment.py"))["app"]

    assert app.codec.current == "2026-11"
    assert run(app, "payment.book", {"card": "4111"}).result == {"booked": "4111"}


@pytest.mark.parametrize(
    "page", ["quickstart.md", "clients.md", "lambdas.md", "time-tables.md", "encryption.md"]
)
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
