"""What an Executor orders its callback process to do: start in time, cancel, give back, end."""

import os
import signal
from datetime import timedelta

import pytest

from duly_executor.processes.process import Overdue
from duly_wire.v1 import hsc_pb2
from tests.fixtures.callback_process import Callbacks
from tests.fixtures.host import Journal, claimed, gone, until, value_of
from tests.fixtures.programs import Programs

PARENT = """
import asyncio
from duly_core.host.slot_board import SlotBoard
from duly_executor.processes.process import CallbackProcess
from duly_executor.containment.process_group import ProcessTree

async def main():
    process = await CallbackProcess.start(
        0, "executor-id", "tests.fixtures.callbacks:app", SlotBoard.create(1, 1), ProcessTree()
    )
    await process.hello()
    print("started process", process.process.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_task_whose_time_to_start_has_passed_is_given_back(
    callbacks: Callbacks, journal: Journal
) -> None:
    late, in_time = claimed("test.wait", journal.payload()), claimed()

    callbacks.give(late, start_within_ns=0)
    callbacks.give(in_time)
    await callbacks.result(in_time)

    await callbacks.until(lambda: late.claim.task_id in callbacks.unstarted)
    assert not journal.lines("started")


@pytest.mark.parametrize("name", ["test.wait", "test.async_wait"])
async def test_a_cancel_reaches_a_running_callback(callbacks: Callbacks, journal: Journal, name: str) -> None:
    task = claimed(name, journal.payload())
    callbacks.give(task)
    await journal.started(task)

    callbacks.process.cancel([task.claim.task_id])

    assert (await callbacks.result(task)).outcome == hsc_pb2.OUTCOME_CANCELLED


@pytest.mark.parametrize("order", ["cancel", "interrupt"])
async def test_a_coroutine_that_is_stopped_has_cleaned_up_when_its_end_is_told(
    callbacks: Callbacks, journal: Journal, order: str
) -> None:
    task = claimed("test.async_wait", journal.payload())
    task_id = task.claim.task_id
    callbacks.give(task)
    await journal.started(task)

    if order == "cancel":
        callbacks.process.cancel([task_id])
    else:
        callbacks.process.interrupt({task_id: Overdue(0, "max_runtime", hsc_pb2.TaskResult())})
    await callbacks.result(task)

    assert journal.has("cleaned up", task)


async def test_a_cancelled_task_that_waits_for_a_slot_is_not_started_and_given_back(
    callbacks: Callbacks, journal: Journal
) -> None:
    busy = [claimed("test.wait", journal.payload()) for _ in range(2)]
    waiting = claimed("test.wait", journal.payload())
    callbacks.give(*busy, waiting)
    await journal.started(*busy)

    callbacks.process.cancel([waiting.claim.task_id, busy[0].claim.task_id])  # the second frees a slot
    await callbacks.until(lambda: callbacks.unstarted)

    assert callbacks.unstarted == [waiting.claim.task_id]
    assert not journal.has("started", waiting)


async def test_a_task_that_was_cancelled_once_may_be_given_again(
    callbacks: Callbacks, journal: Journal
) -> None:
    task = claimed("test.wait", journal.payload())
    callbacks.give(task)
    await journal.started(task)
    callbacks.process.cancel([task.claim.task_id])
    await callbacks.result(task)
    callbacks.process.cancel([task.claim.task_id])  # a second asking that came too late
    journal.let_go()
    task.claim.token = os.urandom(16)

    callbacks.give(task)

    assert value_of(await callbacks.result(task)) == "waited"


async def test_a_recall_gives_back_what_waits_and_lets_the_rest_run(
    callbacks: Callbacks, journal: Journal
) -> None:
    running = [claimed("test.wait", journal.payload()) for _ in range(2)]
    waiting = [claimed("test.wait", journal.payload()) for _ in range(3)]
    callbacks.give(*running, *waiting)
    await journal.started(*running)

    callbacks.process.recall()
    await callbacks.until(lambda: len(callbacks.unstarted) == 3)
    journal.let_go()

    assert set(callbacks.unstarted) == {task.claim.task_id for task in waiting}
    for task in running:
        assert value_of(await callbacks.result(task)) == "waited"


async def test_progress_is_told_newest_only_and_not_after_the_end(
    callbacks: Callbacks, journal: Journal
) -> None:
    task = claimed("test.progress", journal.payload())

    callbacks.give(task)
    await callbacks.until(lambda: any(report.progress for report in callbacks.reports))
    journal.let_go()
    await callbacks.result(task)

    told = [progress for report in callbacks.reports for progress in report.progress]
    assert (told[-1].task_id, told[-1].progress, told[-1].note) == (task.claim.task_id, 0.75, "three of four")


async def test_a_callback_process_ends_when_its_executor_closes_the_socket(
    callbacks: Callbacks, journal: Journal
) -> None:
    task = claimed("test.stubborn", journal.payload())
    callbacks.give(task)
    pid = await journal.started(task)

    callbacks.process._writer.close()

    await gone(pid)


async def test_the_board_says_what_ran_in_a_process_that_was_killed(
    callbacks: Callbacks, journal: Journal
) -> None:
    task = claimed("test.stubborn", journal.payload())
    callbacks.give(task)
    pid = await journal.started(task)

    os.kill(pid, signal.SIGKILL)

    assert await callbacks.process.ended() == -signal.SIGKILL
    assert [entry.task_id for entry in callbacks.board.running()] == [task.claim.task_id]


async def test_a_process_whose_callback_closed_its_socket_ends(callbacks: Callbacks) -> None:
    task = claimed("test.misbehave", "close everything")

    callbacks.give(task)

    await gone(callbacks.process.process.pid)


async def test_a_callback_process_dies_with_its_executor(in_root: None, programs: Programs) -> None:
    executor = programs.start(PARENT)
    pid = await until(lambda: executor.number_in("started process"), timedelta(seconds=20))

    executor.send(signal.SIGKILL)

    await gone(pid)


async def test_a_recall_is_answered_even_if_nothing_waits(callbacks: Callbacks) -> None:
    callbacks.process.recall()

    await callbacks.until(lambda: any(report.recalled for report in callbacks.reports))

    assert not callbacks.unstarted


async def test_an_order_that_nobody_understands_ends_the_process(callbacks: Callbacks) -> None:
    callbacks.process._writer.write(b"\x01\x00\x00\x00\xff")

    await gone(callbacks.process.process.pid)

    assert await callbacks.process.ended() == os.EX_SOFTWARE
