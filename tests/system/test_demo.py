"""`duly demo` as a user runs it: a process of its own, on a small folder."""

import os
import random
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.fixtures.programs import Programs, RunningProgram

FILES = 120

# Its TMPDIR is its own, so that what it leaves behind, if it does, is found.
DEMO = """
import os, sys
os.environ["TMPDIR"] = sys.argv.pop(1)
from duly_cli.__main__ import main
main()
"""
# The facts that results are compared with are wrong for one file.
WRONG = """
import fileindex.demo.files as files
read = files.facts_of
files.facts_of = lambda file: read(file) | ({"lines": -1} if file.name == "file 7.txt" else {})
"""

# long: each test runs a demo
pytestmark = [pytest.mark.system, pytest.mark.sqs, pytest.mark.long, pytest.mark.timeout(600)]
LONG = timedelta(seconds=500)
"""Two stacks start and end, one after the other, on a machine that is busy."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of many sizes, with names that are not easy."""
    folder = tmp_path / "input" / "Ünder [a] folder"
    folder.mkdir(parents=True)
    source = random.Random(7)  # noqa: S311 (content, no secret)
    for number in range(FILES - 1):
        (folder / f"file {number}.txt").write_bytes(source.randbytes(source.randrange(20_000)))
    (folder / "large").write_bytes(source.randbytes(3_000_000))
    return tmp_path / "input"


@pytest.fixture
def temporary(tmp_path: Path) -> Iterator[Path]:
    """The demo's TMPDIR; no process and no folder of a run may be left there."""
    made = tmp_path / "t"
    made.mkdir()
    yield made
    assert processes_of(made) == []
    assert list(made.iterdir()) == []


def processes_of(temporary: Path) -> list[str]:
    """The commands of the processes that a demo with this TMPDIR started, and of all that those started."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and os.fsencode(temporary) in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it has ended, or it is another user's
            continue
    return found


def assert_passed(demo: RunningProgram) -> None:
    assert demo.process.wait(timeout=LONG.total_seconds()) == 0, demo.output
    assert "Every check holds" in demo.output
    assert '"Your first task"' in demo.output
    assert len(demo.lines_with("kill -9 of Executor")) == 2
    for claim, count in {
        "ended in SUCCESS": FILES,
        "equal to direct hashing": FILES,
        "lost": 0,
        "run twice at a time": 0,
    }.items():
        (line,) = demo.lines_with(claim)
        assert line.split()[-4:] == [str(count), "ok", str(count), "ok"]


def test_of_two_demos_at_once_one_holds_every_check_and_one_with_a_wrong_result_fails_and_is_kept(
    folder: Path, tmp_path: Path, temporary: Path, programs: Programs
) -> None:
    right = programs.start(DEMO, temporary, "demo", folder)
    wrong = programs.start(WRONG + DEMO, tmp_path, "demo", folder)

    assert_passed(right)
    assert wrong.process.wait(timeout=LONG.total_seconds()) == 1
    assert "NOT every check holds" in wrong.output
    for claim, end in {
        "ended in SUCCESS": [str(FILES), "ok"],
        "equal to direct hashing": [str(FILES - 1), "FAILED"],
        "lost": ["0", "ok"],
        "run twice at a time": ["0", "ok"],
    }.items():
        (line, *_) = wrong.lines_with(claim)
        assert line.split()[-4:] == end * 2
    assert "file 7.txt" in wrong.output
    (kept,) = tmp_path.glob("duly-demo-*")
    assert str(kept) in wrong.output
    assert (kept / "store" / "executions" / "executions.jsonl").is_file()
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "words"), [("missing", "No such file or directory"), ("empty", "name a folder with 10 or more")]
)
def test_a_folder_that_cannot_be_indexed_is_refused_before_anything_starts(
    tmp_path: Path, temporary: Path, programs: Programs, name: str, words: str
) -> None:
    (tmp_path / "empty").mkdir()

    demo = programs.start(DEMO, temporary, "demo", tmp_path / name)

    assert demo.wait() == 2
    assert words in demo.output


@pytest.mark.parametrize(
    ("moment", "processes", "stop_signal"),
    [
        ("SQS (moto), five services ...", 0, signal.SIGINT),
        ("kill -9 of Executor", 8, signal.SIGTERM),
        # what ignores SIGHUP, as under nohup, has its children ignore it, too
        (
            "no queue, one server ...",
            0,
            signal.SIGTERM if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else signal.SIGHUP,
        ),
    ],
)
def test_an_interrupted_demo_leaves_nothing(
    folder: Path, temporary: Path, programs: Programs, moment: str, processes: int, stop_signal: int
) -> None:
    demo = programs.start(DEMO, temporary, "demo", folder)
    demo.wait_for_line(moment, within=LONG)
    assert len(processes_of(temporary)) >= processes

    demo.send(stop_signal)

    assert demo.process.wait(timeout=120) == 130
    assert "everything is stopped" in demo.output
