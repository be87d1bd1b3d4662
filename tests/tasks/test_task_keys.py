"""A task is named by its lambda and its idempotency key wherever an id names it: SDK and commands, against a Frontend that serves."""

import json
from datetime import timedelta

import pytest

import duly
from tests.fixtures.task_states import LAMBDA

KEY = duly.TaskKey(LAMBDA, "order-7")
NOBODY = duly.TaskKey(LAMBDA, "order-8")


@pytest.fixture
async def client(frontend, task_states):
    await task_states.register()
    async with duly.AsyncClient(frontend.address) as client:
        yield client


@pytest.fixture
async def task(client):
    return await client.schedule(LAMBDA, {"n": 7}, idempotency_key="order-7", delay=timedelta(hours=1))


async def test_a_key_names_its_task_in_each_call_that_takes_an_id(client, task):
    assert (await client.get(KEY)).task_id == task.task_id
    assert (await client.explain(KEY)).task_id == task.task_id
    assert await client.update(KEY, priority=duly.Priority.HIGH) is duly.TaskStatus.NEW
    found = await client.get_many([NOBODY, task, KEY])
    assert [each and each.priority for each in found] == [None, duly.Priority.HIGH, duly.Priority.HIGH]
    assert await client.cancel(KEY) is duly.TaskStatus.CANCELLED
    assert (await client.wait(KEY)).status is duly.TaskStatus.CANCELLED


async def test_a_key_that_no_task_has_is_an_error_of_its_own(client, task):
    unknown = "no task of .* with the key 'order-8'"
    for call in (
        client.get(NOBODY),
        client.wait_many([task, NOBODY]),
        client.explain(NOBODY),
        client.cancel(NOBODY),
    ):
        with pytest.raises(duly.TaskNotFoundError, match=unknown):
            await call

    lost, cancelled = await client.cancel_many([NOBODY, KEY])

    assert isinstance(lost, duly.TaskNotFoundError)
    assert cancelled is duly.TaskStatus.CANCELLED
    with pytest.raises(duly.InvalidTaskError, match="1 to 255"):
        await client.get(duly.TaskKey(LAMBDA, ""))


async def test_the_commands_take_a_lambda_and_keys(run_duly, task):
    named = ("--lambda", LAMBDA, "--key", "order-7")

    got = await run_duly("get", *named, "--json")
    explained = await run_duly("explain", *named, "--json", "--no-history")
    updated = await run_duly("update", *named, "--priority", "low")
    cancelled = await run_duly("cancel", *named)
    waited = await run_duly("wait", *named, "--json")

    assert {json.loads(each.stdout)["task_id"] for each in (got, explained, waited)} == {task.task_id}
    assert updated.stdout == f"{LAMBDA} with the key 'order-7': updated, is new\n"
    assert cancelled.stdout == f"{LAMBDA} with the key 'order-7': cancelled\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["get"], "give task ids, or --lambda and --key"),
        (["get", "--key", "a"], "--lambda and --key go together"),
        (["wait", "--lambda", "a"], "--lambda and --key go together"),
        (["cancel", "--key", "a"], "--lambda and --key go together"),
        (["explain", "x", "--lambda", "a", "--key", "b"], "name one task"),
    ],
)
async def test_a_command_without_a_name_of_a_task_says_how_to_give_one(run_duly, arguments, said):
    refused = await run_duly(*arguments)

    assert refused.exit_code == 2
    assert said in " ".join(refused.stderr.replace("│", " ").split())
