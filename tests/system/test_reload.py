"""`duly up --reload`, and what callbacks print, as the author of a lambda sees them."""

import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from duly_cli.__main__ import app
from tests.fixtures.forked_process import ROOT
from tests.fixtures.waiting import wait_until
from tests.fixtures.whole_stack import WholeStack

# long: starts a whole stack, and its worker twice
pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(240)]

VERSION = """
import duly

app = duly.App()


@app.callback("shop.version")
def version() -> str:
    print("this is {0}")
    return "{0}"
"""


class ReloadingStack(WholeStack):
    program = ("duly_cli", "up", "reloaded_shop:app", "--free-ports", "--reload")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "reloaded_shop.py"
    file.write_text(VERSION.format("one"))
    return file


@pytest.fixture
def stack(source: Path, tmp_path: Path) -> Iterator[WholeStack]:
    path = os.pathsep.join(map(str, (source.parent, ROOT)))
    started = ReloadingStack(tmp_path, "--data", str(tmp_path / "data"), PYTHONPATH=path)
    try:
        started.frontend()
        yield started
    finally:
        started.stop()


def says(stack: WholeStack, text: str) -> Callable[[], bool]:
    return lambda: text in stack.output


def run_once(stack: WholeStack) -> dict[str, object]:
    settings = {"DULY_ADDRESS": stack.frontend(), "COLUMNS": "200"}
    runner = CliRunner()
    scheduled = runner.invoke(app, ["schedule", "shop.version"], env=settings).stdout.strip()
    task: dict[str, object] = json.loads(
        runner.invoke(app, ["wait", scheduled, "--json"], env=settings).stdout
    )
    return task


def test_new_code_runs_after_it_was_saved_and_what_cannot_be_imported_leaves_the_old(
    stack: WholeStack, source: Path
) -> None:
    first = run_once(stack)
    wait_until(lambda: re.search(rf"Z \[shop\.version {first['task_id']}\] this is one", stack.output))

    source.write_text(VERSION.format("the second"))
    wait_until(says(stack, "reloaded_shop.py changed: restarting the worker"), timedelta(seconds=30))
    wait_until(lambda: run_once(stack)["result"] == "the second", timedelta(seconds=60))
    source.write_text("def (")
    wait_until(says(stack, "the old code keeps running"), timedelta(seconds=30))

    assert first["result"] == "one"
    assert run_once(stack)["result"] == "the second"
    assert "reloaded_shop.py:1: def (" in stack.output
