"""The programs under `examples/` run on a whole Duly, as their first lines say."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fixtures.whole_stack import WholeStack

# long: what the examples use has tests of its own
pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(240)]


@contextmanager
def stack_of(application: str, folder: Path) -> Iterator[WholeStack]:
    """Run `duly up` with an application of `examples/`."""

    class ExampleStack(WholeStack):
        program = ("duly_cli", "up", application, "--free-ports")

    started = ExampleStack(folder, "--data", str(folder / "data"))
    try:
        yield started
    finally:
        started.stop()


def run_example(name: str, stack: WholeStack) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"examples.{name}"],
        env=os.environ | {"DULY_ADDRESS": stack.frontend()},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_changes_of_each_vlan_run_in_their_order(tmp_path: Path) -> None:
    with stack_of("examples.vlans:app", tmp_path) as stack:
        ran = run_example("vlans", stack)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert "80 changes of 20 VLANs, 0 VLANs out of order" in ran.stdout


def test_no_more_connections_are_open_than_the_database_has(tmp_path: Path) -> None:
    with stack_of("examples.database_pool:app", tmp_path) as stack:
        ran = run_example("database_pool", stack)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert "of 20 connections at a time, 0 in use after" in ran.stdout
