"""How an Executor ends, and what it refuses to begin with."""

import signal

import pytest

from duly_wire.v1 import hsc_pb2
from tests.fixtures.host import SECOND, Host, claimed, gone, value_of


async def test_a_drain_lets_running_callbacks_finish_hands_back_the_others_and_beats_to_the_end(
    host: Host,
) -> None:
    running, waiting = host.waiting(), host.waiting()
    executor = await host.ready("--slots", 1, DULY_EXECUTOR_RECALL_AFTER="1h")
    host.hand_out(running, waiting)
    await host.journal.started(running)

    executor.kill(signal.SIGTERM)
    await host.hsc.release_of(waiting)
    asked = len(host.controller.asked)
    for _ in range(3):
        await host.hsc.beat_of(running)
    host.journal.let_go()

    assert value_of(await host.hsc.end_of(running)) == "waited"
    assert await executor.exit_code() == 0
    assert len(host.controller.asked) == asked
    assert not host.journal.has("started", waiting)


async def test_what_still_runs_when_the_grace_is_over_is_killed_and_handed_back_uncharged(host: Host) -> None:
    task = host.stubborn()
    executor = await host.ready(DULY_EXECUTOR_DRAIN_GRACE="300ms")
    pid = await host.running(task)

    executor.kill(signal.SIGTERM)

    assert await executor.exit_code() == 0
    await gone(pid)
    assert task.claim in host.hsc.releases
    assert not host.hsc.results


async def test_a_second_sigterm_changes_nothing(host: Host) -> None:
    task = host.waiting()
    executor = await host.ready()
    await host.running(task)

    executor.kill(signal.SIGTERM)
    await executor.says("draining")
    executor.kill(signal.SIGTERM)
    await host.hsc.beat_of(task)
    host.journal.let_go()

    assert value_of(await host.hsc.end_of(task)) == "waited"
    assert await executor.exit_code() == 0


async def test_an_idle_executor_stops_at_once(host: Host) -> None:
    executor = await host.ready()

    executor.kill(signal.SIGTERM)

    assert await executor.exit_code(8 * SECOND) == 0


async def test_an_executor_without_controller_stops_at_once(host: Host) -> None:
    host.controller.address += ".nobody"
    executor = host.start()
    await executor.says("executor ready")

    executor.kill(signal.SIGTERM)

    assert await executor.exit_code(8 * SECOND) == 0


@pytest.mark.long  # waits for the whole grace
async def test_an_executor_stops_within_seconds_even_if_the_hsc_is_away(host: Host) -> None:
    host.hsc.away |= {"SetResults", "Release", "Heartbeat"}
    task = claimed()
    executor = await host.ready(
        DULY_TIMING_HEARTBEAT_PERIOD="3s",
        DULY_TIMING_HEARTBEAT_DEADLINE="3s",
    )
    host.hand_out(task)
    await host.hsc.beat_of(task)

    executor.kill(signal.SIGTERM)

    assert await executor.exit_code(15 * SECOND) == 0
    assert "report refused by the HSC" in executor.output


async def test_an_executor_whose_callback_process_died_drains_too(host: Host) -> None:
    crashing = claimed("test.misbehave", "leave")
    executor = await host.ready()
    host.hand_out(crashing)
    await host.hsc.end_of(crashing)

    executor.kill(signal.SIGTERM)

    assert await executor.exit_code(10 * SECOND) == 0


@pytest.mark.parametrize(
    ("application", "complaint"),
    [
        ("tests.fixtures.nowhere:app", "there is no module 'tests.fixtures.nowhere'"),
        ("tests.fixtures.callbacks:missing", "has no 'missing'"),
        ("tests.fixtures.waiting:wait_until", "not a duly.App"),
    ],
)
async def test_an_executor_that_cannot_import_its_application_says_why_and_gives_up(
    host: Host, application: str, complaint: str
) -> None:
    executor = host.start(application=application)

    assert await executor.exit_code() == 78

    last_line = executor.output.splitlines()[-1]
    assert last_line.startswith("duly executor: ")
    assert complaint in last_line


async def test_the_executors_process_ends_with_the_one_that_started_it(host: Host) -> None:
    task = host.stubborn()
    executor = await host.ready(DULY_EXECUTOR_DRAIN_GRACE="100ms")
    pid = await host.running(task)

    executor.kill(signal.SIGKILL)

    await gone(pid)
    assert host.hsc.result_of(task) is None  # telling is its Controller's part
    assert hsc_pb2.OUTCOME_CRASHED not in {result.outcome for result in host.hsc.results}
