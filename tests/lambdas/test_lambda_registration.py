"""How a Controller divides the lambdas that it registers, and which of them it tries again."""

import asyncio
from datetime import timedelta

import grpc
import pytest
from structlog.testing import capture_logs

from duly_controller.lambda_registration import LambdaRegistration, _divided
from duly_wire.v1 import registry_pb2, task_pb2


def lambdas(number, tables=0, payload=b""):
    made = [registry_pb2.Lambda(name=f"lambda.{place}") for place in range(number)]
    for each in made:
        for place in range(tables):
            each.time_tables.add(name=f"{each.name}-{place}", payload=payload)
    return made


def test_a_call_registers_as_many_lambdas_as_the_registry_takes():
    made = lambdas(2_001)

    parts = list(_divided(made))

    assert [len(part) for part in parts] == [1_000, 1_000, 1]
    assert [each for part in parts for each in part] == made


def test_many_time_tables_and_large_ones_go_in_calls_of_their_own():
    assert [len(part) for part in _divided(lambdas(5, tables=400))] == [2, 2, 1]
    assert [len(part) for part in _divided(lambdas(3, tables=1_000))] == [1, 1, 1]
    assert [len(part) for part in _divided(lambdas(4, tables=1, payload=bytes(400_000)))] == [2, 2]
    assert list(_divided([])) == []


def test_a_call_has_a_lambda_once_and_no_more_resources_than_the_registry_takes():
    made = lambdas(4)
    for each in made:
        for place in range(50):
            each.declared_resources.add(name=f"{each.name}-{place}")

    assert [len(part) for part in _divided(made)] == [2, 2]
    assert [len(part) for part in _divided([*lambdas(2), lambdas(1)[0]])] == [2, 1]


class Registry:
    """Answers as the test says, and remembers what was sent: names and versions."""

    def __init__(self):
        self.sent = []
        self.away = True
        self.failure = None

    async def RegisterLambdas(self, request, **_):  # noqa: N802 (the wire's name)
        self.sent.append([(each.name, each.version) for each in request.lambdas])
        failure, away = self.failure, self.away
        await asyncio.sleep(0)
        if failure is not None:
            raise failure
        answer = registry_pb2.RegisterLambdasResponse()
        for _each in request.lambdas:
            result = answer.results.add()
            if away:
                result.error.code = task_pb2.ERROR_CODE_CELL_UNAVAILABLE
                result.error.message = "cell b does not answer"
        return answer

    async def come_round(self, calls):
        """Return after so many more calls, or turns of the loop that would do for many more."""
        last = len(self.sent) + calls
        for _ in range(100 * calls):
            if len(self.sent) >= last:
                break
            await asyncio.sleep(0)


@pytest.fixture
def registry():
    return Registry()


@pytest.fixture
async def registration(registry):
    made = LambdaRegistration(registry, timedelta(seconds=10), away_again=timedelta())
    yield made
    await made.stop()


async def declare(registration, version, name="b/x", owner="us"):
    return await registration.register([registry_pb2.Lambda(name=name, owner=owner, version=version)])


async def test_once_a_cell_is_back_only_the_newest_declaration_of_each_lambda_is_registered(
    registry, registration
):
    with capture_logs() as logs:
        await declare(registration, "c0ffee")
        await declare(registration, "badcafe")
        await declare(registration, "1.10", name="b/y")
        await declare(registration, "1.9", name="b/y")  # an older Executor of the same host
        await registry.come_round(20)
        registry.away = False
        sent = len(registry.sent)
        await registry.come_round(5)

    assert registry.sent[sent:] == [[("b/x", "badcafe"), ("b/y", "1.10")]]
    warnings = [each for each in logs if "does not answer" in each["event"]]
    assert 5 <= len(warnings) <= 10  # one for each attach, and ever fewer


async def test_declarations_of_several_owners_are_all_left_to_the_registry(registry, registration):
    await declare(registration, "1")
    await declare(registration, "2", owner="others")
    registry.away = False
    sent = len(registry.sent)
    await registry.come_round(5)

    # of one call the registry takes the last
    assert sorted(registry.sent[sent:]) == [[("b/x", "1")], [("b/x", "2")]]


async def test_a_declaration_that_met_no_registry_is_not_sent_after_a_newer_one(registry, registration):
    registry.away = False
    registry.failure = grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata()
    )
    older = asyncio.create_task(declare(registration, "c0ffee"))
    await registry.come_round(1)
    registry.failure = None
    await declare(registration, "badcafe")

    assert await older == []
    assert registry.sent[-1] == [("b/x", "badcafe")]
