"""`duly demo` as a user runs it: a process of its own, on a small directory, without a queue and over SQS."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from zlib import crc32

import pytest

from tests.fixtures.programs import Programs, RunningProgram, is_alive

FILES = 300

# So that what it leaves behind, if it does, is found.
DEMO = """
import os, sys
os.environ["TMPDIR"] = sys.argv.pop(1)
from duly_cli.__main__ import main
main()
"""

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Files of many sizes, with names that are not easy."""
    folder = tmp_path / "input" / "Ünder [a] folder"
    folder.mkdir(parents=True)
    source = random.Random(7)  # noqa: S311 (content, no secret)
    for number in range(FILES - 1):
        (folder / f"file {number}.txt").write_bytes(source.randbytes(source.randrange(20_000)))
    (folder / "large").write_bytes(source.randbytes(3_000_000))
    (folder / "link").symlink_to("large")
    return tmp_path / "input"


@pytest.fixture
def temporary(tmp_path: Path) -> Iterator[Path]:
    """The demo's TMPDIR; nothing of a run may be left there."""
    folder = tmp_path / "t"
    folder.mkdir()
    yield folder
    assert list(folder.glob("duly-demo-*")) == []


def demo(directory: Path, temporary: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "duly_cli", "demo", str(directory), *arguments],
        env=os.environ | {"TMPDIR": str(temporary), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def assert_gone(output: str) -> None:
    pids = [int(line.split(" pid ")[1].split()[0]) for line in output.splitlines() if " pid " in line]

    assert len(pids) >= 8
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize("queue", ["store", pytest.param("sqs", marks=pytest.mark.sqs)])
def test_everything_the_demo_claims_holds(
    directory: Path, temporary: Path, tmp_path: Path, queue: str
) -> None:
    figures_file = tmp_path / "figures.json"

    done = demo(directory, temporary, "--queue", queue, "--json", str(figures_file))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "All of it held" in done.stdout
    assert_gone(done.stdout)
    figures = json.loads(figures_file.read_text())
    assert figures["passed"]
    assert figures["queue"] == queue
    assert (figures["files"], figures["left_out"]) == (FILES, {"symbolic links": 1})
    assert {claim["name"]: claim["holds"] for claim in figures["claims"]} == dict.fromkeys(
        ["succeeded", "results", "lost", "concurrent", "retried", "log", "killed"], True
    )
    paths = [f"Ünder [a] folder/file {number}.txt" for number in range(FILES - 1)]
    to_fail = sum(crc32(path.encode()) % 100 == 0 for path in paths)
    # One of them may have been cut off by the kill instead.
    assert to_fail > 1
    assert figures["executions"]["failed"] >= to_fail - 1
    assert figures["total"]["done"] == figures["executions"]["succeeded"] == FILES
    assert sum(row["tasks"] for row in figures["rows"]) == FILES
    assert figures["kill"]["successor"] not in (None, figures["kill"]["executor"])
    assert ("SQS (moto's server)" in {process["name"] for process in figures["processes"]}) == (
        queue == "sqs"
    )


def test_one_file_is_enough_and_the_kill_can_be_left_out(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "file").write_text("hello\n")

    done = demo(tmp_path / "one", temporary, "--no-kill")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 results equal hashing the file directly" in done.stdout
    assert "kill -9" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing"], "No such file or directory"),
        (["empty"], "holds no file to index"),
        ([".", "--json", "missing/figures.json"], "figures cannot be written"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    tmp_path: Path, temporary: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()

    done = demo(tmp_path / arguments[0], temporary, *arguments[1:])

    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


@pytest.mark.parametrize(
    ("moment", "stop_signal"),
    [
        ("Indexing every file", signal.SIGINT),
        ("Scheduled", signal.SIGTERM),
        ("tasks done", signal.SIGINT),
    ],
)
def test_an_interrupted_demo_leaves_nothing(
    directory: Path, temporary: Path, programs: Programs, moment: str, stop_signal: int
) -> None:
    running: RunningProgram = programs.start(DEMO, temporary, "demo", directory)
    running.wait_for_line(moment, within=timedelta(seconds=120))  # all of Duly starts before it

    running.send(stop_signal)

    assert running.wait() == 130
    assert "everything is stopped" in running.output
    pids = [int(line.split(" pid ")[1].split()[0]) for line in running.lines_with(" pid ")]
    assert not any(map(is_alive, pids))
