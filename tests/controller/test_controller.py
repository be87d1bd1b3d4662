"""The Controller on a real queue: what it claims, hands out, deletes, and does for Executors that died."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client import REGISTRY

from duly_core.lambdas.names import QueueKey
from duly_wire.enums import Priority
from tests.fixtures.controllers import ControllerUnderTest
from tests.fixtures.host import SECOND, claimed, until
from tests.fixtures.services import refusal

QUEUE = QueueKey("test.echo", Priority.NORMAL)


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


async def test_without_a_definite_answer_a_message_is_not_deleted_but_given_back(
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

    await controller.hsc.until(lambda: len(controller.hsc.claims) >= 2)
    controller.hsc.away.clear()
    work = await controller.next_work("executor")  # which ends long before the message's visibility does
    assert len(work.tasks) == 3


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


async def test_claims_that_an_answer_leaves_out_are_asked_for_again_with_the_same_tokens(
    controller: ControllerUnderTest,
) -> None:
    hsc = controller.hsc
    await controller.attach("executor", os.getpid())
    hsc.most_claims = 2
    task_ids = [os.urandom(16) for _ in range(5)]
    await controller.send("test.echo", *task_ids)

    work = await controller.next_work("executor")

    asked = [{each.claim.task_id: each.claim.token for each in request.proposals} for request in hsc.claims]
    assert [len(each) for each in asked] == [5, 2, 1]
    assert all(each.items() <= asked[0].items() for each in asked)
    assert {task.claim.task_id for task in work.tasks} == set(task_ids)
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


async def test_what_arrives_when_nobody_asks_any_more_is_left_to_other_hosts(
    controller: ControllerUnderTest,
) -> None:
    await controller.attach("busy", os.getpid())
    await controller.next_work("busy", timeout=SECOND / 20)  # its poll of the queue goes on for a while

    await controller.enqueue_new(5)

    elsewhere = await controller.queue.open_receiver()
    received = await elsewhere.receive(QUEUE, 10, 5 * SECOND)
    assert sum(len(message.task_ids) for message in received) == 5


async def test_what_the_hsc_refuses_to_look_at_stays_hidden(
    controller: ControllerUnderTest,
) -> None:
    hsc = controller.hsc
    hsc.refusing["ClaimTask"] = grpc.StatusCode.PERMISSION_DENIED
    await controller.attach("executor", os.getpid())
    await controller.enqueue_new(3)

    work = await controller.next_work("executor", timeout=2 * SECOND)

    assert not work.tasks
    assert len(hsc.claims) == 1
    assert await controller.depth() == 3


async def test_references_of_a_cell_that_is_away_stay_in_their_queue_and_hold_up_no_others(
    controller: ControllerUnderTest,
) -> None:
    hsc = controller.hsc
    await controller.attach("executor", os.getpid(), "test.echo", "test.wait")
    hsc.not_decided.update(await controller.enqueue_new(2, "test.wait"))
    others = await controller.enqueue_new(2)
    found: list[bytes] = []

    while len(found) < 2:
        work = await controller.next_work("executor")
        found += [task.claim.task_id for task in work.tasks]

    assert sorted(found) == sorted(others)
    await controller.is_empty()
    assert await controller.depth("test.wait") == 2
    assert all(request.keeps_cells for request in hsc.claims)
    asked = [proposal.claim.task_id for request in hsc.claims for proposal in request.proposals]
    assert len(asked) == len(set(asked))  # hidden, not given back to go round and round


@pytest.mark.parametrize("executor_id", ["", "x" * 129, "nul\0"])
async def test_an_executor_whose_id_could_hold_no_claims_is_refused(
    controller: ControllerUnderTest, executor_id: str
) -> None:
    refused = await refusal(controller.attach(executor_id, os.getpid()))

    assert (refused.code, refused.field) == (grpc.StatusCode.INVALID_ARGUMENT, "executor_id")


async def test_what_is_buffered_for_an_executor_that_has_enough_goes_back(
    controller: ControllerUnderTest,
) -> None:
    await controller.attach("busy", os.getpid())
    task_ids = {task_id for _ in range(4) for task_id in await controller.enqueue_new()}

    work = await controller.next_work("busy", most=2)  # as many again are fetched ahead

    elsewhere = await controller.queue.open_receiver()
    left = task_ids - {task.claim.task_id for task in work.tasks}
    while left:
        received = await elsewhere.receive(QUEUE, 10, 5 * SECOND)
        assert received, "they are hidden still"
        left -= {task_id for message in received for task_id in message.task_ids}


async def test_the_socket_belongs_to_its_user_alone(controller: ControllerUnderTest) -> None:
    socket = Path(controller.address.removeprefix("unix:"))

    await until(socket.exists)

    assert socket.parent.stat().st_mode & 0o077 == 0
