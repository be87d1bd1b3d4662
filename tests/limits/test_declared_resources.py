"""Resources that an application declares with its lambdas: made if they are not there, and never over what an operator set."""

import asyncio
import hashlib
import json
from datetime import timedelta

import psycopg
import pytest

import duly
from duly_core.access import cache as access_cache
from duly_core.access import store as access
from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_core.limits.changes import (
    NotPut,
    PutResource,
    ResourceChange,
    Unwritten,
    declare_resource,
    put_resource,
)
from duly_core.limits.declared import Fate, StoredResource, decide, read_resources
from duly_core.limits.store import ResourceDeclaration, ResourceLimit, list_resources
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.rpc.requests.resource_needs import ResourceCache
from duly_core.tasks import schedule
from duly_core.tasks.task import NewTask, ResourceNeed
from duly_frontend.limits.declarations import DeclaredResource, ResourceDeclarations
from duly_wire.ids import new_task_id
from duly_wire.v1 import limits_pb2, registry_pb2, task_pb2
from tests.fixtures import whole
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.graph_states import claim_work
from tests.fixtures.services import refusal, serve_frontend
from tests.fixtures.task_states import LAMBDA

FIVE, SIX = ResourceLimit("db", 5), ResourceLimit("db", 6)
V1, V2 = ResourceDeclaration("team", "1"), ResourceDeclaration("team", "2")


def an_app(version="1", owner="team", *, lambda_name="render", **resource):
    app = duly.App(owner=owner, version=version)
    app.resource("db", **({"capacity": 5} | resource))
    app.callback(lambda_name, resources=["db"])(lambda: None)
    return app


async def attach(frontend, app, metadata=None):
    request = registry_pb2.RegisterLambdasRequest(lambdas=app.lambdas())
    (result,) = (await frontend.registry.RegisterLambdas(request, metadata=metadata)).results
    return result


async def the_resource(client):
    (found,) = await client.resources()
    return found


# What becomes of a declaration.


@pytest.mark.parametrize(
    ("declared", "by", "known", "fate"),
    [
        (FIVE, V1, None, Fate.NEW),
        (SIX, V1, StoredResource(FIVE, V1, ""), Fate.CHANGED),
        (SIX, V2, StoredResource(FIVE, V1, ""), Fate.CHANGED),
        (FIVE, V2, StoredResource(FIVE, V1, ""), Fate.RENAMED),
        (FIVE, V1, StoredResource(FIVE, V1, ""), Fate.SAME),
        (SIX, V1, StoredResource(FIVE, V2, ""), Fate.OLDER),
        (FIVE, V1, StoredResource(FIVE, V2, ""), Fate.SAME),
        (SIX, ResourceDeclaration("team", "a commit"), StoredResource(FIVE, V2, ""), Fate.CHANGED),
        (SIX, V2, StoredResource(FIVE, None, "ann"), Fate.SET_BY_OPERATOR),
        (FIVE, V2, StoredResource(FIVE, None, "ann"), Fate.SAME),
        (SIX, ResourceDeclaration("other", "9"), StoredResource(FIVE, V1, ""), Fate.OF_OTHER_OWNER),
        (FIVE, ResourceDeclaration("other", "9"), StoredResource(FIVE, V1, ""), Fate.SAME),
        (SIX, V1, StoredResource(FIVE, ResourceDeclaration("", "9"), ""), Fate.OLDER),
        (SIX, V2, StoredResource(FIVE, ResourceDeclaration("", "1"), ""), Fate.CHANGED),
    ],
)
def test_an_operator_stands_before_the_first_owner_and_this_before_the_newer_version(
    declared, by, known, fate
):
    assert decide(declared, by, known) is fate


async def put(store, limit, by=None, set_by=""):
    if by is None:
        return await put_resource(store, ResourceChange.whole(limit), set_by=set_by)
    return await declare_resource(store, limit, by, set_by=set_by)


async def test_the_store_takes_no_declaration_of_what_an_operator_set_since_it_was_read(store):
    await put(store, FIVE, V1)
    await put(store, FIVE, set_by="ann")

    kept = StoredResource(FIVE, None, "ann")
    assert await put(store, SIX, V2) == Unwritten(Fate.SET_BY_OPERATOR, kept)
    assert await read_resources(store, ["db", "none"]) == {"db": StoredResource(FIVE, None, "ann")}


async def test_the_store_takes_no_declaration_of_another_owner(store):
    await put(store, FIVE, V1, "host-1")

    kept = StoredResource(FIVE, V1, "host-1")
    assert await put(store, SIX, ResourceDeclaration("other", "9")) == Unwritten(Fate.OF_OTHER_OWNER, kept)
    assert (await read_resources(store, ["db"]))["db"] == StoredResource(FIVE, V1, "host-1")


async def test_an_operator_who_sets_it_while_it_is_declared_wins(store, dsn):
    await put(store, FIVE, V1)
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        # what set_resource does, not committed yet: the declaration still reads what was there before
        await other.execute(
            "select duly_set_resource('db', '{capacity}', 7, false, '', null, null, null, null, 'ann', null, null)"
        )
        declaring = asyncio.create_task(put(store, SIX, V2))
        await until_a_statement_waits_for_a_lock(dsn)

    assert await declaring is NotPut.KEPT


@pytest.mark.parametrize("before", [{}, {"db": StoredResource(FIVE, V1, "")}])
@pytest.mark.parametrize("says", [SIX, ResourceLimit("db", 7)])
async def test_an_older_version_that_read_before_a_newer_one_wrote_does_not_replace_it(store, before, says):
    notifier = LocalNotifications()
    resources = ResourceDeclarations(store, ResourceCache(store), notifier)
    for each in before.values():
        await put(store, each.limit, each.declaration)
    newer = ResourceDeclaration("team", "3")
    await put(store, FIVE, newer)

    problems = await resources.declare({"render": [DeclaredResource(says, V2)]}, before)

    assert "is declared by version '3', which is newer than '2'" in problems["render"][0]
    assert (await read_resources(store, ["db"]))["db"] == StoredResource(FIVE, newer, "")


async def test_a_frontend_of_an_older_release_sets_as_an_operator(store):
    await put(store, FIVE, V1)
    async with store.connection() as connection:
        await connection.execute(
            "select duly_put_resource('db', '{capacity}', 7, false, '', null, null, null, null)"
        )

    assert isinstance(await put(store, SIX, V2), Unwritten)
    (state,) = await list_resources(store, limit=10)
    assert (state.limit.capacity, state.declaration, state.set_by) == (7, None, "")


async def test_a_declaration_of_more_units_releases_what_was_parked(store, task_states):
    await task_states.register(LAMBDA)
    await put(store, FIVE, V1)
    needs = (ResourceNeed("db", weight=3),)
    await schedule.schedule(
        store, [NewTask(new_task_id().bytes, LAMBDA, b"{}", resources=needs) for _ in range(2)]
    )
    assert len(await claim_work(store)) == 1

    done = await put(store, SIX, V2)

    assert isinstance(done, PutResource)
    assert done.released == {LAMBDA}
    assert len(await claim_work(store)) == 1


# Over the wire.


async def test_an_application_declares_a_resource_before_its_lambdas_tasks_need_it(frontend, client):
    attached = await attach(
        frontend, an_app(capacity=3, rate=duly.Rate(10), burst=4, per_key=True, note="why")
    )

    assert (attached.in_force, attached.HasField("error")) == (True, False)
    found = await the_resource(client)
    assert (found.capacity, found.rate, found.per_key, found.note) == (3, duly.Rate(10, burst=4), True, "why")
    assert (found.declared_by, found.declared_version, found.set_by) == ("team", "1", "")


async def test_a_declaration_that_changes_nothing_writes_nothing(frontend, client, store):
    await attach(frontend, an_app())
    before = await the_resource(client)
    async with store.connection() as connection, connection.transaction():
        # a change of a resource would wait for this lock to its end
        await connection.execute("lock table resource_use in row exclusive mode")
        attached = await attach(frontend, an_app())

    assert attached.warning == ""
    assert await the_resource(client) == before


async def test_a_newer_version_changes_what_only_declarations_set_and_an_older_does_not(frontend, client):
    await attach(frontend, an_app("1"))
    newer = await attach(frontend, an_app("2", capacity=8))
    older = await attach(frontend, an_app("1"))
    elsewhere = await attach(frontend, an_app("1", lambda_name="of.another.name"))

    assert (newer.warning, older.in_force) == ("", False)
    assert "declared by version '2', which is newer than '1'" in elsewhere.warning
    found = await the_resource(client)
    assert (found.capacity, found.declared_version) == (8, "2")


async def test_an_operator_wins_from_then_on_and_until_the_resource_is_deleted(frontend, client):
    await attach(frontend, an_app("1"))
    await client.put_resource("db", note="watch it")
    kept = await attach(frontend, an_app("2", capacity=8))

    assert kept.in_force
    assert "was set by an operator, and stays so" in kept.warning
    found = await the_resource(client)
    assert (found.capacity, found.note, found.declared_by) == (5, "watch it", None)

    await client.delete_resource("db")
    assert (await attach(frontend, an_app("2", capacity=8))).warning == ""
    assert (await the_resource(client)).declared_by == "team"


async def test_the_first_owner_stays(frontend, client):
    await attach(frontend, an_app())
    other = await attach(frontend, an_app("9", "team-b", lambda_name="film.cut", capacity=1))
    same = await attach(frontend, an_app("9", "team-c", lambda_name="film.show"))

    assert "declared by 'team', and stays so: 'team-b'" in other.warning
    assert same.warning == ""
    assert (await the_resource(client)).capacity == 5


async def test_keys_are_not_changed_while_tasks_hold_units(frontend, client, store):
    await attach(frontend, an_app(lambda_name=LAMBDA))
    await client.schedule(LAMBDA)
    assert len(await claim_work(store)) == 1

    kept = await attach(frontend, an_app("2", lambda_name=LAMBDA, per_key=True))

    assert "resource 'db' not changed: db is in use" in kept.warning
    assert not (await the_resource(client)).per_key


def a_limit(**fields):
    return limits_pb2.ResourceLimit(**{"name": "db", "capacity": 1} | fields)


BAD = {
    "units below zero": ([a_limit(capacity=-1)], "declared_resources['db'].capacity", "from 0 to 1,000,000"),
    "no limit": ([limits_pb2.ResourceLimit(name="db")], "declared_resources['db'].capacity", "is missing"),
    "no name": ([a_limit(name="")], "declared_resources[''].name", "1 to 128"),
    "NUL in the note": ([a_limit(note="\x00")], "declared_resources['db'].note", "NUL"),
    "a rate of nothing": ([a_limit(rate={})], "declared_resources['db'].rate.units", "must be 1 to"),
    "a rate without a period": ([a_limit(rate={"units": 1})], "declared_resources['db'].rate.period", "is missing"),
    "a quota": ([a_limit(name="lambda:render")], "declared_resources['lambda:render'].name", "operators set"),
    "twice": ([a_limit(), a_limit()], "declared_resources['db']", "twice"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
async def test_what_is_no_resource_refuses_its_lambda_and_changes_nothing(frontend, client, case):
    resources, field, message = BAD[case]
    declared = registry_pb2.Lambda(name="render", declared_resources=resources)
    request = registry_pb2.RegisterLambdasRequest(lambdas=[declared])

    (result,) = (await frontend.registry.RegisterLambdas(request)).results

    assert (result.error.code, result.error.field) == (task_pb2.ERROR_CODE_INVALID_ARGUMENT, field)
    assert message in result.error.message
    assert (await client.resources(), await client.lambdas()) == ([], [])


async def test_a_call_has_a_hundred_resources_at_most(frontend):
    many = [a_limit(name=f"db{number}") for number in range(101)]
    request = registry_pb2.RegisterLambdasRequest(lambdas=[{"name": "render", "declared_resources": many}])
    refused = await refusal(frontend.registry.RegisterLambdas(request))
    assert (refused.field, "at most 100 in one call" in refused.message) == (
        "lambdas.declared_resources",
        True,
    )


# Who may.


@pytest.fixture
async def guarded(store, monkeypatch):
    monkeypatch.setattr(access_cache, "FRESH", timedelta(0))
    grants = {
        "team": (Role.OWNER, "shop/*"),
        "part": (Role.OWNER, "shop/ren*"),
        "all": (Role.OWNER, "*"),
        "host": (Role.HOST, "shop/*"),
        "ann": (Role.OPERATOR, "*"),
    }
    for name, (role, pattern) in grants.items():
        await access.add_token(store, hashlib.sha256(f"duly_{name}_secret".encode()).digest(), name, name)
        await access.add_grants(store, [Grant(name, role, pattern)])
    async with serve_frontend(store, authorizer=Authorizer(AccessCache(store))) as served:
        yield served


def as_(name):
    return [("authorization", f"Bearer duly_{name}_secret")]


def in_shop(resource, capacity=5, version="1"):
    app = duly.App(owner="team", version=version)
    app.callback("shop/render")(lambda: None)
    app.resource(resource, capacity)
    return app


@pytest.mark.parametrize(
    ("who", "resource", "may"),
    [
        ("team", "shop/db", True),
        ("team", "db", False),
        ("team", "film/db", False),
        ("part", "shop/db", False),
        ("all", "db", True),
        ("all", "film/db", True),
        ("host", "shop/db", False),
    ],
)
async def test_an_owner_declares_resources_of_its_whole_namespace_only(guarded, store, who, resource, may):
    result = await attach(guarded, in_shop(resource), as_(who))

    assert result.error.code == (0 if may else task_pb2.ERROR_CODE_PERMISSION_DENIED), result
    assert [each.limit.name for each in await list_resources(store, limit=10)] == [resource] * may
    if not may and who != "host":
        assert f"`duly resources set {resource} ...`" in result.error.message


async def test_who_may_not_declare_a_resource_attaches_if_it_is_there(guarded, store):
    await whole.put_resource(store, ResourceLimit("db", 1))
    by_operator = await attach(guarded, in_shop("db"), as_("team"))
    await attach(guarded, in_shop("shop/db"), as_("team"))
    host = await attach(guarded, in_shop("shop/db", version="2"), as_("host"))
    other = await attach(guarded, in_shop("shop/db", 6, version="2"), as_("host"))

    assert (by_operator.in_force, "an operator" in by_operator.warning) == (True, True)
    assert not host.HasField("error")
    assert other.error.code == task_pb2.ERROR_CODE_PERMISSION_DENIED
    found = {each.limit.name: each for each in await list_resources(store, limit=10)}
    assert (found["shop/db"].declaration, found["shop/db"].set_by) == (V1, "team")


async def test_a_worker_reads_which_operator_set_a_resource(guarded):
    async with duly.AsyncClient(guarded.address, token="duly_ann_secret") as ann:
        await ann.put_resource("shop/db", 1)
        assert (await the_resource(ann)).set_by == "ann"
    assert "was set by 'ann'" in (await attach(guarded, in_shop("shop/db"), as_("team"))).warning


# In the application.


def test_the_first_lambda_that_needs_a_resource_brings_it():
    app = duly.App(owner="team", version="1")
    app.resource("gpu", 1)
    app.resource("gpu", capacity=1)
    app.resource("mail", rate=duly.Rate(1, timedelta(minutes=1)))
    app.callback("a")(lambda: None)
    app.callback("b", resources=["gpu"])(lambda: None)
    app.callback("c", resources=["gpu"])(lambda: None)

    brought = {each.name: [*each.declared_resources] for each in app.lambdas()}

    assert brought == {
        "a": [limits_pb2.ResourceLimit(name="mail", rate={"units": 1, "period": {"seconds": 60}, "burst": 1})],
        "b": [limits_pb2.ResourceLimit(name="gpu", capacity=1)],
        "c": [],
    }  # fmt: skip


def test_what_runs_pinned_tasks_only_declares_no_resource():
    app = duly.App(version="1", pinned="only")
    app.resource("gpu", 1)
    app.callback("a")(lambda: None)
    assert [len(each.declared_resources) for each in app.lambdas()] == [0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"capacity": -1}, "capacity must be a whole number from 0"),
        ({"capacity": True}, "capacity must be a whole number"),
        ({"capacity": 1_000_001}, "to 1,000,000"),
        ({}, "no limit: give capacity=, or rate="),
        ({"capacity": 1, "burst": 2}, r"needs a rate: add rate=duly.Rate"),
        ({"rate": "10/s"}, "must be a duly.Rate"),
        ({"rate": duly.Rate(0)}, "the units of rate must be a whole number from 1"),
        ({"rate": duly.Rate(1, timedelta(days=2))}, "from 1 ms to 1 day"),
        ({"rate": duly.Rate(1, 60)}, "must be a timedelta"),
        ({"rate": duly.Rate(1, burst=2), "burst": 2}, "either burst= or the burst of rate="),
        ({"rate": duly.Rate(1), "burst": 0}, "burst must be a whole number from 1"),
        ({"capacity": 1, "per_key": 1}, "per_key must be True or False"),
        ({"capacity": 1, "note": "n" * 1_025}, "1,024 bytes"),
        ({"capacty": 1}, "no argument capacty=: do you mean capacity="),
        ({"capacity": 1, "bursts": 1}, "do you mean burst="),
    ],
)
def test_a_bad_declaration_is_refused_where_it_is_written(fields, message):
    with pytest.raises(duly.RegistrationError, match=message):
        duly.App().resource("db", **fields)


def test_one_application_says_one_thing_of_a_resource():
    app = duly.App()
    app.resource("db", 1)
    with pytest.raises(duly.RegistrationError, match="'db' is declared twice, and otherwise"):
        app.resource("db", 2)


# In the shell.


async def test_the_shell_shows_who_says_what_a_resource_is(run_duly, tmp_path, monkeypatch):
    (tmp_path / "declaring_app.py").write_text(
        "import duly\napp = duly.App(owner='team-shop', version='3')\napp.resource('db', capacity=5)\n"
        "@app.callback('render')\ndef render():\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registered = await run_duly("register", "declaring_app:app")
    shown = (await run_duly("resources", "show", "db")).stdout
    (as_json,) = (await run_duly("resources", "list", "--json")).stdout.splitlines()
    await run_duly("resources", "set", "db", "6")
    again = await run_duly("register", "declaring_app:app")
    listed = (await run_duly("resources", "list")).stdout

    assert "1 lambda registered, with 1 resource\n" in registered.output
    assert "declared by team-shop" in shown
    assert json.loads(as_json)["declared_version"] == "3"
    assert "duly resources delete db" in again.output
    assert "set by an operator" in listed
