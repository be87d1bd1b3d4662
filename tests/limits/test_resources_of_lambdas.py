"""Resources that a lambda declares: each of its tasks takes units of them, whatever its caller names."""

from datetime import timedelta

import pytest

import duly
from duly_core.lambdas.names import QueueKey
from duly_core.limits.store import ResourceLimit, list_resources
from duly_core.tasks import polling, schedule
from duly_core.tasks.task import NewTask, ResourceNeed
from duly_wire.enums import Priority
from duly_wire.ids import new_task_id
from duly_wire.v1 import registry_pb2
from tests.fixtures import whole
from tests.fixtures.graph_states import claim_work, end
from tests.fixtures.task_states import LAMBDA

OTHER = "report.make"
GPU = schedule.written_needs([ResourceNeed("gpu")])


@pytest.fixture
async def registered(store, task_states):
    await whole.put_resource(store, ResourceLimit("gpu", 2))
    await task_states.register(LAMBDA, needs=GPU)
    await task_states.register(OTHER)
    return store


async def write(store, *needs, number=1, lambda_name=LAMBDA):
    tasks = [NewTask(new_task_id().bytes, lambda_name, b"{}", resources=needs) for _ in range(number)]
    await schedule.schedule(store, tasks)


async def used(store):
    return [(each.used, each.parked) for each in await list_resources(store, limit=10)]


async def test_each_task_takes_units_though_its_caller_names_none(registered):
    await write(registered, number=5)

    at_a_time = []
    while claimed := await claim_work(registered):
        at_a_time.append(len(claimed))
        await end(registered, claimed)

    assert at_a_time == [2, 2, 1]
    assert await used(registered) == [(0, 0)]


@pytest.mark.parametrize(("weight", "taken"), [(1, 1), (2, 2)])
async def test_of_a_resource_that_both_name_the_larger_weight_counts(registered, weight, taken):
    await write(registered, ResourceNeed("gpu", weight=weight))

    assert len(await claim_work(registered)) == 1
    assert await used(registered) == [(taken, 0)]


async def test_a_task_takes_what_it_names_and_what_its_lambda_and_its_quota_say(registered):
    for name in ("database", f"lambda:{LAMBDA}"):
        await whole.put_resource(registered, ResourceLimit(name, 3))
    await write(registered, ResourceNeed("database", weight=3))

    claimed = await claim_work(registered)

    assert await used(registered) == [(3, 0), (1, 0), (1, 0)]
    await end(registered, claimed)
    assert await used(registered) == [(0, 0)] * 3


async def test_references_are_sent_for_as_many_tasks_as_there_are_units(registered):
    await write(registered, number=5)
    await write(registered, number=5, lambda_name=OTHER)
    room = {QueueKey(name, Priority.NORMAL): 10 for name in (LAMBDA, OTHER)}

    sent = await polling.enqueue(registered, room, timedelta(minutes=1))

    assert sorted(each.queue.lambda_name for each in sent) == [LAMBDA] * 2 + [OTHER] * 5


async def test_a_host_declares_what_is_not_declared_yet_and_is_told_that_it_limits_nothing(
    frontend, registered
):
    app = duly.App(owner="o", version="1")
    app.callback("render", resources=[duly.Need("later", weight=2), "gpu"])(lambda: None)

    async def declare():
        request = registry_pb2.RegisterLambdasRequest(lambdas=app.lambdas())
        return (await frontend.registry.RegisterLambdas(request)).results[0]

    first = await declare()
    await whole.put_resource(registered, ResourceLimit("later", 2))
    second = await declare()

    assert first.in_force
    assert "run without a limit: resources[1].name: no resource 'later'" in first.warning
    assert (second.in_force, second.warning) == (True, "")
    async with duly.AsyncClient(frontend.address) as client:
        found = {each.name: each for each in await client.lambdas()}["render"]
    assert set(found.resources) == {duly.Need("later", weight=2), duly.Need("gpu")}


async def test_a_lambda_cannot_take_units_of_another_namespace(frontend, registered):
    await whole.put_resource(registered, ResourceLimit("shop/gpu", 1))
    app = duly.App(owner="o", version="1")
    app.callback("film/render", resources=["shop/gpu"])(lambda: None)

    request = registry_pb2.RegisterLambdasRequest(lambdas=app.lambdas())
    (result,) = (await frontend.registry.RegisterLambdas(request)).results

    assert "no resource 'shop/gpu' is declared for this lambda" in result.error.message


@pytest.mark.parametrize("resources", ["gpu", [duly.Need("gpu", weight=0)], [1], ["gpu"] * 9])
def test_what_no_task_could_need_is_refused_where_it_is_written(resources):
    with pytest.raises(duly.RegistrationError, match="resources"):
        duly.App().callback("render", resources=resources)(lambda: None)
