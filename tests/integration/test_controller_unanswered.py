"""Answers of NextWork that an Executor never got: their claims go back at once, uncharged."""

import asyncio
import os
import signal
from typing import Any

import pytest

from duly.v1 import controller_pb2
from duly_core.rpc.convert import to_duration
from tests.fixtures.controllers import ControllerUnderTest
from tests.fixtures.failpoints import Failpoints
from tests.fixtures.host import SECOND, Host, claimed


def ask(controller: ControllerUnderTest, call: int, most: int = 10, unanswered: tuple[int, ...] = ()) -> Any:
    request = controller_pb2.NextWorkRequest(
        executor_id="executor",
        max_tasks=most,
        timeout=to_duration(10 * SECOND),
        call=call,
        unanswered_calls=unanswered,
    )
    return controller.stub.NextWork(request, timeout=30)


async def test_what_an_executor_did_not_get_is_handed_back_and_what_it_got_is_not(
    controller: ControllerUnderTest,
) -> None:
    await controller.attach("executor", os.getpid())
    await controller.enqueue_new(2)
    lost = await ask(controller, 1)
    await controller.enqueue_new(2)
    got = await ask(controller, 2)

    await ask(controller, 3, most=0, unanswered=(1,))

    await controller.hsc.release_of(*lost.tasks)
    assert not any(task.claim in controller.hsc.releases for task in got.tasks)
    await ask(controller, 4, most=0, unanswered=(1, 3))
    assert len(controller.hsc.releases) == 2


async def test_a_settled_claim_takes_no_new_one_of_its_task_with_it(controller: ControllerUnderTest) -> None:
    await controller.attach("executor", os.getpid())
    (task_id,) = await controller.enqueue_new(1)
    old = await ask(controller, 1)
    await controller.send("test.echo", task_id)
    new = await ask(controller, 2)

    request = controller_pb2.NextWorkRequest(
        executor_id="executor", settled=[task.claim for task in old.tasks], unanswered_calls=[2]
    )
    await controller.stub.NextWork(request, timeout=30)

    await controller.hsc.release_of(*new.tasks)


async def test_a_call_that_was_given_up_while_it_claims_is_answered_with_nothing(
    controller: ControllerUnderTest,
) -> None:
    hsc = controller.hsc
    hsc.held_up["ClaimTask"] = asyncio.Event()
    await controller.attach("executor", os.getpid())
    await controller.enqueue_new(2)
    asking = asyncio.ensure_future(ask(controller, 1))
    await hsc.until(lambda: hsc.claims)

    await ask(controller, 2, most=0, unanswered=(1,))
    hsc.held_up["ClaimTask"].set()

    assert not (await asking).tasks
    await hsc.until(lambda: len(hsc.releases) == 2)


async def test_an_answer_that_is_lost_on_its_way_to_a_real_executor_is_handed_back_and_runs(
    controller: ControllerUnderTest, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = Failpoints.in_this_process(tmp_path, monkeypatch)
    points.arm("controller.next_work.before_answer", "drop_reply once")
    task = claimed()
    await controller.enqueue(task)
    controller.executor()

    await controller.hsc.release_of(task)
    first = task.claim.token
    await controller.send("test.echo", task.claim.task_id)

    result = await controller.hsc.until(lambda: controller.hsc.results)
    assert result[0].claim.token != first
    assert points.hits("controller.next_work.before_answer")


async def test_an_executor_that_stops_tells_of_the_calls_that_it_leaves_open(host: Host) -> None:
    executor = await host.ready()
    open_calls = [request.call for request in host.controller.asked]

    executor.kill(signal.SIGTERM)

    assert await executor.exit_code() == 0
    last = host.controller.asked[-1]
    assert (last.max_tasks, list(last.unanswered_calls)) == (0, open_calls)
