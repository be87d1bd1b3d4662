"""What a callback prints goes the whole way: from its process through `duly up` to a client that follows it, and to `duly logs`."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import duly
from tests.fixtures.forked_process import ROOT, clean_environment
from tests.fixtures.host import APP
from tests.fixtures.whole_stack import WholeStack

# long: a stack of its own
pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(240)]


class Talking(WholeStack):
    program = ("duly_cli", "up", APP, "--free-ports")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    started = Talking(tmp_path, "--data", str(tmp_path / "data"))
    try:
        yield started.frontend()
    finally:
        started.stop()


def test_output_is_followed_to_the_end_of_its_task(address: str) -> None:
    with duly.Client(address) as client:
        task = client.schedule("test.talk", {"lines": 2, "of": 1})
        pieces = list(client.output(task, follow=True))
        again = list(client.output(task))
    command = [sys.executable, "-m", "duly_cli", "logs", task.task_id, "--stream", "log"]
    logged = subprocess.run(
        command,
        cwd=ROOT,
        env=clean_environment() | {"DULY_ADDRESS": address},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout

    own = [b"%s says %d\n" % (task.task_id.encode(), line) for line in range(2)]
    out = b"".join(piece.data for piece in pieces if piece.stream is duly.OutputStream.STDOUT)
    assert out == b"".join(own) + b"the end"
    assert b"".join(piece.data for piece in again) == b"".join(piece.data for piece in pieces)
    assert logged == "".join(f"WARNING talk: {task.task_id} logs {line}\n" for line in range(2))
