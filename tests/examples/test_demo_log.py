"""The demo's execution log: what callback processes write is read back, also when they are killed."""

import os
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

import duly
from fileindex.demo.application import LOG_FILE, logged
from fileindex.demo.checker import Execution, read_log
from tests.fixtures.programs import Programs

# One execution that prints a line when it has begun, and never ends.
ENDLESS = """
import signal, sys
from pathlib import Path
from tests.examples.test_demo_log import context, logged

with logged(Path(sys.argv[1]), context("t1")):
    print("has begun", flush=True)
    while True:
        signal.pause()
"""


def context(task_id: str, fence: int = 1) -> duly.TaskContext:
    now = datetime.now(UTC)
    return duly.TaskContext(
        task_id=task_id,
        lambda_name="fileindex.index",
        priority=duly.Priority.NORMAL,
        attempt=fence,
        fence=fence,
        due_at=now,
        deadline=now,
    )


def executions(folder: Path) -> list[Execution]:
    return read_log((folder / LOG_FILE).read_text().splitlines())


def test_executions_are_read_back_with_how_they_ended(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), logged(tmp_path, context("t1")):
        raise ValueError("no")
    with logged(tmp_path, context("t1", fence=2)):
        pass

    first, second = executions(tmp_path)
    assert (first.fence, first.succeeded, first.alone, first.executor) == (1, False, True, os.getppid())
    assert (second.fence, second.succeeded, second.alone) == (2, True, True)
    assert first.started_ns <= (first.ended_ns or 0) <= second.started_ns


def test_two_executions_of_a_task_at_once_are_seen_by_the_second(tmp_path: Path) -> None:
    with (
        logged(tmp_path, context("t1")),
        logged(tmp_path, context("t1", fence=2)),
        logged(tmp_path, context("t2")),
    ):
        pass

    assert [execution.alone for execution in executions(tmp_path)] == [True, False, True]


def test_a_killed_process_leaves_its_start_and_no_lock(tmp_path: Path, programs: Programs) -> None:
    program = programs.start(ENDLESS, tmp_path)
    program.wait_for_line("has begun")
    with logged(tmp_path, context("t1", fence=2)):
        pass

    program.send(signal.SIGKILL)
    program.wait()
    with logged(tmp_path, context("t1", fence=3)):
        pass

    cut_off, too_early, after = executions(tmp_path)
    assert (cut_off.executor, cut_off.ended_ns) == (os.getpid(), None)
    assert (too_early.alone, after.alone) == (False, True)
