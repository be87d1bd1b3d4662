"""RegistryService: lambdas as their hosts declare them, over the real wire and the real store."""

import asyncio
from datetime import timedelta

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from duly_controller.lambda_registration import LambdaRegistration
from duly_core.lambdas import store as lambdas
from duly_core.lambdas.cache import LambdaCache
from duly_wire.v1 import frontend_pb2, registry_pb2, task_pb2
from tests.fixtures.services import refusal
from tests.fixtures.task_states import LAMBDA

Backoff, Batch = registry_pb2.Backoff, registry_pb2.Batch
ENDLESS = Duration(seconds=2**63 - 1)
TOO_LONG = Duration(seconds=366 * 86400)
NAN = float("nan")


def declared(**fields):
    return registry_pb2.Lambda(**{"name": LAMBDA} | fields)


async def register(frontend, *declarations):
    request = registry_pb2.RegisterLambdasRequest(lambdas=declarations)
    return list((await frontend.registry.RegisterLambdas(request)).results)


async def listed(frontend):
    response = await frontend.registry.ListLambdas(registry_pb2.ListLambdasRequest())
    return {getattr(each, "lambda").name: getattr(each, "lambda") for each in response.lambdas}


BAD_DECLARATIONS = {
    "no name": ({"name": ""}, "name", "1 to 128"),
    "upper case": ({"name": "Mail"}, "name", "a-z"),
    "NUL in the name": ({"name": "mail\x00"}, "name", "a-z"),
    "too long a name": ({"name": "m" * 129}, "name", "128"),
    "NUL in the owner": ({"owner": "team\x00"}, "owner", "NUL"),
    "too long an owner": ({"owner": "t" * 257}, "owner", "256"),
    "NUL in the version": ({"version": "1\x00"}, "version", "NUL"),
    "no attempts": ({"max_attempts": 0}, "max_attempts", "from 1"),
    "negative attempts": ({"max_attempts": -1}, "max_attempts", "from 1"),
    "too many attempts": ({"max_attempts": 1_000_001}, "max_attempts", "1,000,000"),
    "no crashes": ({"max_crashes": 0}, "max_crashes", "from 1"),
    "more crashes than are kept": ({"max_crashes": 1_001}, "max_crashes", "1,000"),
    "no window for crashes": ({"crash_window": Duration()}, "crash_window", "from 1us to 365d"),
    "a batch of nothing": ({"batch": Batch()}, "batch.size", "from 1 to 1,000"),
    "a batch too large": ({"batch": Batch(size=1_001)}, "batch.size", "from 1 to 1,000"),
    "a batch that waits too long": ({"batch": Batch(size=1, wait=Duration(seconds=61))}, "batch.wait", "1m"),
    "a window too long": ({"crash_window": TOO_LONG}, "crash_window", "365d"),
    "negative payloads": ({"payload_limit": -1}, "payload_limit", "from 0"),
    "payloads too large": ({"payload_limit": 1024 * 1024 + 1}, "payload_limit", "1,048,576"),
    "no runtime": ({"max_runtime": Duration()}, "max_runtime", "from 1us to 365d"),
    "runtime below a microsecond": (
        {"max_runtime": Duration(nanos=999)},
        "max_runtime",
        "from 1us to 365d",
    ),
    "negative runtime": ({"max_runtime": Duration(seconds=-1)}, "max_runtime", "from 1us to 365d"),
    "runtime too long": ({"max_runtime": TOO_LONG}, "max_runtime", "from 1us to 365d"),
    "endless runtime": ({"max_runtime": ENDLESS}, "max_runtime", ""),
    "contradictory runtime": ({"max_runtime": Duration(seconds=1, nanos=-1)}, "max_runtime", "contradict"),
    "negative backoff": ({"backoff": Backoff(initial=Duration(seconds=-1))}, "backoff.initial", "from 0"),
    "endless backoff": ({"backoff": Backoff(max=ENDLESS)}, "backoff.max", ""),
    "backoff too long": ({"backoff": Backoff(max=TOO_LONG)}, "backoff.max", "365d"),
    "shrinking backoff": ({"backoff": Backoff(factor=0.5)}, "backoff.factor", "from 1"),
    "exploding backoff": ({"backoff": Backoff(factor=1e300)}, "backoff.factor", "1000"),
    "backoff by no number": ({"backoff": Backoff(factor=NAN)}, "backoff.factor", "from 1"),
    "longest below first": (
        {"backoff": Backoff(initial=Duration(seconds=9), max=Duration(seconds=8))},
        "backoff.max",
        "below backoff.initial",
    ),
}


async def test_what_a_declaration_does_not_say_has_its_default(frontend):
    (result,) = await register(frontend, declared(owner="mail team", version="7"))

    policy = (await listed(frontend))[LAMBDA]
    assert not result.HasField("error")
    assert (policy.owner, policy.version) == ("mail team", "7")
    assert (policy.max_attempts, policy.max_crashes, policy.payload_limit) == (10, 3, 256 * 1024)
    assert policy.crash_window == Duration(seconds=72 * 3600)
    assert policy.max_runtime.ToTimedelta() == timedelta(hours=1)
    assert policy.backoff.initial.ToTimedelta() == timedelta(seconds=1)
    assert (policy.backoff.factor, policy.backoff.max.ToTimedelta()) == (2.0, timedelta(minutes=10))


async def test_a_whole_declaration_reads_back_as_it_was_made(frontend):
    whole = declared(
        owner="mail team",
        version="8",
        max_attempts=1,
        max_crashes=2,
        max_runtime=Duration(nanos=1000),
        backoff=Backoff(initial=Duration(), factor=1.0, max=Duration(seconds=365 * 86400)),
        payload_limit=0,
        crash_window=Duration(seconds=90),
        batch=Batch(size=1_000, wait=Duration(nanos=50_000_000)),
    )

    await register(frontend, declared(version="7"))
    await register(frontend, whole)

    assert (await listed(frontend))[LAMBDA] == whole


async def test_a_first_backoff_beyond_the_default_longest_raises_that(frontend):
    await register(frontend, declared(backoff=Backoff(initial=Duration(seconds=3600))))

    backoff = (await listed(frontend))[LAMBDA].backoff
    assert backoff.initial == backoff.max == Duration(seconds=3600)


async def test_each_bad_declaration_is_refused_by_its_field_and_the_good_ones_are_written(frontend):
    bad = [declared(**{"name": "bad"} | fields) for fields, _, _ in BAD_DECLARATIONS.values()]

    results = await register(frontend, declared(name="first"), *bad, declared(name="last"))

    for name, result in zip(BAD_DECLARATIONS, results[1:-1], strict=True):
        _, field, words = BAD_DECLARATIONS[name]
        assert (name, result.error.field) == (name, field)
        assert result.error.code == task_pb2.ERROR_CODE_INVALID_ARGUMENT
        assert words in result.error.message, name
    assert not results[0].HasField("error")
    assert set(await listed(frontend)) == {"first", "last"}


@pytest.mark.parametrize("count", [0, 1001])
async def test_a_call_with_none_or_too_many_is_refused(frontend, count):
    request = registry_pb2.RegisterLambdasRequest(lambdas=[declared(name=f"l{n}") for n in range(count)])

    refused = await refusal(frontend.registry.RegisterLambdas(request))

    assert (refused.code, refused.field) == (grpc.StatusCode.INVALID_ARGUMENT, "lambdas")
    assert "1 to 1,000" in refused.message
    assert await listed(frontend) == {}


@pytest.mark.long  # 5,000 lambdas
async def test_an_application_may_have_more_lambdas_than_one_call_takes(frontend):
    registrar = LambdaRegistration(frontend.registry, timedelta(seconds=30))
    lambdas = [declared(name=f"l{number}") for number in range(5_000)]
    lambdas.append(declared(name="BAD"))

    problems = await registrar._until_answered(lambdas)
    await registrar.stop()

    assert ["'BAD'" in problem for problem in problems] == [True]
    assert len(await listed(frontend)) == 5_000


async def test_hosts_that_declare_the_same_lambdas_at_once_do_not_hurt_each_other(frontend):
    names = [f"l{number:02}" for number in range(20)]

    answers = await asyncio.gather(
        *(
            register(
                frontend, *(declared(name=name, version=str(host)) for name in names[host:] + names[:host])
            )
            for host in range(8)
        )
    )

    assert not any(result.HasField("error") for results in answers for result in results)
    assert list(await listed(frontend)) == names


async def test_a_task_can_be_scheduled_the_moment_its_lambda_is_registered(frontend):
    for number in range(10):
        name = f"l{number}"
        await register(frontend, declared(name=name))

        request = frontend_pb2.ScheduleRequest(tasks=[frontend_pb2.NewTask(**{"lambda": name})])
        (result,) = (await frontend.stub.Schedule(request)).results
        assert result.created


async def test_a_registration_that_lands_while_the_registry_is_being_read_is_not_forgotten(
    task_states, monkeypatch
):
    """What was read before the registration must not count as fresh after it."""
    read, registered = asyncio.Event(), asyncio.Event()
    really = lambdas.payload_limits_and_ramps

    async def slow_list(store):
        answer = await really(store)
        read.set()
        await registered.wait()
        return answer

    monkeypatch.setattr(lambdas, "payload_limits_and_ramps", slow_list)
    known = LambdaCache(task_states.store)
    reading = asyncio.ensure_future(known.payload_limits({LAMBDA}))
    await read.wait()
    await task_states.register("report.make")
    known.forget()
    registered.set()
    await reading

    assert "report.make" in await known.payload_limits({"report.make"})


async def test_a_lower_payload_limit_holds_for_tasks_scheduled_after_it(frontend):
    await register(frontend, declared(payload_limit=10))
    await register(frontend, declared(payload_limit=3))

    request = frontend_pb2.ScheduleRequest(
        tasks=[frontend_pb2.NewTask(**{"lambda": LAMBDA}, payload=b"1234")]
    )
    (result,) = (await frontend.stub.Schedule(request)).results

    assert result.error.code == task_pb2.ERROR_CODE_PAYLOAD_TOO_LARGE
