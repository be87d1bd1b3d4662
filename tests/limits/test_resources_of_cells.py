"""`duly resources` says in which cells a resource has its units."""

import asyncio
import json
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner

from duly_cli.__main__ import app
from duly_core.limits.store import namespace_of_resource


@pytest.mark.parametrize(
    ("name", "namespace"),
    [
        ("database", None),
        ("domain:rack", None),
        ("domain:a/b", None),
        ("shop/database", "shop"),
        ("a/b/database", "a/b"),
        ("lambda:price", ""),
        ("lambda:shop/price", "shop"),
        ("namespace:shop", "shop"),
        ("namespace:default", ""),
        ("schedule:shop/price", "shop"),
        ("schedule-namespace:a/b", "a/b"),
        ("schedule-namespace:default", ""),
    ],
)
def test_a_resource_is_of_the_tasks_of_one_namespace_or_of_all(name: str, namespace: str | None) -> None:
    assert namespace_of_resource(name) == namespace


async def test_commands_say_which_limits_hold_in_each_cell(
    channel_of_cells: grpc.aio.Channel, tmp_path: Path
) -> None:
    del channel_of_cells  # its Frontend serves

    async def run(*arguments: str) -> list[str]:
        settings = {"DULY_ADDRESS": f"unix:{tmp_path}/frontend", "COLUMNS": "200"}
        done = await asyncio.to_thread(CliRunner().invoke, app, ["resources", *arguments], env=settings)
        return [line for line in done.output.splitlines() if not line.startswith("20")]  # the Frontend's log

    of_all = await run("set", "database", "20")
    of_one = await run("set", "lambda:b/other", "5")
    listed = await run("list")
    found = [json.loads(line) for line in await run("list", "--json")]

    assert of_all == ["database: 20 units (in each of 2 cells)"]
    assert of_one == ["lambda:b/other: 5 units"]
    assert [line.split()[:5] for line in listed] == [
        ["RESOURCE", "CAPACITY", "RATE", "CELL", "USED"],
        ["database", "20", "-", "each", "of"],
        ["lambda:b/other", "5", "-", "b", "0"],
    ]
    assert [each["cells"] for each in found] == [["a", "b"], ["b"]]
