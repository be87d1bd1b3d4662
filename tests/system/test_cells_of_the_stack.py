"""`duly up --cells`: one command makes cells, and later starts serve them, at whatever port their Postgres has."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

import duly
from tests.fixtures.forked_process import clean_environment
from tests.fixtures.waiting import wait_until
from tests.fixtures.whole_stack import WholeStack

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,
    pytest.mark.timeout(300),
]  # long: each test starts several stacks

APPLICATION = """
import duly
app = duly.App()
@app.callback("mail/send")
def send(name: str) -> str:
    return f"sent to {name}"
@app.callback("shop/price")
def price(item: str) -> int:
    return len(item)
"""
LONG = timedelta(seconds=60)


class StackOfCells(WholeStack):
    """One `duly up` on a folder of its own, with applications named by the caller."""

    program = ("duly_cli", "up", "--free-ports", "--no-console")


Start = Callable[..., StackOfCells]


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts stacks on one data directory, one after the other."""
    folder = tmp_path_factory.mktemp("cells")
    (folder / "two.py").write_text(APPLICATION)
    started: list[StackOfCells] = []

    def start_one(*arguments: str) -> StackOfCells:
        up = tmp_path_factory.mktemp("up")
        started.append(StackOfCells(up, "--data", str(folder / "data"), *arguments, cwd=folder))
        return started[-1]

    yield start_one
    for stack in started:
        if stack.process.poll() is None:
            stack.stop()


def told_settings(stack: StackOfCells) -> dict[str, str]:
    """What the stack tells people to export for `duly cells`."""
    stack.frontend()
    found = re.search(r"in another shell: export (.+)", stack.output)
    assert found is not None, stack.output
    return dict(each.split("=", 1) for each in shlex.split(found[1]))


def cells(settings: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "duly_cli", "cells", *arguments],
        env=clean_environment() | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_cells_are_made_and_found_again_at_another_port(start: Start) -> None:
    first = start("--cells", "2")
    settings = told_settings(first)
    cells(settings, "assign", "shop", "b")
    port = int(settings["DULY_STORE_DSN"].rpartition("port=")[2])
    assert first.stop() == 0

    second = start("two:app", "--cells", "3")
    with duly.Client(second.frontend()) as client:
        mail, shop = client.schedule("mail/send", "Ada"), client.schedule("shop/price", "tea")
        assert [client.wait(each, LONG).result for each in (mail, shop)] == ["sent to Ada", 3]
    assert told_settings(second) == settings  # the port is kept
    assert second.stop() == 0

    with socket.create_server(("127.0.0.1", port)):
        third = start("two:app")
        with duly.Client(third.frontend()) as client:
            assert client.get(shop).result == 3
            assert client.wait(client.schedule("shop/price", "milk"), LONG).result == 4
    settings = told_settings(third)
    listed = [json.loads(line) for line in cells(settings, "list", "--json").splitlines()]
    assert [(each["name"], each["state"], each["namespaces"]) for each in listed] == [
        ("a", "active", []),
        ("b", "active", ["shop"]),
        ("c", "active", []),
    ]
    assert cells(settings, "check") == "all cells answer, and have the same directory\n"


def test_a_stack_that_was_killed_while_it_made_cells_makes_the_rest(start: Start) -> None:
    first = start("--cells", "3")
    wait_until(lambda: "the store is cell a" in first.output, LONG)
    first.process.kill()
    first.process.wait()

    second = start()
    second.frontend()

    assert "duly     | cells a, b, c; " in second.output
    assert cells(told_settings(second), "check") == "all cells answer, and have the same directory\n"


def test_fewer_cells_than_there_are_end_the_start_and_are_forgotten(start: Start) -> None:
    first = start("--cells", "2")
    first.frontend()
    first.stop()

    refused = start("--cells", "1")
    assert refused.process.wait(LONG.total_seconds()) == os.EX_CONFIG
    assert "the last start had 2 cells, and --cells 1 would be fewer" in refused.output
    assert "postgres |" not in refused.output  # it was not started

    start().frontend()
