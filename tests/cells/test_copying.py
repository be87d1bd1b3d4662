"""What operators own is the same in all cells: copied to a new one, and made equal where copies differ."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from duly_core.access import store as store_access
from duly_core.access.copies import read_access, write_tokens
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_core.cells.copying import COPIED, copy_operators_data, differences, grant_name
from duly_core.gates import store as store_gates
from duly_core.gates.rules import GateScope, Kind
from duly_core.gates.store import NewGate
from duly_core.limits import store as store_limits
from duly_core.limits.changes import ResourceChange, declare_resource, put_resource
from duly_core.limits.store import Rate, ResourceDeclaration, ResourceLimit
from duly_core.live_settings import store as store_settings
from duly_core.pools import store as store_pools
from duly_core.pools.rules import Pool
from duly_core.postgres.pool import Store
from duly_core.time_tables import calendars as store_calendars
from duly_core.time_tables.calendar import Calendar
from tests.fixtures.cells import TwoCells

LIMIT = ResourceLimit("db", 3, note="the database", rate=Rate(5, timedelta(minutes=1), 2))
POOL = Pool(name="gpus", lambdas=("mail.*",), maximum=3, driver="ours", driver_settings={"name": "x"})
EXPIRES_AT = datetime(2090, 1, 1, tzinfo=UTC)
GATE = NewGate("deploy", Kind.PAUSE, GateScope("*", None, None, None), None, "ann", "deploy", EXPIRES_AT)


@pytest.fixture
async def source(two_cells: TwoCells) -> AsyncIterator[Store]:
    """Return cell a, with something of everything that operators own, and something of an application."""
    async with Store(two_cells.settings("a")) as store:
        await store_access.add_grants(store, [Grant("ann", Role.OPERATOR, "*")], "root")
        await store_access.add_token(store, b"1" * 32, "one", "ann", note="laptop", created_by="root")
        await store_access.add_token(store, b"2" * 32, "two", "bob", lifetime=timedelta(days=9))
        await store_access.revoke_tokens(store, ["two"])
        await store_settings.put(store, {"timing.claim_timeout": "40s"})
        await put_resource(store, ResourceChange.whole(LIMIT), set_by="ann")
        declared = ResourceLimit("smtp", 2)
        await declare_resource(store, declared, ResourceDeclaration("mail", "1"))
        assert await store_gates.put_gate(store, GATE.name, lambda _: GATE)
        own = GATE._replace(name="breaker:mail.send", scope=GateScope("mail.send", None, None, None))
        assert await store_gates.put_gate(store, own.name, lambda _: own)
        of_a_namespace = GATE._replace(name="mails", scope=GateScope("mail/*", None, None, None))
        assert await store_gates.put_gate(store, of_a_namespace.name, lambda _: of_a_namespace)
        await store_pools.put_pool(store, POOL.name, lambda _: POOL)
        await store_calendars.put(store, "work", lambda _: Calendar("work", ("DE",)))
        yield store


@pytest.fixture
async def target(two_cells: TwoCells) -> AsyncIterator[Store]:
    async with Store(two_cells.settings("b")) as store:
        yield store


async def test_a_new_cell_gets_all_that_operators_own_and_nothing_of_applications(source, target):
    copied = await copy_operators_data(source, target)
    assert copied.changed == dict.fromkeys(COPIED, 1) | {"tokens": 2}
    assert copied.refused == ()
    assert await read_access(target) == await read_access(source)
    assert await store_settings.values(target) == {"timing.claim_timeout": "40s"}
    (resource,) = await store_limits.list_resources(target, limit=9)
    assert (resource.limit, resource.set_by) == (LIMIT, "ann")
    (gate,) = await store_gates.list_gates(target)
    assert (gate.gate.name, gate.gate.owner, gate.gate.expires_at) == ("deploy", "ann", EXPIRES_AT)
    assert [each.pool for each in await store_pools.list_pools(target)] == [POOL]
    assert (await store_calendars.get(target, ["work"]))["work"].calendar.holidays == ("DE",)


async def test_a_second_copy_finds_nothing_to_do(source, target):
    await copy_operators_data(source, target)
    assert await differences(source, target) == {}
    assert (await copy_operators_data(source, target)).changed == {}


async def test_what_was_changed_in_one_cell_only_is_made_equal_and_what_is_gone_goes(source, target):
    await copy_operators_data(source, target)
    await store_access.add_grants(target, [Grant("eve", Role.OPERATOR, "*")])
    await store_access.add_token(target, b"3" * 32, "three", "eve")
    await store_settings.reset(target, ["timing.claim_timeout"])
    await store_settings.put(target, {"timing.heartbeat_timeout": "50s"})
    await put_resource(target, ResourceChange.whole(ResourceLimit("db", 9)))
    await put_resource(target, ResourceChange.whole(ResourceLimit("more", 9)))
    await store_gates.delete_gates(target, ["deploy"])
    await store_pools.put_pool(target, "other", lambda _: replace(POOL, name="other"))
    await store_calendars.put(target, "other", lambda _: Calendar("other"))
    differ = await differences(source, target)
    assert differ == dict.fromkeys(COPIED, 1) | {"settings": 2, "resources": 2}
    assert (await copy_operators_data(source, target)).changed == differ
    assert await differences(source, target) == {}


async def test_what_is_left_stays_as_it_is_in_the_target(source, target):
    left = [
        ("grants", grant_name("ann", "operator", "*")),
        ("grants", grant_name("eve", "operator", "*")),
        ("tokens", "two"),
        ("settings", ""),
        ("resources", "db"),
        ("gates", "deploy"),
        ("pools", "gpus"),
        ("calendars", "work"),
    ]
    eve = Grant("eve", Role.OPERATOR, "*")
    await store_access.add_grants(target, [eve, Grant("bob", Role.OPERATOR, "*")])
    await store_access.add_token(target, b"3" * 32, "three", "eve")
    await store_settings.put(target, {"timing.claim_timeout": "30s"})
    await put_resource(target, ResourceChange.whole(ResourceLimit("db", 9)))
    await store_pools.put_pool(target, "other", lambda _: replace(POOL, name="other"))
    copied = await copy_operators_data(source, target, left)
    assert copied.changed == {"grants": 1, "pools": 1}  # bob and the other pool are not left
    assert await store_access.list_grants(target) == [eve]
    assert [token.token_id for token in await store_access.list_tokens(target)] == ["three"]
    assert await store_settings.values(target) == {"timing.claim_timeout": "30s"}
    assert [each.limit.capacity for each in await store_limits.list_resources(target, limit=9)] == [9]
    assert await store_gates.list_gates(target) == []
    assert await store_pools.list_pools(target) == []
    assert await store_calendars.get(target, ["work"]) == {}


async def test_a_revoked_token_never_comes_back(source, target):
    await copy_operators_data(source, target)
    await store_access.revoke_tokens(target, ["one"])
    copied = await copy_operators_data(source, target)
    assert copied.refused == (
        "token one is revoked there and stays so: revoke it in all cells (duly tokens revoke one)",
    )
    assert all(token.revoked_at for token in await store_access.list_tokens(target))


async def test_a_resource_in_use_stays_and_is_named(source, target, two_cells):
    await put_resource(target, ResourceChange.whole(ResourceLimit("db", 1)))
    await put_resource(target, ResourceChange.whole(ResourceLimit("old", 1)))
    async with target.connection() as connection:
        await connection.execute(
            "insert into resource_use (resource, key, used) values ('old', '', 1), ('db', '', 1)"
        )
    copied = await copy_operators_data(source, target)
    assert copied.refused == ("resource old is in use, and cannot be removed",)
    assert await differences(source, target) == {"resources": 1}


async def test_only_tokens_are_copied_where_a_token_was_made(source, target):
    assert await write_tokens(target, await read_access(source)) == 2
    rows = await read_access(target)
    assert len(rows.tokens) == 2
    assert rows.grants == []
