"""Whom a watch tells what: the tasks that its caller may read, and no others."""

import hashlib
from datetime import timedelta

import pytest

import duly
from duly_core.access import store as access
from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_core.watches import store as store_watches
from tests.fixtures.services import serve_frontend
from tests.fixtures.task_states import LAMBDA

AT_ONCE, SOON = timedelta(0), timedelta(seconds=10)
GRANTS = {
    "owner": [("*", Role.OPERATOR), ("*", Role.CLIENT)],
    "shop": [(LAMBDA, Role.CLIENT)],
    "bank": [("bill.*", Role.AUDITOR)],
    "desk": [("*", Role.AUDITOR)],
}


@pytest.fixture
async def address(store, task_states):
    for name, grants in GRANTS.items():
        digest = hashlib.sha256(f"duly_{name}_secret".encode()).digest()
        await access.add_token(store, digest, name, name)
        await access.add_grants(store, [Grant(name, role, pattern) for pattern, role in grants])
    async with serve_frontend(store, Authorizer(AccessCache(store))) as served:
        yield served.address


def client_of(address, name):
    return duly.AsyncClient(address, token=f"duly_{name}_secret")


async def told(watch):
    return [event.task_id for event in await watch.next_events(SOON)]


async def test_each_caller_is_told_of_the_tasks_that_it_may_read(address, task_states):
    async with (
        client_of(address, "owner") as owner,
        client_of(address, "shop") as shop,
        client_of(address, "bank") as bank,
        client_of(address, "desk") as desk,
    ):
        of_shop, of_bank, of_desk = [await each.watch() for each in (shop, bank, desk)]
        foreign = await owner.schedule(LAMBDA)
        own = await shop.schedule(LAMBDA)
        await task_states.end_all_that_may_run()

        assert await told(of_shop) == [own.task_id]
        assert sorted(await told(of_desk)) == sorted([foreign.task_id, own.task_id])
        assert await of_bank.next_events(AT_ONCE) == []


async def test_a_lambda_that_the_caller_may_not_read_is_refused(address):
    async with client_of(address, "bank") as bank:
        with pytest.raises(duly.PermissionDeniedError, match="may not read"):
            await bank.watch(lambdas=[LAMBDA])


async def test_a_graph_is_told_to_those_who_may_read_all_of_it(address, task_states):
    async with (
        client_of(address, "owner") as owner,
        client_of(address, "shop") as shop,
        client_of(address, "desk") as desk,
    ):
        async with owner.graph("one") as g:
            g.task(LAMBDA)
        watches = [await each.watch(graph=g.graph_id) for each in (shop, desk)]
        await task_states.end_all_that_may_run()

        assert len(await watches[1].next_events(SOON)) == 2
        assert await watches[0].next_events(AT_ONCE) == []


async def test_a_watch_is_its_principals_own(address):
    async with client_of(address, "desk") as desk, client_of(address, "owner") as owner:
        watch = await desk.watch()

        with pytest.raises(duly.WatchLostError, match="not known"):
            await owner.watch(after=watch.position)


async def test_what_is_written_for_a_restricted_caller_is_what_it_may_read(address, store):
    async with client_of(address, "shop") as shop:
        await shop.watch()

        async with store.connection() as connection:
            cursor = await connection.execute("select key from watch_key order by key")
            assert await cursor.fetchall() == [("graphs",), (f"lambda:{LAMBDA}",)]


async def test_one_principal_has_so_many_watches_and_no_more(address, monkeypatch):
    monkeypatch.setattr(store_watches, "MOST_OF_ONE", 2)
    async with client_of(address, "desk") as desk, client_of(address, "owner") as owner:
        for _ in range(2):
            await desk.watch()

        with pytest.raises(duly.UnavailableError, match="2 watches already"):
            await desk.watch()
        await owner.watch()
