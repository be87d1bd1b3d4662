"""Weights of fair keys: who sets them, what is refused, and what is shown."""

import pytest

from duly.client import AsyncClient
from duly.errors import InvalidTaskError, UnknownLambdaError
from duly_core.gates.cache import GateCache
from duly_core.tasks import turns
from tests.fixtures.task_states import LAMBDA


@pytest.fixture
async def client(frontend):
    async with AsyncClient(frontend.address) as opened:
        yield opened


async def test_weights_are_set_kept_removed_and_known_to_who_picks(client, store, task_states):
    await task_states.register()
    await task_states.new(fair_key="ada")
    await turns.find_fair_lambdas(store)
    cache = GateCache(store)

    await client.set_fair_weights(LAMBDA, {"ada": 3, "bob": 1_000, "": 2})
    await client.set_fair_weights(LAMBDA, {"bob": None, "ada": 4})
    await cache.run_once()

    found = {each.fair_key: (each.weight, each.waiting) for each in await client.fair_keys(LAMBDA)}
    assert found == {"": (2, 0), "ada": (4, 1)}
    assert cache.fair == {LAMBDA: True}


async def test_keys_are_listed_page_by_page_with_what_waits(client, task_states):
    await task_states.register()
    for number in range(205):
        await task_states.new(fair_key=f"k{number:03}")
    await task_states.new(fair_key="k007")

    found = await client.fair_keys(LAMBDA)

    assert [each.waiting for each in found if each.fair_key == "k007"] == [2]
    assert len(found) == 205
    assert len(await client.fair_keys(LAMBDA, max_keys=7)) == 7


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"ada": 0}, "must be 1 to 1,000, not 0"),
        ({"ada": -1}, "must be 1 to 1,000"),
        ({"ada": 1_001}, "must be 1 to 1,000"),
        ({"a" * 129: 2}, "fair_key"),
        ({}, "is empty"),
        ({str(number): 2 for number in range(1_001)}, "may have 1,000 weights"),
    ],
)
async def test_a_wrong_weight_is_refused_and_changes_nothing(client, task_states, weights, said):
    await task_states.register()
    await client.set_fair_weights(LAMBDA, {"bob": 2})

    with pytest.raises(InvalidTaskError, match=said):
        await client.set_fair_weights(LAMBDA, {"bob": 5} | weights if weights else weights)

    assert [(each.fair_key, each.weight) for each in await client.fair_keys(LAMBDA)] == [("bob", 2)]


async def test_weights_of_what_is_no_lambda_are_refused(client, task_states):
    await task_states.register()

    with pytest.raises(UnknownLambdaError):
        await client.set_fair_weights("no.lambda", {"ada": 2})
    with pytest.raises(InvalidTaskError, match="must be a lambda"):
        await client.set_fair_weights(f"{LAMBDA}@2", {"ada": 2})
