"""How fast clients may schedule tasks of a lambda, by its quota of scheduling."""

from datetime import timedelta

import pytest

import duly
from duly_core.limits.store import UNLIMITED, Rate, ResourceLimit
from duly_frontend.limits import scheduling_quotas
from tests.fixtures import whole
from tests.fixtures.task_states import LAMBDA

QUOTA = f"schedule:{LAMBDA}"


@pytest.fixture
async def clock(task_states, monkeypatch):
    """The Frontend's monotonic clock, which stands still."""
    await task_states.register()
    now = [1000.0]
    monkeypatch.setattr(scheduling_quotas, "monotonic", lambda: now[0])
    return now


async def outcomes(client, tasks):
    try:
        found = await client.schedule_many(tasks)
    except duly.ScheduleManyError as error:
        found = error.results
    return [type(each) for each in found]


async def test_no_more_tasks_are_scheduled_than_the_quota_allows(client, clock):
    await client.put_resource(QUOTA, rate=duly.Rate(10, timedelta(seconds=1), burst=2))

    first = await outcomes(client, [duly.NewTask(LAMBDA)] * 3)
    clock[0] += 0.1
    second = await outcomes(client, [duly.NewTask(LAMBDA)] * 2)

    assert first == [duly.ScheduledTask, duly.ScheduledTask, duly.QuotaExceededError]
    assert second == [duly.ScheduledTask, duly.QuotaExceededError]
    assert len([task async for task in client.list()]) == 3


async def test_a_refusal_says_when_to_try_again(client, clock):
    await client.put_resource(QUOTA, rate=duly.Rate(1, timedelta(minutes=1)))
    await client.schedule(LAMBDA)

    with pytest.raises(duly.QuotaExceededError, match=r"1/1m and 1 at once: schedule it again in 60\.000s"):
        await client.schedule(LAMBDA)


async def test_a_repeat_is_answered_though_the_quota_is_used_up(client, clock):
    await client.put_resource(QUOTA, rate=duly.Rate(1, timedelta(minutes=1)))
    first = await client.schedule(LAMBDA, {"n": 1}, idempotency_key="once")

    again = await client.schedule(LAMBDA, {"n": 1}, idempotency_key="once")

    assert (again.task_id, again.created) == (first.task_id, False)


async def test_a_repeat_counts_once(client, clock):
    await client.put_resource(QUOTA, rate=duly.Rate(1, timedelta(minutes=1), burst=2))
    for _ in range(3):
        await client.schedule(LAMBDA, idempotency_key="once")

    assert await outcomes(client, [duly.NewTask(LAMBDA)] * 2) == [duly.ScheduledTask, duly.QuotaExceededError]


async def test_each_priority_has_a_quota_of_its_own_if_it_is_per_key(client, clock):
    await client.put_resource(QUOTA, rate=duly.Rate(1, timedelta(minutes=1)), per_key=True)

    low = await outcomes(client, [duly.NewTask(LAMBDA, priority=duly.Priority.LOW)] * 2)
    urgent = await outcomes(client, [duly.NewTask(LAMBDA, priority=duly.Priority.URGENT)])

    assert low == [duly.ScheduledTask, duly.QuotaExceededError]
    assert urgent == [duly.ScheduledTask]


SHOP = ("shop/mail.send", "shop/order.price")


@pytest.fixture
async def shop(task_states, clock):
    for name in (*SHOP, f"{SHOP[0]}@2"):
        await task_states.register(name)
    return clock


async def test_a_namespaces_quota_of_scheduling_bounds_all_its_lambdas_together(client, shop):
    rate = duly.Rate(1, timedelta(minutes=1), burst=3)
    await client.put_resource("schedule-namespace:shop", rate=rate)
    pinned = duly.NewTask(SHOP[0], lambda_version="2")

    found = await outcomes(
        client, [duly.NewTask(SHOP[0]), duly.NewTask(SHOP[1]), pinned, duly.NewTask(SHOP[1])]
    )
    others = await outcomes(client, [duly.NewTask(LAMBDA)] * 2)

    assert found == [*[duly.ScheduledTask] * 3, duly.QuotaExceededError]
    assert others == [duly.ScheduledTask] * 2


async def test_what_one_quota_refuses_counts_for_no_other(client, shop):
    await client.put_resource(f"schedule:{SHOP[0]}", rate=duly.Rate(1, timedelta(minutes=1)))
    await client.put_resource("schedule-namespace:shop", rate=duly.Rate(1, timedelta(minutes=1), burst=2))

    found = await outcomes(client, [duly.NewTask(SHOP[0])] * 3 + [duly.NewTask(SHOP[1])] * 2)

    refused = duly.QuotaExceededError
    assert found == [duly.ScheduledTask, refused, refused, duly.ScheduledTask, refused]


async def test_pinned_tasks_count_for_the_quota_of_their_lambda(client, shop):
    await client.put_resource(f"schedule:{SHOP[0]}", rate=duly.Rate(1, timedelta(minutes=1)))

    found = await outcomes(client, [duly.NewTask(SHOP[0], lambda_version="2"), duly.NewTask(SHOP[0])])

    assert found == [duly.ScheduledTask, duly.QuotaExceededError]


async def test_there_are_no_quotas_of_versions_and_none_of_patterns(client, clock):
    for name, told in [
        ("lambda:shop/mail.send@2", "versions have no quotas: lambda:shop/mail.send counts"),
        ("schedule:mail.send@2", "versions have no quotas: schedule:mail.send counts"),
        ("namespace:shop/mail", "must be 1 to 128 of the characters"),
        ("schedule-namespace:shop/*", "must be 1 to 128 of the characters"),
    ]:
        with pytest.raises(duly.InvalidTaskError, match=told):
            await client.put_resource(name, rate=duly.Rate(1, timedelta(minutes=1)))


async def test_a_quota_that_is_removed_bounds_nothing(client, clock):
    await client.put_resource(QUOTA, rate=duly.Rate(1, timedelta(minutes=1)))
    await client.schedule(LAMBDA)
    await client.delete_resource(QUOTA)

    assert await outcomes(client, [duly.NewTask(LAMBDA)] * 3) == [duly.ScheduledTask] * 3


async def test_a_quota_of_another_frontend_is_known_within_seconds(client, clock, store):
    await client.schedule(LAMBDA)
    await whole.put_resource(store, ResourceLimit(QUOTA, UNLIMITED, rate=Rate(1, timedelta(minutes=1))))
    before = await outcomes(client, [duly.NewTask(LAMBDA)] * 2)
    clock[0] += scheduling_quotas.FRESH.total_seconds() + 0.1

    assert before == [duly.ScheduledTask] * 2
    assert await outcomes(client, [duly.NewTask(LAMBDA)] * 2) == [duly.ScheduledTask, duly.QuotaExceededError]


async def test_a_quota_of_scheduling_has_a_rate_and_no_capacity(client, clock):
    for capacity in [None, 3]:
        with pytest.raises(duly.InvalidTaskError, match="give a rate, and no capacity"):
            await client.put_resource(QUOTA, capacity)


async def test_no_task_names_a_quota(client, clock):
    for quota in [QUOTA, f"lambda:{LAMBDA}", "namespace:shop", "schedule-namespace:shop"]:
        with pytest.raises(duly.InvalidTaskError, match="is a quota: leave it out"):
            await client.schedule(LAMBDA, resources=[quota])
