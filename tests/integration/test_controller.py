"""The Controller on a real queue: what it claims, hands out, deletes, and does for Executors that died."""

import asyncio
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client import REGISTRY

from duly.v1 import hsc_pb2
from duly_core.routing import Priority, QueueKey
from tests.fixtures.controllers import ControllerUnderTest
from tests.fixtures.host import HOUR, SECOND, Journal, claimed, until, value_of
from tests.fixtures.programs import is_alive
from tests.fixtures.services import refusal


async def hang_up(asking: Any) -> None:
    """Cancel a NextWork, and wait until the Controller knows."""

    def cancelled() -> float:
        labels = {"method": "NextWork", "code": "CANCELLED"}
        return REGISTRY.get_sample_value("duly_rpc_total", labels) or 0

    before = cancelled()
    asking.cancel()
    await until(lambda: cancelled() > before)


async def test_what_is_enqueued_is_claimed_handed_out_and_its_message_deleted(
    controller: ControllerUnderTest,
) -> None:
    await controller.attach("executor", os.getpid())
    task_ids = await controller.enqueue_new(5)

    work = await controller.next_work("executor")

    assert {task.claim.task_id for task in work.tasks} == set(task_ids)
    assert len({task.claim.token for task in work.tasks}) == 5
    assert {request.holder for request in controller.hsc.claims} == {"executor"}
    await controller.is_empty()


async def test_a_message_is_not_deleted_before_every_reference_in_it_is_answered(
    controller: ControllerUnderTest,
) -> None:
    await controller.attach("executor", os.getpid())
    await controller.enqueue_new(5)

    await controller.next_work("executor", most=2)
    assert await controller.depth() == 5
    await controller.next_work("executor", most=3)

    await controller.is_empty()


async def test_a_claim_whose_reply_is_lost_is_asked_for_again_with_the_same_tokens(
    controller: ControllerUnderTest,
) -> None:
    hsc = controller.hsc
    hsc.away.add("ClaimTask")
    await controller.attach("executor", os.getpid())
    await controller.enqueue_new(3)

    asking = asyncio.ensure_future(controller.next_work("executor"))
    await hsc.until(lambda: len(hsc.claims) >= 3)
    hsc.away.clear()
    work = await asking

    assert len({request.SerializeToString() for request in hsc.claims}) == 1
    asked = {proposal.claim.token for proposal in hsc.claims[0].proposals}
    assert {task.claim.token for task in work.tasks} == asked


async def test_without_a_definite_answer_no_message_is_deleted(
    controller: ControllerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await controller.end()
    for name, value in (("PERIOD", "100ms"), ("DEADLINE", "100ms")):
        monkeypatch.setenv(f"DULY_TIMING_HEARTBEAT_{name}", value)
    monkeypatch.setenv("DULY_TIMING_PROCESS_DEADLINE", "1s")
    await controller.start()
    controller.hsc.away.add("ClaimTask")
    await controller.attach("executor", os.getpid())
    await controller.enqueue_new(3)

    work = await controller.next_work("executor", timeout=SECOND)

    assert not work.tasks
    assert await controller.depth() == 3


async def test_the_message_of_a_refused_reference_is_deleted(controller: ControllerUnderTest) -> None:
    await controller.attach("executor", os.getpid())
    refused = await controller.enqueue_new(4)
    controller.hsc.refused = set(refused)

    work = await controller.next_work("executor", timeout=SECOND)

    assert not work.tasks
    await controller.is_empty()


async def test_references_that_are_refused_do_not_keep_fresh_ones_from_being_fetched(
    controller: ControllerUnderTest,
) -> None:
    await controller.attach("executor", os.getpid())
    for _ in range(10):
        controller.hsc.refused |= set(await controller.enqueue_new(1))
    (good,) = await controller.enqueue_new(1)

    work = await controller.next_work("executor", most=1, timeout=5 * SECOND)

    assert [task.claim.task_id for task in work.tasks] == [good]


async def test_a_task_that_comes_in_two_messages_is_claimed_once(controller: ControllerUnderTest) -> None:
    await controller.attach("executor", os.getpid())
    (task_id,) = await controller.enqueue_new()
    await controller.send("test.echo", task_id)

    work = await controller.next_work("executor")

    assert [task.claim.task_id for task in work.tasks] == [task_id]


async def test_what_is_claimed_for_an_executor_that_hangs_up_is_handed_back(
    controller: ControllerUnderTest,
) -> None:
    hsc = controller.hsc
    hsc.held_up["ClaimTask"] = asyncio.Event()
    await controller.attach("executor", os.getpid())
    task_ids = await controller.enqueue_new(2)

    asking = controller.next_work("executor")
    await hsc.until(lambda: hsc.claims)
    await hang_up(asking)
    hsc.held_up["ClaimTask"].set()

    await hsc.until(lambda: {claim.task_id for claim in hsc.releases} == set(task_ids))


async def test_a_controller_that_stops_hands_back_what_nobody_got(controller: ControllerUnderTest) -> None:
    hsc = controller.hsc
    hsc.held_up["ClaimTask"] = asyncio.Event()
    await controller.attach("executor", os.getpid())
    task_ids = await controller.enqueue_new(2)
    asking = controller.next_work("executor")
    await hsc.until(lambda: hsc.claims)
    await hang_up(asking)

    ending = asyncio.ensure_future(controller.end())
    hsc.held_up["ClaimTask"].set()
    await ending

    assert {claim.task_id for claim in hsc.releases} == set(task_ids)


async def test_claims_whose_payloads_do_not_fit_into_one_answer_are_asked_for_in_parts(
    controller: ControllerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await controller.end()
    monkeypatch.setenv("DULY_RPC_MAX_MESSAGE_BYTES", "1000000")
    await controller.start()
    await controller.attach("executor", os.getpid())
    tasks = [claimed("test.echo", "x" * 300_000) for _ in range(10)]
    controller.tasks = {task.claim.task_id: task for task in tasks}
    await controller.send("test.echo", *controller.tasks)

    work = await controller.next_work("executor")

    assert {task.claim.task_id for task in work.tasks} == controller.tasks.keys()
    await controller.is_empty()


async def test_an_executor_that_nobody_knows_is_told_to_attach(controller: ControllerUnderTest) -> None:
    await controller.attach("another", os.getpid())

    refused = await refusal(controller.next_work("executor"))

    assert refused.code is grpc.StatusCode.FAILED_PRECONDITION


async def test_lambdas_that_the_registry_refuses_are_told_to_the_executor(
    controller: ControllerUnderTest,
) -> None:
    controller.hsc.registry_problem = "is not to be"

    refused = await refusal(controller.attach("executor", os.getpid()))

    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert "lambda 'test.echo'" in refused.message


async def test_a_process_that_is_not_there_cannot_attach(controller: ControllerUnderTest) -> None:
    refused = await refusal(controller.attach("executor", 2**22 + 1))

    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("most", [0, -1, 2_001])
async def test_next_work_refuses_counts_that_make_no_sense(
    controller: ControllerUnderTest, most: int
) -> None:
    await controller.attach("executor", os.getpid())

    refused = await refusal(controller.next_work("executor", most=most))

    assert (refused.code, refused.field) == (grpc.StatusCode.INVALID_ARGUMENT, "max_tasks")


async def test_next_work_waits_no_longer_than_it_was_told(controller: ControllerUnderTest) -> None:
    await controller.attach("executor", os.getpid())

    work = await controller.next_work("executor", timeout=timedelta(milliseconds=50))

    assert not work.tasks


async def test_nothing_is_taken_from_a_queue_while_nobody_asks_for_work(
    controller: ControllerUnderTest,
) -> None:
    await controller.attach("executor", os.getpid())
    await controller.next_work("executor", timeout=timedelta(milliseconds=50))
    await controller.enqueue_new(50)

    await controller.end()  # gives back what it had taken, if it had

    receiver = await controller.queue.open_receiver()
    received = await receiver.receive(QueueKey("test.echo", Priority.NORMAL), 10, SECOND)
    assert sum(len(message.task_ids) for message in received) == 50
    assert not controller.hsc.claims


async def test_of_an_executor_that_dies_what_ran_crashed_and_what_did_not_is_handed_back(
    controller: ControllerUnderTest, journal: Journal
) -> None:
    running = [claimed("test.stubborn", journal.payload(), max_runtime=HOUR) for _ in range(2)]
    suspect = claimed("test.stubborn", journal.payload(), crashes=1)
    executor = controller.executor("--slots", 3, DULY_EXECUTOR_RECALL_AFTER="1h")
    await controller.enqueue(*running)
    pid = await journal.started(*running)
    await controller.enqueue(suspect)  # it waits until the process is empty
    await controller.hsc.beat_of(suspect)

    executor.kill(signal.SIGKILL)

    hsc = controller.hsc
    await hsc.until(lambda: hsc.result_of(running[0]), 2 * SECOND)
    assert not is_alive(pid)
    for task in running:
        assert (await hsc.end_of(task)).outcome == hsc_pb2.OUTCOME_CRASHED
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


async def test_the_socket_belongs_to_its_user_alone(controller: ControllerUnderTest) -> None:
    socket = Path(controller.address.removeprefix("unix:"))

    await until(socket.exists)

    assert socket.parent.stat().st_mode & 0o077 == 0
