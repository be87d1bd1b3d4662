"""Quotas of lambdas: each task takes a unit of `lambda:NAME`, though neither client nor owner names it."""

from datetime import timedelta

import pytest

from duly.enums import Outcome, Priority
from duly_core.routing import QueueKey
from duly_core.store import polling, resources, schedule, tasks
from duly_core.store.resources import Deletion, Rate, ResourceLimit
from duly_core.task import ResourceNeed
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, LAMBDA
from tests.integration.test_store_resources import OTHER, a_task, claim_all, end, scheduled, state

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
    await resources.put_resource(registered, ResourceLimit(QUOTA, 2))

    running = await claim_all(registered, LAMBDA, OTHER)

    assert sorted(task.lambda_name for task in running) == [LAMBDA] * 2 + [OTHER] * 5
    assert await state(registered, QUOTA) == (2, 3)
    await end(registered, running)
    assert len(await claim_all(registered, LAMBDA, OTHER)) == 2


async def test_what_fails_waits_for_its_turn_in_the_quota_again(registered):
    await resources.put_resource(registered, ResourceLimit(QUOTA, 1))
    first, second = await scheduled(registered, plain(), plain())

    (running,) = await claim_all(registered)
    await end(registered, [running], Outcome.RETRIABLE_FAILURE, retry_after=timedelta())
    (other,) = await claim_all(registered)

    assert {running.task_id, other.task_id} <= {first.task_id, second.task_id}
    assert await state(registered, QUOTA) == (1, 1)
    await end(registered, [other])
    (last,) = await claim_all(registered)
    await end(registered, [last])
    assert await state(registered, QUOTA) == (0, 0)


async def test_a_task_takes_its_own_resources_and_the_quota_or_nothing(registered):
    await resources.put_resource(registered, ResourceLimit(QUOTA, 5))
    await resources.put_resource(registered, ResourceLimit("database", 1))
    await scheduled(registered, a_task(), a_task(), plain())

    assert len(await claim_all(registered)) == 2

    assert await state(registered, QUOTA) == (2, 0)
    assert await state(registered) == (1, 1)


async def test_the_quota_is_no_part_of_what_a_repeated_call_must_say(registered):
    await resources.put_resource(registered, ResourceLimit(QUOTA, 1))
    task = plain(idempotency_key="a")
    await scheduled(registered, task, plain())
    await claim_all(registered)

    (answer,) = await schedule.schedule(registered, [task])

    assert answer.verdict is schedule.Scheduling.REPEATED
    (row,) = (await tasks.get_tasks(registered, [task.task_id])).values()
    assert row["resources"] is None


async def test_a_quota_of_none_pauses_a_lambda_until_it_is_raised(registered):
    await scheduled(registered, plain())
    await resources.put_resource(registered, ResourceLimit(QUOTA, 0))
    assert await claim_all(registered) == []
    assert await resources.delete_resource(registered, QUOTA) is Deletion.IN_USE

    assert await resources.put_resource(registered, ResourceLimit(QUOTA, 1_000_000)) == {LAMBDA}

    (task,) = await claim_all(registered)
    await end(registered, [task])
    assert await resources.delete_resource(registered, QUOTA) is Deletion.DONE
    await scheduled(registered, plain())
    assert len(await claim_all(registered)) == 1


async def test_a_lambda_may_have_a_rate(registered):
    await resources.put_resource(
        registered, ResourceLimit(QUOTA, 100, rate=Rate(1, timedelta(hours=1), burst=3))
    )
    await scheduled(registered, *(plain() for _ in range(5)))

    assert len(await claim_all(registered)) == 3


async def test_what_is_enqueued_counts(registered):
    await resources.put_resource(registered, ResourceLimit(QUOTA, 2))
    await scheduled(registered, *(plain() for _ in range(3)), a_task(resources=(ResourceNeed("gone"),)))
    room = {QueueKey(LAMBDA, Priority.NORMAL): 100}

    due = await polling.enqueue(registered, room, ENQUEUE_TIMEOUT)
    assert len(due) == 2
    assert await polling.put_back(registered, [due[0].task_id], timedelta(hours=1)) == {LAMBDA}

    assert len(await polling.enqueue(registered, room, ENQUEUE_TIMEOUT)) == 1
