"""The demo's execution log: what callback processes write is read back, also when they are killed."""

import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import pytest

import duly
from duly_local.demo.executions import ExecutionLog
from duly_local.demo.journal import Journal
from tests.fixtures.programs import Programs
from tests.fixtures.waiting import wait_until

# One execution that prints a line when it has begun, and never ends.
ENDLESS = """
import signal, sys
from datetime import UTC, datetime
from pathlib import Path
import duly
from duly_local.demo.journal import Journal

now = datetime.now(UTC)
ctx = duly.TaskContext(task_id=sys.argv[2], lambda_name="fileindex.index", priority=duly.Priority.LOW,
                       attempt=1, fence=1, due_at=now, deadline=now)
with Journal(Path(sys.argv[1])).execution(ctx):
    print("has begun", flush=True)
    while True:
        signal.pause()
"""


def context(task_id: UUID, fence: int = 1) -> duly.TaskContext:
    now = datetime.now(UTC)
    return duly.TaskContext(
        task_id=str(task_id),
        lambda_name="fileindex.index",
        priority=duly.Priority.NORMAL,
        attempt=fence,
        fence=fence,
        due_at=now,
        deadline=now,
    )


@pytest.fixture
def log(tmp_path: Path) -> ExecutionLog:
    return ExecutionLog(tmp_path)


def test_executions_are_read_back_with_how_they_ended(tmp_path: Path, log: ExecutionLog) -> None:
    journal, task_id = Journal(tmp_path), uuid4()
    with pytest.raises(ValueError, match="no"), journal.execution(context(task_id)):
        raise ValueError("no")
    with journal.execution(context(task_id, fence=2)):
        pass

    log.catch_up()

    first, second = log.executions()
    assert (first.fence, first.succeeded, first.alone, first.pid) == (1, False, True, os.getpid())
    assert (second.fence, second.succeeded, second.alone) == (2, True, True)
    assert first.started_boot_ns <= (first.ended_boot_ns or 0) <= second.started_boot_ns
    assert log.succeeded == {str(task_id)}
    assert log.running() == []


def test_an_execution_is_running_between_its_records(tmp_path: Path, log: ExecutionLog) -> None:
    with Journal(tmp_path).execution(context(uuid4())):
        log.catch_up()
        running = log.running()
    log.catch_up()

    assert len(running) == 1
    assert log.running() == []


def test_two_executions_of_a_task_at_once_are_seen_by_the_second(tmp_path: Path, log: ExecutionLog) -> None:
    journal, task_id = Journal(tmp_path), uuid4()
    with (
        journal.execution(context(task_id)),
        journal.execution(context(task_id, fence=2)),
        journal.execution(context(uuid4())),
    ):
        log.catch_up()

    assert [execution.alone for execution in log.executions()] == [True, False, True]


def test_a_killed_process_leaves_its_start_and_no_lock(
    tmp_path: Path, log: ExecutionLog, programs: Programs
) -> None:
    task_id = uuid4()
    program = programs.start(ENDLESS, tmp_path, task_id)
    program.wait_for_line("has begun")
    journal = Journal(tmp_path)
    with journal.execution(context(task_id, fence=2)):
        pass

    program.send(signal.SIGKILL)
    program.wait()
    with journal.execution(context(task_id, fence=3)):
        pass

    log.catch_up()
    cut_off, too_early, after = log.executions()
    assert (cut_off.pid, cut_off.ended_boot_ns) == (program.process.pid, None)
    assert (too_early.alone, after.alone) == (False, True)


def test_a_line_without_an_end_does_not_count_until_it_has_one(tmp_path: Path, log: ExecutionLog) -> None:
    with Journal(tmp_path).execution(context(uuid4())):
        pass
    (file,) = tmp_path.glob("*.jsonl")
    whole = file.read_bytes()

    file.write_bytes(whole[:-5])
    log.catch_up()
    cut_short = log.running()
    file.write_bytes(whole)
    log.catch_up()

    assert len(cut_short) == 1
    assert log.running() == []
    assert log.unreadable == 0


def test_lines_that_are_no_record_are_counted(tmp_path: Path, log: ExecutionLog) -> None:
    (tmp_path / "1-1.jsonl").write_text('garbage\n{"event": "end", "number": 7}\n')

    log.catch_up()

    assert log.unreadable == 2


def test_the_log_can_be_read_while_others_write(tmp_path: Path, programs: Programs) -> None:
    log = ExecutionLog(tmp_path)
    programs.start(ENDLESS, tmp_path, uuid4())
    programs.start(ENDLESS, tmp_path, uuid4())

    def both_run() -> bool:
        log.catch_up()
        return len(log.running()) == 2

    wait_until(both_run)
