"""Quotas of lambdas and namespaces: each task takes a unit, though neither client nor owner names the quota."""

from datetime import timedelta

import pytest

from duly_core.lambdas.names import QueueKey
from duly_core.limits.store import Rate, ResourceLimit
from duly_core.tasks import polling, schedule
from duly_core.tasks import store as tasks
from duly_core.tasks.task import ResourceNeed
from duly_wire.enums import Outcome, Priority
from tests.fixtures import whole
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, LAMBDA
from tests.limits.test_store_resources import OTHER, a_task, claim_all, end, scheduled, state

QUOTA = f"lambda:{LAMBDA}"


def plain(**fields):
    return a_task(resources=(), **fields)


@pytest.fixture
async def registered(store, task_states):
    await task_states.register()
    await task_states.register(OTHER)
    return store


async def test_a_quota_limits_the_tasks_of_its_lambda_those_that_wait_already_and_no_others(registered):
    await scheduled(registered, *(plain() for _ in range(5)), *(plain(lambda_name=OTHER) for _ in range(5)))
    await whole.put_resource(registered, ResourceLimit(QUOTA, 2))

    running = await claim_all(registered, LAMBDA, OTHER)

    assert sorted(task.lambda_name for task in running) == [LAMBDA] * 2 + [OTHER] * 5
    assert await state(registered, QUOTA) == (2, 3)
    await end(registered, running)
    assert len(await claim_all(registered, LAMBDA, OTHER)) == 2


async def test_a_task_takes_its_own_resources_and_the_quota_or_nothing(registered):
    await whole.put_resource(registered, ResourceLimit(QUOTA, 5))
    await whole.put_resource(registered, ResourceLimit("database", 1))
    await scheduled(registered, a_task(), a_task(), plain())

    assert len(await claim_all(registered)) == 2

    assert await state(registered, QUOTA) == (2, 0)
    assert await state(registered) == (1, 1)


async def test_the_quota_is_no_part_of_what_a_repeated_call_must_say(registered):
    await whole.put_resource(registered, ResourceLimit(QUOTA, 1))
    task = plain(idempotency_key="a")
    await scheduled(registered, task, plain())
    await claim_all(registered)

    (answer,) = await schedule.schedule(registered, [task])

    assert answer.verdict is schedule.Scheduling.REPEATED
    (row,) = (await tasks.get_tasks(registered, [task.task_id])).values()
    assert row["resources"] is None


async def test_a_lambda_may_have_a_rate(registered):
    await whole.put_resource(registered, ResourceLimit(QUOTA, 100, rate=Rate(1, timedelta(hours=1), burst=3)))
    await scheduled(registered, *(plain() for _ in range(5)))

    assert len(await claim_all(registered)) == 3


async def test_what_is_enqueued_counts(registered):
    await whole.put_resource(registered, ResourceLimit(QUOTA, 2))
    await scheduled(registered, *(plain() for _ in range(3)), a_task(resources=(ResourceNeed("gone"),)))
    room = {QueueKey(LAMBDA, Priority.NORMAL): 100}

    due = await polling.enqueue(registered, room, ENQUEUE_TIMEOUT)
    assert len(due) == 2
    assert await polling.put_back(registered, [due[0].task_id], timedelta(hours=1)) == {LAMBDA}

    assert len(await polling.enqueue(registered, room, ENQUEUE_TIMEOUT)) == 1


SHOP = ("shop/mail.send", "shop/order.price")
NAMESPACE = "namespace:shop"


@pytest.fixture
async def shop(registered, task_states):
    for name in (*SHOP, f"{SHOP[1]}@2"):
        await task_states.register(name)
    return registered


async def test_the_quota_of_a_namespace_limits_all_its_lambdas_together_and_no_others(shop):
    await scheduled(
        shop, *(plain(lambda_name=name) for name in (*SHOP, f"{SHOP[1]}@2", LAMBDA) for _ in range(3))
    )
    await whole.put_resource(shop, ResourceLimit(NAMESPACE, 4))

    running = await claim_all(shop, *SHOP, f"{SHOP[1]}@2", LAMBDA)

    assert [task.lambda_name for task in running].count(LAMBDA) == 3
    assert len(running) == 4 + 3
    assert await state(shop, NAMESPACE) == (4, 5)
    await end(shop, running)
    assert len(await claim_all(shop, *SHOP, f"{SHOP[1]}@2")) == 4


async def test_lambdas_without_a_namespace_are_in_the_default_one(shop):
    await scheduled(shop, *(plain(lambda_name=name) for name in (LAMBDA, OTHER, SHOP[0])))
    await whole.put_resource(shop, ResourceLimit("namespace:default", 1))

    assert len(await claim_all(shop, LAMBDA, OTHER)) == 1
    assert len(await claim_all(shop, SHOP[0])) == 1


async def test_a_task_that_is_pinned_to_a_version_takes_a_unit_of_its_lambdas_quota(registered, task_states):
    await task_states.register(f"{LAMBDA}@2")
    await whole.put_resource(registered, ResourceLimit(QUOTA, 2))
    await scheduled(registered, plain(), *(plain(lambda_name=f"{LAMBDA}@2") for _ in range(3)))

    assert len(await claim_all(registered, LAMBDA, f"{LAMBDA}@2")) == 2
    assert await state(registered, QUOTA) == (2, 2)


async def test_a_task_takes_one_unit_of_each_quota_also_when_one_is_declared_after_it_was_picked(shop):
    quota = f"lambda:{SHOP[0]}"
    await whole.put_resource(shop, ResourceLimit(quota, 5))
    await scheduled(shop, plain(lambda_name=SHOP[0]), a_task(lambda_name=SHOP[0], name="database"))
    running = await claim_all(shop, SHOP[0])
    await whole.put_resource(shop, ResourceLimit(NAMESPACE, 5))
    await end(shop, running, Outcome.RETRIABLE_FAILURE, retry_after=timedelta())

    again = await claim_all(shop, SHOP[0])

    assert len(again) == 2
    assert await state(shop, quota) == (2, 0)
    assert await state(shop, NAMESPACE) == (2, 0)
    await end(shop, again)
    assert await state(shop, quota) == await state(shop, NAMESPACE) == (0, 0)
