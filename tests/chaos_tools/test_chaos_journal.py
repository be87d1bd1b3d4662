"""The journal of a chaos run: what a process wrote is there whatever becomes of it, and the kernel's lock tells the truth."""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import pytest

import duly
from duly_core.process.clock import since_boot_ns
from tests.chaos.journal import Journal
from tests.chaos.journal_reader import read_journal
from tests.chaos.locks import holding
from tests.fixtures.waiting import wait_until

ROOT = Path(__file__).parents[2]


@dataclass
class Attempt:
    task_id: str
    attempt: int = 1
    fence: int = 1


def attempt(fence=1):
    return Attempt(str(uuid4()), fence=fence)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (duly.RetriableFailure("no"), "retriable"),
        (duly.FatalFailure("no"), "fatal"),
        (duly.Cancelled(), "cancelled"),
        (ZeroDivisionError(), "raised"),
        (KeyboardInterrupt(), "raised"),
    ],
)
def test_an_execution_that_raises_is_recorded_with_what_it_means(tmp_path, error, outcome):
    with pytest.raises(type(error)), Journal(tmp_path).execution(attempt()):
        raise error

    (execution,) = read_journal(tmp_path).executions
    assert execution.outcome == outcome


def test_an_execution_is_recorded_with_its_instants_process_and_lock(tmp_path):
    journal, asked, before = Journal(tmp_path), attempt(fence=7), since_boot_ns()

    with journal.execution(asked) as running:
        running.outcome = "snoozed"

    (execution,) = read_journal(tmp_path).executions
    assert (execution.task_id, execution.fence, execution.pid) == (asked.task_id, 7, os.getpid())
    assert (execution.process, execution.alone, execution.outcome) == (journal.process, True, "snoozed")
    assert before < execution.started_ns < execution.ended_ns < since_boot_ns()


def test_two_executions_of_a_task_at_once_are_not_both_alone(tmp_path):
    journal, asked = Journal(tmp_path), attempt()

    with journal.execution(asked), journal.execution(attempt()), Journal(tmp_path).execution(asked):
        pass
    with journal.execution(asked):
        pass

    of_task = [each.alone for each in read_journal(tmp_path).executions if each.task_id == asked.task_id]
    assert of_task == [True, False, True]


def test_threads_write_whole_lines(tmp_path):
    journal = Journal(tmp_path)

    def work():
        for _ in range(50):
            with journal.execution(attempt()):
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    read = read_journal(tmp_path)
    assert (len(read.executions), read.unreadable, read.torn) == (400, (), 0)
    assert all(each.outcome == "success" for each in read.executions)


def test_a_forked_process_cannot_write_into_its_parents_journal(tmp_path):
    journal = Journal(tmp_path)
    journal._pid += 1

    with pytest.raises(RuntimeError, match="journal of its own"), journal.execution(attempt()):
        pass


def write(folder, *lines, end="\n"):
    (folder / "7-1.jsonl").write_text("\n".join(lines) + end, encoding="utf-8")


def start(number=1, **changes):
    record = {"event": "start", "number": number, "task_id": "x", "attempt": 1, "fence": 1, "pid": 7}
    return json.dumps(record | {"alone": True, "boot_ns": 5} | changes)


END = json.dumps({"event": "end", "number": 1, "outcome": "success", "boot_ns": 6})


def test_a_torn_last_line_never_counts_and_is_no_violation(tmp_path):
    write(tmp_path, start(), END[:20], end="")

    read = read_journal(tmp_path)

    assert (len(read.executions), read.unreadable, read.torn) == (1, (), 1)
    assert read.executions[0].ended_ns is None


@pytest.mark.parametrize(
    "lines",
    [
        [start(), END[:20], END],
        ["", start(), END],
        [start(), "null", END],
        [start(), END, END],
        [start(), start(), END],
        [END.replace('"number": 1', '"number": 2'), start(), END],
        [start(), END.replace("success", "splendid"), END],
        [start(), END.replace("end", "middle"), END],
        [start(2).replace('"fence": 1, ', ""), start(), END],
    ],
)
def test_any_other_line_that_is_no_record_is_told_with_its_place(tmp_path, lines):
    write(tmp_path, *lines)

    read = read_journal(tmp_path)

    assert len(read.unreadable) == 1
    assert read.unreadable[0].startswith("7-1.jsonl:")
    assert [each.outcome for each in read.executions] == ["success"]


# ---- processes that die ----------------------------------------------------------------------------------

WRITER = """
import os, sys, threading
from pathlib import Path
from tests.chaos.journal import Journal

class Attempt:
    def __init__(self, task_id):
        self.task_id, self.attempt, self.fence = task_id, 1, 1

folder, task_id, how = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
journal = Journal(folder)
if how == "write on and on":
    def work():
        from uuid import uuid4
        while True:
            with journal.execution(Attempt(str(uuid4()))):
                pass
    for _ in range(4):
        threading.Thread(target=work).start()
else:
    with journal.execution(Attempt(task_id), inherited=how == "leave a grandchild that belongs to it"):
        if how != "alone" and os.fork() == 0:
            (folder / "grandchild").write_text(str(os.getpid()))
            signals = threading.Event()
            signals.wait(30)
            os._exit(0)
        print("running", flush=True)
        threading.Event().wait(30)
"""


@pytest.fixture
def writer(tmp_path):
    started = []

    def begin(task_id, how):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, tmp_path, task_id, how],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def kill(process):
    process.kill()
    process.wait()


def test_what_a_killed_process_wrote_stays_and_reads_well(tmp_path, writer):
    """Killed in the middle of writing, three times over."""
    for _ in range(3):
        process = writer(str(uuid4()), "write on and on")
        name = f"{process.pid}-*.jsonl"
        wait_until(lambda name=name: any(path.stat().st_size > 20_000 for path in tmp_path.glob(name)))
        kill(process)

    read = read_journal(tmp_path)

    assert read.unreadable == ()
    unended = [each for each in read.executions if each.ended_ns is None]
    assert len(unended) <= 3 * 4
    assert len(read.executions) > 3 * 50
    assert all(each.alone for each in read.executions)


def is_free(folder, task_id):
    with holding(folder / "locks", UUID(task_id)) as alone:
        return alone


def test_the_lock_is_held_until_the_process_is_dead_and_then_free(tmp_path, writer):
    task_id = str(uuid4())
    process = writer(task_id, "alone")
    assert process.stdout.readline() == "running\n"

    process.send_signal(signal.SIGSTOP)
    assert not is_free(tmp_path, task_id)
    kill(process)

    assert is_free(tmp_path, task_id)
    (execution,) = read_journal(tmp_path).executions
    assert (execution.alone, execution.ended_ns) == (True, None)


def test_a_grandchild_that_belongs_to_the_execution_keeps_the_lock(tmp_path, writer):
    task_id = str(uuid4())
    process = writer(task_id, "leave a grandchild that belongs to it")
    assert process.stdout.readline() == "running\n"
    grandchild = wait_until(
        lambda: (tmp_path / "grandchild").exists() and (tmp_path / "grandchild").read_text()
    )

    kill(process)
    assert not is_free(tmp_path, task_id)
    os.kill(int(grandchild), signal.SIGKILL)

    wait_until(lambda: is_free(tmp_path, task_id))


def test_what_callbacks_read_and_send_of_attachments_is_recorded(tmp_path):
    journal, asked = Journal(tmp_path), attempt(fence=3)

    with journal.execution(asked) as running:
        journal.file_read(running, "aa", "", "gone")
        journal.file_sent(running)

    found = read_journal(tmp_path)
    (read,), (sent,) = found.reads, found.sent
    assert (read.task_id, read.fence, read.wanted, read.got, read.refused) == (
        asked.task_id,
        3,
        "aa",
        "",
        "gone",
    )
    assert (sent.task_id, sent.fence) == (asked.task_id, 3)
    assert read.at_ns <= sent.at_ns
