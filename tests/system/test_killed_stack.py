"""`duly up` killed with SIGKILL: what it started finishes its work, is gone after a while, and is no obstacle after."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from tests.fixtures.host import Journal
from tests.fixtures.programs import is_alive
from tests.fixtures.waiting import wait_until
from tests.fixtures.whole_stack import WholeStack

LONG = timedelta(seconds=60)

PATIENT = {"DULY_EXECUTOR_DRAIN_GRACE": "40s"}
"""The next stack may take a while to start on a busy machine, and the callback is let go only then."""

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,
    pytest.mark.timeout(240),
]  # long: each test starts several stacks

Start = Callable[[], WholeStack]


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts stacks on one data directory, one after the other."""
    data = tmp_path_factory.mktemp("killed") / "data"
    started: list[WholeStack] = []

    def start_one() -> WholeStack:
        started.append(WholeStack(tmp_path_factory.mktemp("up"), "--data", str(data), **PATIENT))
        return started[-1]

    yield start_one
    for stack in started:
        if stack.process.poll() is None:
            stack.stop()


def test_a_result_is_stored_though_duly_up_was_killed_and_the_next_one_waits_for_that(
    start: Start, tmp_path: Path
) -> None:
    journal = Journal(tmp_path)
    first = start()
    with duly.Client(first.frontend()) as client:
        task = client.schedule("test.wait", journal.payload())
        wait_until(lambda: journal.lines("started"))
    processes = first.processes()

    first.process.kill()
    first.process.wait()
    second = start()
    wait_until(lambda: "for the Postgres of an earlier run to stop" in second.output, LONG)
    journal.let_go()

    def all_are_gone() -> bool:
        return not any(is_alive(pid) for pid in processes)

    wait_until(all_are_gone, LONG)
    with duly.Client(second.frontend()) as client:
        ended = client.wait(task, LONG)
    assert (ended.status.name, ended.attempts, len(journal.lines("started"))) == ("SUCCESS", (), 1)


def test_a_stack_that_was_killed_whole_starts_again_at_once(start: Start) -> None:
    first = start()
    with duly.Client(first.frontend()) as client:
        task = client.schedule("test.echo", "kept", delay=timedelta(seconds=3))
    everything = [first.process.pid, *first.processes()]

    for pid in everything:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    first.process.wait()

    with duly.Client(start().frontend()) as client:
        assert client.wait(task, LONG).result == "kept"
    assert not [pid for pid in everything if is_alive(pid)]
