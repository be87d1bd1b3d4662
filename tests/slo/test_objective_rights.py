"""How many objectives a caller may set who does not operate all lambdas: it leaves room for those of others."""

import hashlib

import pytest

import duly
from duly_core.access import store as access
from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_core.slo.objectives import MOST_OBJECTIVES
from duly_frontend.slo import service
from tests.fixtures.services import serve_frontend
from tests.fixtures.task_states import SECOND


@pytest.fixture
async def setters(store):
    """Clients of an operator of a namespace, of one of another, and of one of all lambdas."""
    patterns = {"shop": "shop/*", "team": "team/*", "ops": "*"}
    await access.add_grants(store, [Grant(name, Role.OPERATOR, each) for name, each in patterns.items()])
    for name in patterns:
        await access.add_token(store, hashlib.sha256(f"duly_{name}".encode()).digest(), name, name)
    async with (
        serve_frontend(store, authorizer=Authorizer(AccessCache(store))) as served,
        duly.AsyncClient(served.address, token="duly_shop") as shop,
        duly.AsyncClient(served.address, token="duly_team") as team,
        duly.AsyncClient(served.address, token="duly_ops") as ops,
    ):
        yield shop, team, ops


async def test_an_operator_of_a_namespace_uses_up_its_own_room_only(setters, monkeypatch):
    monkeypatch.setattr(service, "MOST_OF_ONE", 1)
    shop, team, ops = setters
    await shop.put_objective("shop/pay", 0.9, start_within=SECOND)

    with pytest.raises(duly.InvalidTaskError, match="you operate may have 1 objectives"):
        await shop.put_objective("shop/*", 0.9, start_within=SECOND)

    assert (await shop.put_objective("shop/pay", 0.8)).share == 0.8
    await team.put_objective("team/*", 0.9, start_within=SECOND)
    await ops.put_objective("shop/*", 0.9, start_within=SECOND)
    assert {each.lambda_name for each in await ops.objectives()} == {"shop/*", "shop/pay", "team/*"}


async def test_operators_of_all_lambdas_find_room_beside_the_objectives_of_namespaces(setters, store):
    assert service.MOST_OF_ONE < service.MOST_OF_TENANTS < MOST_OBJECTIVES
    async with store.connection() as connection:
        await connection.execute(
            "insert into start_objective select 'l' || n, 0.9, '1 s', now() from generate_series(1, %s) as n",
            [service.MOST_OF_TENANTS],
        )
    shop, _, ops = setters

    with pytest.raises(duly.InvalidTaskError, match="there may be 900 in all"):
        await shop.put_objective("shop/pay", 0.9, start_within=SECOND)

    assert (await ops.put_objective("shop/pay", 0.9, start_within=SECOND)).changed is None
    assert (await shop.put_objective("shop/pay", 0.8)).share == 0.8
