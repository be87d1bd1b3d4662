"""The lambda of docs/lambdas.md ends as the page says; its client is tried in tests/system/test_command_line.py."""

import asyncio
import importlib
import runpy
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.testing import run
from tests.fixtures.documents import python_blocks


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the page's files are."""
    shop, *_, tests, _ = python_blocks("lambdas.md")
    (tmp_path / "shop.py").write_text(shop, encoding="utf-8")
    (tmp_path / "test_shop.py").write_text(tests, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("shop", None)


def test_its_own_tests_pass(folder: Path) -> None:
    defined = runpy.run_path(str(folder / "test_shop.py"))

    tests = [value for name, value in defined.items() if name.startswith("test_")]

    assert len(tests) == 2
    for test in tests:
        test()


@pytest.mark.usefixtures("folder")
def test_its_lambda_ends_in_the_ways_it_names() -> None:
    app = importlib.import_module("shop").app

    nothing = run(app, "order.price", {"items": []})
    uncounted = run(app, "order.price", {"items": ["pen"], "stock_counted": False})
    priced = run(app, "order.price", {"items": ["pen", "book"]})
    cancelled = run(app, "order.price", {"items": ["pen"]}, cancelled=True)

    assert (nothing.outcome, nothing.failure_message) == (duly.Outcome.FATAL_FAILURE, "an order of nothing")
    assert (uncounted.outcome, uncounted.retry_after) == (duly.Outcome.SNOOZED, timedelta(minutes=10))
    assert priced.progress == ((0.5, "pen"), (1.0, "book"))
    assert cancelled.outcome is duly.Outcome.CANCELLED


async def test_first_callbacks_at_the_same_time_open_one_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    class Pool:
        def __init__(self, *_: object, **__: object) -> None:
            opened.append(self)

        async def open(self) -> None:
            await asyncio.get_running_loop().run_in_executor(None, int)

    monkeypatch.setattr("psycopg_pool.AsyncConnectionPool", Pool)
    _, example, *_ = python_blocks("lambdas.md")
    names: dict[str, Any] = {}
    exec(example, names)  # noqa: S102 (the page's own example)

    found = await asyncio.gather(*(names["pool"]() for _ in range(3)))

    assert found == opened * 3
    assert len(opened) == 1
