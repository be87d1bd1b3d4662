"""What KEDA is told of pools: the number of workers of the last plan, or why there is none."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import grpc
import psycopg
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from duly_autoscaler.__main__ import build
from duly_autoscaler.drivers.keda import KEDA, KedaDriver
from duly_autoscaler.keda import METRIC, ExternalScalerServicer, PlanReader
from duly_autoscaler.leadership import Leadership
from duly_autoscaler.loads import CellLoads
from duly_autoscaler.rounds import Rounds
from duly_autoscaler.settings import AutoscalerSettings
from duly_core.errors import SettingsError
from duly_core.gates.cache import FixedGates
from duly_core.pools import store as pools
from duly_core.pools.rules import Pool
from duly_core.rpc.server import RpcServer
from duly_core.rpc.settings import RpcSettings
from duly_wire.externalscaler import externalscaler_pb2 as wire
from duly_wire.externalscaler.externalscaler_pb2_grpc import ExternalScalerStub
from tests.fixtures.database import ask
from tests.fixtures.task_states import LAMBDA
from tests.fixtures.waiting import until

SECOND = timedelta(seconds=1)
MOST_AGE = timedelta(minutes=1)
POOL = Pool(name="mail", lambdas=(LAMBDA,), maximum=9, idle_time=timedelta(), driver=KEDA)


@pytest.fixture
async def keda(store):
    """KEDA's side of a server that never leads."""
    stop = asyncio.Event()
    plans = PlanReader(lambda: store, fresh=timedelta(), timeout=0.5 * SECOND)
    scaler = ExternalScalerServicer(plans, 0.05 * SECOND, MOST_AGE, stop)
    server = RpcServer("127.0.0.1:0", [scaler], RpcSettings())
    async with grpc.aio.insecure_channel(await server.start()) as channel:
        yield ExternalScalerStub(channel)
    stop.set()
    await server.stop()
    await plans.close()


@pytest.fixture
async def rounds(store, task_states):
    """An autoscaler that leads, with the driver for KEDA."""
    await task_states.register()
    leadership = Leadership(store, "a", timedelta(minutes=5))
    made = Rounds(
        store,
        leadership,
        {KEDA: KedaDriver()},
        CellLoads.of_sole_store(store, FixedGates()),
        2 * SECOND,
        20 * SECOND,
    )
    await leadership.run_once()
    yield made
    await made.close()
    await leadership.give_up()


async def declare(store, pool=POOL, **changes):
    changed = replace(pool, **changes)
    await pools.put_pool(store, changed.name, lambda _: changed)


def asks_for(**metadata):
    return wire.ScaledObjectRef(name="worker", namespace="duly", scalerMetadata=metadata)


async def test_keda_reads_the_number_of_workers_of_the_last_plan_and_scales_to_zero(store, keda, rounds):
    await declare(store, minimum=3)
    await declare(store, name="idle")
    await rounds.run_once()
    await rounds.run_once()

    told = {}
    for pool in ("mail", "idle"):
        request = asks_for(pool=pool, scalerAddress="duly-autoscaler:7406")
        (spec,) = (await keda.GetMetricSpec(request)).metricSpecs
        asked = wire.GetMetricsRequest(scaledObjectRef=request, metricName=spec.metricName)
        (value,) = (await keda.GetMetrics(asked)).metricValues
        is_active = (await keda.IsActive(request)).result
        told[pool] = (spec.metricName, spec.targetSize, value.metricName, value.metricValue, is_active)

    assert told == {"mail": (METRIC, 1, METRIC, 3, True), "idle": (METRIC, 1, METRIC, 0, False)}
    plans = await pools.list_plans(store, ["mail", "idle"])
    assert [plan.failure for plan in plans.values()] == [None, None]


async def test_what_keda_cannot_be_told_is_refused_with_the_reason(store, keda, rounds, clock):
    await declare(store, name="old", minimum=1)
    await rounds.run_once()
    await clock.tick(MOST_AGE + SECOND)
    await declare(store, name="new")
    cases = [
        ({}, "INVALID_ARGUMENT", "scalerMetadata.pool"),
        ({"pool": "A;B"}, "INVALID_ARGUMENT", "scalerMetadata.pool"),
        ({"pool": "moon"}, "NOT_FOUND", "there is no pool moon"),
        ({"pool": "new"}, "UNAVAILABLE", "nobody has planned for the pool new"),
        ({"pool": "old"}, "UNAVAILABLE", "the plan of the pool old is 6"),
    ]

    found = []
    for metadata, _, _ in cases:
        said = []
        for call in (keda.IsActive, first_of(keda.StreamIsActive)):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(asks_for(**metadata))
            said.append((refused.value.code().name, refused.value.details()))
        found.append(said)

    for said, (_, code, words) in zip(found, cases, strict=True):
        assert [(told, words in details) for told, details in said] == [(code, True)] * 2
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await keda.GetMetrics(wire.GetMetricsRequest())
    (detail,) = rpc_status.from_call(refused.value).details
    broken = error_details_pb2.BadRequest()
    assert detail.Unpack(broken)
    assert [each.field for each in broken.field_violations] == ["scalerMetadata.pool"]


def first_of(stream):
    async def call(request):
        return await stream(request).read()

    return call


async def test_a_store_that_hangs_is_told_in_time_and_asked_once_for_all(store, keda, dsn):
    await declare(store)
    with psycopg.connect(dsn) as holder:
        holder.execute("lock table worker_pool in access exclusive mode")

        answers = await asyncio.gather(
            *(keda.IsActive(asks_for(pool="mail"), timeout=20) for _ in range(20)), return_exceptions=True
        )
        waiting = holder.execute(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        ).fetchone()

    assert {(each.code().name, each.details()) for each in answers} == {
        ("UNAVAILABLE", "no answer of Postgres within 0.5 s")
    }
    assert waiting[0] <= 1


async def test_a_stream_tells_at_once_and_at_each_change(store, keda, rounds):
    await declare(store)
    await rounds.run_once()
    answers = []

    async def listen():
        stream = keda.StreamIsActive(asks_for(pool="mail"))
        while (answer := await stream.read()) is not grpc.aio.EOF:
            answers.append(answer.result)

    listening = asyncio.ensure_future(listen())
    for minimum, told in ((0, [False]), (2, [False, True]), (3, [False, True]), (0, [False, True, False])):
        await declare(store, minimum=minimum)
        await rounds.run_once()
        await until(lambda told=told: answers == told)

    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_an_autoscaler_serves_keda_where_its_settings_say_and_stops_with_open_streams(
    store, dsn, tmp_path, monkeypatch, task_states
):
    await task_states.register()
    await declare(store, minimum=2)
    monkeypatch.setenv("DULY_STORE_DSN", dsn)
    address = f"unix:{tmp_path}/keda.sock"
    stop = asyncio.Event()
    serving = asyncio.ensure_future(build(listen="127.0.0.1:0", keda_address=address)(stop))

    async with grpc.aio.insecure_channel(address) as channel:
        stub = ExternalScalerStub(channel)

        await until(lambda: ask(dsn, "select from pool_plan"))
        active = await stub.IsActive(asks_for(pool="mail"), wait_for_ready=True, timeout=20)
        stream = stub.StreamIsActive(asks_for(pool="mail"))
        first = await stream.read()
        began = asyncio.get_running_loop().time()
        stop.set()
        await serving
        took = asyncio.get_running_loop().time() - began

    assert (active.result, first.result) == (True, True)
    assert took < 4  # it does not wait for rpc.shutdown_grace
    assert (await pools.list_plans(store, ["mail"]))["mail"].failure is None


def test_a_driver_of_the_same_name_contradicts_the_address():
    taken = '{"keda": {"kind": "command", "command": ["scale", "{workers}"]}}'

    AutoscalerSettings.load(drivers=taken)
    with pytest.raises(SettingsError, match="two drivers of one name"):
        AutoscalerSettings.load(drivers=taken, keda_address="127.0.0.1:7406")
