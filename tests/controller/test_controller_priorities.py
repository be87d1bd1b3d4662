"""NextWork for single lambdas and priorities: what an Executor asks for that has slots reserved for them."""

import os

import grpc

from duly_wire.enums import Priority
from tests.fixtures.controllers import ControllerUnderTest
from tests.fixtures.host import SECOND
from tests.fixtures.services import refusal

LAMBDAS = ("test.echo", "test.wait")


async def test_only_tasks_of_these_lambdas_and_priorities_are_handed_out(
    controller: ControllerUnderTest,
) -> None:
    await controller.attach("executor", os.getpid(), *LAMBDAS)
    await controller.enqueue_new(2, "test.wait", Priority.HIGH)
    await controller.enqueue_new(2)
    high = await controller.enqueue_new(2, priority=Priority.HIGH)
    only = {"lambdas": ["test.echo"], "priorities": [Priority.HIGH]}

    work = await controller.next_work("executor", **only)
    nothing = await controller.next_work("executor", timeout=SECOND / 10, **only)
    rest = await controller.next_work("executor")

    assert {task.claim.task_id for task in work.tasks} == set(high)
    assert not nothing.tasks
    assert rest.tasks


async def test_a_lambda_that_the_executor_does_not_serve_brings_nothing(
    controller: ControllerUnderTest,
) -> None:
    await controller.attach("executor", os.getpid(), "test.echo")
    await controller.attach("other", os.getpid(), "test.wait")
    await controller.enqueue_new(1, "test.wait")

    work = await controller.next_work("executor", timeout=SECOND / 10, lambdas=["test.wait"])

    assert not work.tasks


async def test_an_unknown_priority_is_refused(controller: ControllerUnderTest) -> None:
    await controller.attach("executor", os.getpid())

    refused = await refusal(controller.next_work("executor", priorities=[9]))

    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert "priorities" in str(refused)
