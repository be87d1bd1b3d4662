"""Answers of NextWork that an Executor never got: their claims go back at once, uncharged."""

import asyncio
import os
import signal
from typing import Any

import pytest

from duly_wire.time_conversion import to_duration
from duly_wire.v1 import controller_pb2
from tests.fixtures.controllers import ControllerUnderTest
from tests.fixtures.failpoints import Failpoints
from tests.fixtures.host import SECOND, Host, claimed

FIRST, SECOND_CALL = b"1" * 14, b"2" * 14


def ask(controller: ControllerUnderTest, prefix: bytes, most: int = 10, lost: tuple[bytes, ...] = ()) -> Any:
    request = controller_pb2.NextWorkRequest(
        executor_id="executor",
        max_tasks=most,
        timeout=to_duration(10 * SECOND),
        token_prefix=prefix,
        lost_prefixes=lost,
    )
    return controller.stub.NextWork(request, timeout=30)


async def test_what_an_executor_did_not_get_is_handed_back_by_its_prefix(
    controller: ControllerUnderTest,
) -> None:
    await controller.attach("executor", os.getpid())
    await controller.enqueue_new(2)
    lost = await ask(controller, FIRST)
    assert {task.claim.token[:-2] for task in lost.tasks} == {FIRST}
    await controller.enqueue_new(2)
    await ask(controller, SECOND_CALL)

    await ask(controller, b"", most=0, lost=(FIRST,))

    await controller.hsc.until(lambda: controller.hsc.prefixes)
    assert controller.hsc.prefixes == [FIRST]


async def test_a_call_that_was_given_up_while_it_claims_is_answered_with_nothing(
    controller: ControllerUnderTest,
) -> None:
    hsc = controller.hsc
    hsc.held_up["ClaimTask"] = asyncio.Event()
    await controller.attach("executor", os.getpid())
    await controller.enqueue_new(2)
    asking = asyncio.ensure_future(ask(controller, FIRST))
    await hsc.until(lambda: hsc.claims)

    await ask(controller, b"", most=0, lost=(FIRST,))
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

    first = (await controller.hsc.until(lambda: controller.hsc.claims))[0].proposals[0].claim.token
    await controller.hsc.until(lambda: first[:-2] in controller.hsc.prefixes)
    await controller.send("test.echo", task.claim.task_id)

    result = await controller.hsc.until(lambda: controller.hsc.results)
    assert result[0].claim.token != first
    assert points.hits("controller.next_work.before_answer")


async def test_an_executor_that_stops_tells_of_the_calls_that_it_leaves_open(host: Host) -> None:
    executor = await host.ready()
    open_calls = {request.token_prefix for request in host.controller.asked}

    executor.kill(signal.SIGTERM)

    assert await executor.exit_code() == 0
    last = host.controller.asked[-1]
    assert (last.max_tasks, set(last.lost_prefixes)) == (0, open_calls)
