"""What keeps an Executor's claims alive, and what ends it when they cannot be kept."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from duly_core.lambdas.names import QueueKey
from duly_core.process.loop import wait_for
from duly_core.queues.port import Outgoing
from duly_core.rpc.settings import RpcSettings
from duly_executor.claims.heartbeat_channel import HeartbeatChannel
from duly_wire.enums import Priority
from duly_wire.v1 import hsc_pb2
from tests.fixtures.host import APP, LIVELY, SECOND, SHORT, Host, claimed, gone, value_of
from tests.fixtures.programs import is_alive
from tests.fixtures.queues import Installation
from tests.fixtures.scripted_hsc import ScriptedHsc
from tests.fixtures.service_processes import poll
from tests.fixtures.silent_cut import SilentlyCutConnection, silently_cut_connection_to

TRY = 0.5
"""Seconds for one try of a heartbeat."""


# ---- the rate --------------------------------------------------------------------------------------------


@pytest.mark.long  # counts heartbeats for seconds
async def test_heartbeats_keep_their_rate_however_long_each_takes(host: Host) -> None:
    task = host.waiting()
    # a period of 500 ms, answers after 400: counted from the answers, ten would take nine seconds
    await host.ready(DULY_TIMING_HEARTBEAT_PERIOD="500ms", DULY_TIMING_HEARTBEAT_DEADLINE="500ms")
    await host.running(task)
    answered_later(host.hsc, 0.4)
    await host.hsc.beat_of(task)
    first, began = len(host.hsc.beats), asyncio.get_running_loop().time()

    await host.hsc.until(lambda: len(host.hsc.beats) >= first + 10)

    assert 4 <= asyncio.get_running_loop().time() - began < 7


def answered_later(hsc: ScriptedHsc, seconds: float) -> None:
    answer = hsc.Heartbeat

    async def later(request: object, context: object) -> object:
        await wait_for(asyncio.Event(), timedelta(seconds=seconds))
        return await answer(request, context)

    hsc.Heartbeat = later  # type: ignore[method-assign]


async def test_one_call_a_period_carries_all_that_an_executor_holds(host: Host) -> None:
    tasks = [host.waiting() for _ in range(8)]
    await host.ready("--processes", 2, "--slots", 4)
    await host.running(*tasks)
    await host.hsc.beat_of(*tasks)
    first = len(host.hsc.beats)

    await host.hsc.until(lambda: len(host.hsc.beats) >= first + 4)

    assert {len(beat.items) for beat in host.hsc.beats[first:]} == {8}


async def test_a_cancel_reaches_a_running_callback_with_the_next_heartbeat(host: Host) -> None:
    task = host.waiting()
    await host.ready(DULY_TIMING_HEARTBEAT_PERIOD="1s", DULY_TIMING_HEARTBEAT_DEADLINE="1s")
    await host.running(task)
    before = len(host.hsc.beats)

    host.hsc.verdicts[task.claim.task_id] = hsc_pb2.HEARTBEAT_VERDICT_CANCEL_REQUESTED
    result = await host.hsc.end_of(task)

    assert result.outcome == hsc_pb2.OUTCOME_CANCELLED
    assert len(host.hsc.beats) - before <= 1 + 1  # one may have been answered as we asked


# ---- the way there ---------------------------------------------------------------------------------------


@pytest.mark.long  # waits for three missed heartbeats
async def test_an_executor_survives_a_connection_that_died_without_a_sign(
    host: Host, peers: AsyncExitStack
) -> None:
    cable = await peers.enter_async_context(silently_cut_connection_to(host.hsc.address))
    task = host.waiting()
    # three strikes would take six seconds; the keepalive notices after 25
    executor = await host.ready(
        DULY_EXECUTOR_HSC_ADDRESS=cable.address,
        DULY_TIMING_HEARTBEAT_PERIOD="2s",
        DULY_TIMING_HEARTBEAT_DEADLINE="1500ms",
    )
    await host.running(task)
    await host.hsc.beat_of(task)

    cable.cut()
    for _ in range(3):
        await host.hsc.beat_of(task)

    assert is_alive(executor.pid)
    assert "heartbeat call failed" not in executor.output


@pytest.fixture
async def silent_and_well(
    scripted_hsc: ScriptedHsc, peers: AsyncExitStack
) -> tuple[SilentlyCutConnection, SilentlyCutConnection]:
    """Two ways to one HSC, of which the first swallows everything."""
    silent = await peers.enter_async_context(silently_cut_connection_to(scripted_hsc.address))
    silent.swallows_all = True
    return silent, await peers.enter_async_context(silently_cut_connection_to(scripted_hsc.address))


async def test_the_second_try_of_a_heartbeat_goes_to_another_hsc(
    silent_and_well: tuple[SilentlyCutConnection, SilentlyCutConnection],
    monkeypatch: pytest.MonkeyPatch,
    peers: AsyncExitStack,
) -> None:
    silent, well = silent_and_well
    monkeypatch.setattr("random.shuffle", lambda _: None)
    line = HeartbeatChannel(f"{silent.address}, {well.address}", RpcSettings())
    peers.push_async_callback(line.close)
    request = hsc_pb2.HeartbeatRequest(items=[hsc_pb2.HeartbeatItem(claim=claimed().claim)])

    with pytest.raises(Exception, match=r"(?i)deadline|unavailable"):
        await line.Heartbeat(request, TRY)
    response = await line.Heartbeat(request, 10 * TRY)
    await line.Heartbeat(request, 10 * TRY)

    assert response.verdicts == [hsc_pb2.HEARTBEAT_VERDICT_KEPT]
    assert well.connections == 1  # and there it stays


async def test_heartbeats_go_to_the_own_zone_and_come_back_when_an_hsc_there_answers_again(
    silent_and_well: tuple[SilentlyCutConnection, SilentlyCutConnection],
    monkeypatch: pytest.MonkeyPatch,
    peers: AsyncExitStack,
) -> None:
    own, other = silent_and_well
    monkeypatch.setattr("duly_executor.claims.heartbeat_channel._LOOK_BACK_S", 0.0)
    line = HeartbeatChannel(f"west={other.address},east={own.address}", RpcSettings(zone="east"))
    peers.push_async_callback(line.close)
    request = hsc_pb2.HeartbeatRequest(items=[hsc_pb2.HeartbeatItem(claim=claimed().claim)])

    with pytest.raises(Exception, match=r"(?i)deadline|unavailable"):
        await line.Heartbeat(request, TRY)
    while_away = [await line.Heartbeat(request, 10 * TRY) for _ in range(3)]
    own.swallows_all = False
    used_before = own.connections

    async def is_back() -> bool:
        await line.Heartbeat(request, 10 * TRY)
        return line._addresses[0] == own.address

    await poll(is_back)

    assert [answer.verdicts for answer in while_away] == [[hsc_pb2.HEARTBEAT_VERDICT_KEPT]] * 3
    assert own.connections > used_before


# ---- the end ---------------------------------------------------------------------------------------------


async def test_an_executor_whose_own_threads_starve_it_is_dead_before_its_lease_is_over(
    host: Host, tmp_path: Path
) -> None:
    task, starve = host.stubborn(), tmp_path / "starve"
    executor = host.commands.start(
        "tests.fixtures.starved_executor",
        APP,
        "--controller",
        host.controller.address,
        **{**SHORT, "DULY_EXECUTOR_HSC_ADDRESS": host.hsc.address, "STARVE_WHEN": str(starve)},
    )
    await host.controller.until(lambda: host.controller.asked)
    pid = await host.running(task)
    await host.hsc.beat_of(task)

    starve.touch()

    assert await executor.exit_code(4 * SECOND) == -signal.SIGKILL
    await gone(pid)
    assert "heartbeat call failed" not in executor.output  # nothing failed: nothing was sent


async def test_a_callback_in_a_stopped_process_is_not_beaten_for_for_ever(host: Host) -> None:
    tasks = [host.stubborn(), host.stubborn()]
    executor = await host.ready("--slots", 2, DULY_EXECUTOR_STOPPED_LIMIT="1s")
    pid = await host.running(*tasks)

    os.kill(pid, signal.SIGSTOP)

    for task in tasks:
        result = await host.hsc.end_of(task)
        assert result.outcome == hsc_pb2.OUTCOME_CRASHED
        assert "stood still (stopped by a signal) for 1s" in result.failure_message
    assert not is_alive(pid)
    assert is_alive(executor.pid)


async def test_a_process_that_is_stopped_for_a_moment_goes_on(host: Host) -> None:
    task = host.waiting()
    await host.ready(DULY_EXECUTOR_STOPPED_LIMIT="1h")
    pid = await host.running(task)

    os.kill(pid, signal.SIGSTOP)
    for _ in range(4):
        await host.hsc.beat_of(task)
    os.kill(pid, signal.SIGCONT)
    host.journal.let_go()

    assert value_of(await host.hsc.end_of(task)) == "waited"


# ---- its Controller --------------------------------------------------------------------------------------


@pytest.mark.long  # seconds for each way to go
@pytest.mark.sqs
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
async def test_an_executor_whose_controller_is_gone_goes_on_beating_and_reporting(
    host: Host, sqs_queue: Installation, tmp_path: Path, number: int
) -> None:
    task = host.waiting()
    host.hsc.task = lambda proposal: under_the_token_of(proposal, task)
    controller = host.commands.start(
        "duly_cli",
        "controller",
        DULY_CONTROLLER_LISTEN=f"unix:{tmp_path}/real.sock",
        DULY_CONTROLLER_HSC_ADDRESS=host.hsc.address,
        DULY_CONTROLLER_FRONTEND_ADDRESS=host.hsc.address,
        DULY_QUEUE_BACKEND="sqs",
        DULY_QUEUE_ENDPOINT_URL=sqs_queue.settings.endpoint_url,
        DULY_QUEUE_PREFIX=sqs_queue.settings.prefix,
        **LIVELY,
    )
    await controller.says("controller serves")
    host.controller.address = f"unix:{tmp_path}/real.sock"
    executor = host.start()
    sender = await sqs_queue.open_sender()
    await sender.send([Outgoing(QueueKey("test.wait", Priority.NORMAL), (task.claim.task_id,))])
    await host.journal.started(task)

    controller.kill(number)
    for _ in range(3):
        await host.hsc.beat_of(task)
    host.journal.let_go()

    assert value_of(await host.hsc.end_of(task)) == "waited"
    assert is_alive(executor.pid)


def under_the_token_of(proposal: hsc_pb2.ClaimProposal, task: hsc_pb2.ClaimedTask) -> hsc_pb2.ClaimedTask:
    task.claim.CopyFrom(proposal.claim)
    return task
