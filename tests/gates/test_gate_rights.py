"""Who may set, replace and remove which gates; and that nobody is taken for a breaker."""

import hashlib
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

import duly
from duly_core.access import store as access
from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_core.gates import store as gates
from duly_frontend.gates import rights as gate_rights
from tests.fixtures.services import serve_frontend

GRANTS = [
    Grant("ann", Role.OWNER, "mail.send"),
    Grant("bob", Role.OWNER, "mail.send"),
    Grant("ops", Role.OPERATOR, "*"),
    Grant("shopkeeper", Role.OPERATOR, "shop/*"),
    Grant("breaker", Role.OPERATOR, "*"),
]


@pytest.fixture
async def frontend_of(store):
    await access.add_grants(store, GRANTS)
    for name in {grant.principal for grant in GRANTS}:
        digest = hashlib.sha256(f"duly_{name}_secret".encode()).digest()
        await access.add_token(store, digest, name, name)
    async with serve_frontend(store, authorizer=Authorizer(AccessCache(store))) as served:
        yield served


@pytest.fixture
async def client_of(frontend_of):
    async with AsyncExitStack() as stack:

        async def open_client(name):
            client = duly.AsyncClient(frontend_of.address, token=f"duly_{name}_secret")
            return await stack.enter_async_context(client)

        yield open_client


async def test_an_owner_pauses_and_resumes_the_own_lambda(client_of):
    ann = await client_of("ann")

    made = await ann.put_gate("night", duly.GateKind.PAUSE, "mail.send", collection="marketing")
    assert (made.owner, [gate.name for gate in await ann.gates()]) == ("ann", ["night"])
    await ann.put_gate("version", duly.GateKind.PAUSE, "mail.send@2")
    await ann.delete_gate("night")

    assert [gate.name for gate in await ann.gates()] == ["version"]


async def test_an_owner_may_set_no_other_gate(client_of, store):
    for kind, pattern in [
        (duly.GateKind.DROP, "mail.send"),
        (duly.GateKind.DELAY, "mail.send"),
        (duly.GateKind.PAUSE, "mail.send*"),
        (duly.GateKind.PAUSE, "mail.count"),
        (duly.GateKind.PAUSE, "*"),
    ]:
        ann = await client_of("ann")
        delay = {"delay": timedelta(minutes=1)} if kind is duly.GateKind.DELAY else {}

        with pytest.raises(duly.PermissionDeniedError):
            await ann.put_gate("other", kind, pattern, **delay)
        assert await gates.list_gates(store) == []


async def test_an_owner_neither_replaces_nor_removes_what_somebody_else_set(client_of, store):
    ann, bob, ops = [await client_of(name) for name in ("ann", "bob", "ops")]
    await ops.put_gate("incident", duly.GateKind.PAUSE, "mail.send")
    await bob.put_gate("bobs", duly.GateKind.PAUSE, "mail.send")

    for name in ("incident", "bobs"):
        with pytest.raises(duly.PermissionDeniedError, match="somebody else set"):
            await ann.put_gate(name, duly.GateKind.PAUSE, "mail.send", session="none")
        with pytest.raises(duly.PermissionDeniedError, match="only an operator"):
            await ann.delete_gate(name)

    assert {each.gate.name: each.gate.scope.session for each in await gates.list_gates(store)} == {
        "incident": None,
        "bobs": None,
    }
    await ops.delete_gate("bobs")


async def test_what_a_caller_may_not_read_is_answered_as_unknown(client_of, store):
    ann, ops = await client_of("ann"), await client_of("ops")
    await ops.put_gate("hidden", duly.GateKind.PAUSE, "report.make")

    with pytest.raises(duly.UnknownGateError):
        await ann.delete_gate("hidden")
    assert len(await gates.list_gates(store)) == 1


async def test_an_operator_of_a_namespace_sets_any_gate_within_it(client_of):
    shopkeeper = await client_of("shopkeeper")

    await shopkeeper.put_gate("closed", duly.GateKind.DROP, "shop/*")
    await shopkeeper.put_gate("mail", duly.GateKind.PAUSE, "shop/mail.*")
    await shopkeeper.delete_gate("closed")

    for pattern in ("*", "shop*", "mail.send"):
        with pytest.raises(duly.PermissionDeniedError):
            await shopkeeper.put_gate("wide", duly.GateKind.PAUSE, pattern)


async def test_an_owner_leaves_room_for_the_gates_of_others(client_of, monkeypatch):
    monkeypatch.setattr("duly_frontend.gates.rights.MOST_OF_ONE", 1)
    assert gate_rights.MOST_OF_ONE < gate_rights.MOST_OF_TENANTS < gates.MOST_GATES
    ann, ops = await client_of("ann"), await client_of("ops")
    await ann.put_gate("one", duly.GateKind.PAUSE, "mail.send")

    with pytest.raises(duly.InvalidTaskError, match="you may have 1 gates"):
        await ann.put_gate("two", duly.GateKind.PAUSE, "mail.send", session="a")
    await ann.put_gate("one", duly.GateKind.PAUSE, "mail.send", reason="again")
    await ops.put_gate("three", duly.GateKind.PAUSE, "mail.send")


async def test_nobody_is_admitted_under_the_name_of_the_breakers(client_of):
    breaker, ops = await client_of("breaker"), await client_of("ops")

    with pytest.raises(duly.UnauthenticatedError, match="reserved"):
        await breaker.gates()
    with pytest.raises(duly.InvalidTaskError, match="reserved"):
        await ops.create_token("breaker")


async def test_nobody_names_the_breakers_as_an_owner_where_callers_are_not_known(client):
    with pytest.raises(duly.InvalidTaskError, match="reserved"):
        await client.put_gate("held", duly.GateKind.PAUSE, "*", owner="breaker")
