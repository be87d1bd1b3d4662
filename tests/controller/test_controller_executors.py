"""What a Controller does for the tasks of real Executors that die, and what they do when it does."""

import signal

from duly_core.process.clock import since_boot_ns
from duly_wire.v1 import hsc_pb2
from tests.fixtures.controllers import ControllerUnderTest
from tests.fixtures.host import APP, HOUR, LIVELY, SECOND, Journal, claimed, gone, value_of
from tests.fixtures.programs import is_alive

LEASE = 5 * SECOND
SOON_DEAD = {
    "DULY_TIMING_SCHEDULING_LATENESS": "500ms",
    "DULY_TIMING_PROCESS_DEADLINE": "2s",
    "DULY_TIMING_HEARTBEAT_TIMEOUT": "5s",
    "DULY_TIMING_CLAIM_TIMEOUT": "5s",
}


async def test_of_an_executor_that_dies_what_ran_crashed_and_what_did_not_is_handed_back(
    controller: ControllerUnderTest, journal: Journal
) -> None:
    running = [claimed("test.stubborn", journal.payload(), max_runtime=HOUR) for _ in range(2)]
    first, suspect = (
        claimed("test.stubborn", journal.payload(), max_runtime=HOUR, crashes=1) for _ in range(2)
    )
    executor = controller.executor(
        "--slots", 4, DULY_EXECUTOR_RECALL_AFTER="1h", DULY_EXECUTOR_ISOLATED_PROCESSES="1"
    )
    await controller.enqueue(*running)
    pid = await journal.started(*running)
    await controller.enqueue(first)
    await journal.started(first)
    await controller.enqueue(suspect)  # it waits until the only isolated process is free
    await controller.hsc.beat_of(suspect)

    executor.kill(signal.SIGKILL)

    hsc = controller.hsc
    await hsc.until(lambda: hsc.result_of(running[0]), 2 * SECOND)
    assert not is_alive(pid)
    for task in running:
        result = await hsc.end_of(task)
        assert (result.outcome, result.worker_died) == (hsc_pb2.OUTCOME_CRASHED, False)
    await hsc.release_of(suspect)
    assert hsc.result_of(suspect) is None


async def test_tasks_of_a_dead_executor_are_reported_only_when_its_callback_processes_are_dead(
    controller: ControllerUnderTest, journal: Journal
) -> None:
    tasks = [claimed("test.stubborn", journal.payload()) for _ in range(4)]
    executor = controller.executor("--slots", 1, "--processes", 4)
    await controller.enqueue(*tasks)
    await journal.started(*tasks)
    pids = [int(line.split()[-1]) for line in journal.lines("started")]

    executor.kill(signal.SIGKILL)
    await controller.hsc.until(lambda: controller.hsc.results)

    assert not any(is_alive(pid) for pid in pids)


async def test_a_controller_that_was_started_again_knows_what_its_executors_hold(
    controller: ControllerUnderTest, journal: Journal
) -> None:
    task, after = claimed("test.stubborn", journal.payload()), claimed("test.echo")
    executor = controller.executor()
    await controller.enqueue(task)
    await journal.started(task)
    await controller.end()
    await controller.start()
    await controller.enqueue(after)
    await controller.hsc.end_of(after)

    executor.kill(signal.SIGKILL)

    await controller.hsc.until(lambda: controller.hsc.result_of(task), 3 * SECOND)
    assert (await controller.hsc.end_of(task)).outcome == hsc_pb2.OUTCOME_CRASHED


async def test_an_executor_survives_the_restart_of_its_controller(
    controller: ControllerUnderTest, journal: Journal
) -> None:
    before, after = claimed("test.wait", journal.payload()), claimed("test.echo")
    executor = controller.executor()
    await controller.enqueue(before)
    pid = await journal.started(before)

    await controller.end()
    await controller.start()
    await controller.enqueue(after)
    journal.let_go()

    assert value_of(await controller.hsc.end_of(before)) == "waited"
    assert value_of(await controller.hsc.end_of(after)) is None
    assert executor.output.count("attached to the controller") == 2
    assert is_alive(pid)


async def test_an_executor_that_its_own_timer_does_not_end_is_dead_before_its_lease_is_over(
    controller: ControllerUnderTest, journal: Journal
) -> None:
    task = claimed("test.stubborn", journal.payload())
    executor = controller.commands.start(
        "tests.fixtures.executor_without_kill_timer",
        APP,
        "--controller",
        controller.address,
        **{**LIVELY, **SOON_DEAD, "DULY_EXECUTOR_HSC_ADDRESS": controller.hsc.address},
    )
    await controller.enqueue(task)
    pid = await journal.started(task)
    await controller.hsc.beat_of(task)
    frozen_at = since_boot_ns()

    executor.kill(signal.SIGSTOP)

    await gone(pid)
    assert since_boot_ns() - frozen_at < LEASE.total_seconds() * 1e9
    result = await controller.hsc.end_of(task)
    assert result.outcome == hsc_pb2.OUTCOME_CRASHED
