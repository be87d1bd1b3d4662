"""Callers are asked who they are, and each call is held against their grants."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from datetime import timedelta

import grpc
import pytest

import duly
from duly_core.access import cache as access_cache
from duly_core.access import store as access
from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.grants import Grant
from duly_core.access.methods import KNOWN_CALLERS, NEEDS, OPEN_METHODS
from duly_core.access.roles import Role
from duly_core.errors import StoreUnavailableError
from duly_core.postgres.pool import Store
from duly_wire.v1 import (
    access_pb2,
    access_pb2_grpc,
    frontend_pb2,
    hsc_pb2,
    hsc_pb2_grpc,
    registry_pb2,
    settings_pb2,
)
from tests.fixtures.services import Frontend, Hsc, refusal, serve_frontend, serve_hsc
from tests.fixtures.task_states import LAMBDA

TOKEN = "duly_a1_secret"


def headers(token: str = TOKEN) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


async def give_token(store: Store, token: str = TOKEN, principal: str = "shop", **more: object) -> None:
    digest = hashlib.sha256(token.encode()).digest()
    await access.add_token(store, digest, token.split("_")[1], principal, **more)


@pytest.fixture
async def guarded(store: Store) -> AsyncIterator[Frontend]:
    async with serve_frontend(store, authorizer=Authorizer(AccessCache(store))) as served:
        yield served


@pytest.fixture
async def guarded_hsc(store: Store) -> AsyncIterator[Hsc]:
    async with serve_hsc(store, authorizer=Authorizer(AccessCache(store))) as served:
        yield served


def test_each_rpc_is_in_the_table_of_permissions():
    from duly_wire.v1 import (
        access_pb2,
        attachments_pb2,
        controller_pb2,
        event_addresses_pb2,
        events_pb2,
        explain_pb2,
        fleet_pb2,
        frontend_pb2,
        gates_pb2,
        graphs_pb2,
        hsc_pb2,
        inspection_pb2,
        limits_pb2,
        objectives_pb2,
        output_pb2,
        pools_pb2,
        problems_pb2,
        registry_pb2,
        sessions_pb2,
        settings_pb2,
        time_tables_pb2,
        watches_pb2,
    )

    modules = (
        access_pb2,
        attachments_pb2,
        controller_pb2,
        event_addresses_pb2,
        events_pb2,
        explain_pb2,
        fleet_pb2,
        frontend_pb2,
        gates_pb2,
        graphs_pb2,
        hsc_pb2,
        inspection_pb2,
        limits_pb2,
        output_pb2,
        objectives_pb2,
        pools_pb2,
        problems_pb2,
        registry_pb2,
        sessions_pb2,
        settings_pb2,
        time_tables_pb2,
        watches_pb2,
    )
    served = {
        f"/{service.full_name}/{method.name}"
        for module in modules
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert served == set(NEEDS) | KNOWN_CALLERS | OPEN_METHODS


async def test_a_call_without_a_token_is_unauthenticated(guarded):
    refused = await refusal(guarded.stub.ListTasks(frontend_pb2.ListTasksRequest()))
    assert refused.code is grpc.StatusCode.UNAUTHENTICATED
    assert "DULY_TOKEN" in refused.message


async def test_an_unknown_token_is_unauthenticated(guarded):
    refused = await refusal(guarded.stub.ListTasks(frontend_pb2.ListTasksRequest(), metadata=headers()))
    assert refused.code is grpc.StatusCode.UNAUTHENTICATED


async def test_a_token_without_a_grant_is_denied(guarded, store):
    await give_token(store)
    refused = await refusal(guarded.stub.ListTasks(frontend_pb2.ListTasksRequest(), metadata=headers()))
    assert refused.code is grpc.StatusCode.PERMISSION_DENIED
    assert "'shop' has no role that may read" in refused.message


@pytest.mark.parametrize(
    ("pattern", "asked", "said"),
    [
        ("", LAMBDA, f"'shop' may not schedule '{LAMBDA}': that needs the role client"),
        ("", "", "'shop' has no role that may schedule: that needs the role client"),
        ("", "a\nb", "'shop' may not schedule 'a\\nb': that needs the role client"),
        ("bill.*", LAMBDA, f"'shop' may not schedule '{LAMBDA}': that needs the role client"),
        ("bill.*", f"{LAMBDA}@2", f"'shop' may not schedule '{LAMBDA}@2': that needs the role client"),
        ("bill.*", f"{LAMBDA}@~lab", f"'shop' may not schedule '{LAMBDA}@~lab': that needs the role client"),
    ],
)
async def test_a_refusal_names_the_lambda_the_role_and_the_command(guarded, store, pattern, asked, said):
    await give_token(store)
    if pattern:
        await access.add_grants(store, [Grant("shop", Role.CLIENT, pattern)])
    tasks = [frontend_pb2.NewTask(**{"lambda": asked})] if asked else []

    call = guarded.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=tasks), metadata=headers())

    message = (await call).results[0].error.message if pattern else (await refusal(call)).message
    assert message.startswith(said)
    assert f"`duly grants add shop client {LAMBDA if asked.startswith(LAMBDA) else 'LAMBDA'}`" in message


async def test_a_refusal_for_want_of_a_role_for_all_names_the_role(guarded, store):
    await give_token(store)
    await access.add_grants(store, [Grant("shop", Role.OPERATOR, "mail.*")])

    refused = await refusal(
        guarded.settings.SetSettings(settings_pb2.SetSettingsRequest(), metadata=headers())
    )

    assert refused.message == (
        "'shop' may not operate everything: that needs the role operator, which an operator gives with "
        "`duly grants add shop operator '*'`"
    )


async def test_a_role_admits_its_calls_and_no_others(guarded, store):
    await give_token(store)
    await access.add_grants(store, [Grant("shop", Role.AUDITOR, "*")])
    await guarded.stub.ListTasks(frontend_pb2.ListTasksRequest(), metadata=headers())
    refused = await refusal(
        guarded.stub.Schedule(
            frontend_pb2.ScheduleRequest(tasks=[frontend_pb2.NewTask(**{"lambda": LAMBDA})]),
            metadata=headers(),
        )
    )
    assert refused.code is grpc.StatusCode.PERMISSION_DENIED


async def test_a_stream_is_admitted_as_a_call_is(guarded_hsc, store):
    await give_token(store)
    stub = hsc_pb2_grpc.HscServiceStub(guarded_hsc.channel)
    stream = stub.Work(metadata=headers())
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stream.read()
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    anonymous = stub.Work()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await anonymous.read()
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_each_call_of_a_stream_is_admitted_by_the_grants_of_now(guarded_hsc, store, monkeypatch):
    await give_token(store)
    await access.add_grants(store, [Grant("shop", Role.HOST, "*")])
    stream = hsc_pb2_grpc.HscServiceStub(guarded_hsc.channel).Work(metadata=headers())
    request = hsc_pb2.WorkRequest(call=1, set_results=hsc_pb2.SetResultsRequest())
    await stream.write(request)
    assert (await stream.read()).error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    await access.remove_grants(store, [Grant("shop", Role.HOST, "*")])
    monkeypatch.setattr(access_cache, "FRESH", timedelta(0))
    await stream.write(request)
    assert (await stream.read()).error.code == grpc.StatusCode.PERMISSION_DENIED.value[0]
    stream.cancel()


async def test_a_token_that_is_revoked_ends_what_an_open_stream_may(guarded_hsc, store, monkeypatch):
    await give_token(store)
    await access.add_grants(store, [Grant("shop", Role.HOST, "*")])
    stream = hsc_pb2_grpc.HscServiceStub(guarded_hsc.channel).Work(metadata=headers())
    request = hsc_pb2.WorkRequest(call=1, set_results=hsc_pb2.SetResultsRequest())
    await stream.write(request)
    assert (await stream.read()).error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    await access.revoke_tokens(store, ["a1"])
    monkeypatch.setattr(access_cache, "FRESH", timedelta(0))
    await stream.write(request)
    assert (await stream.read()).error.code == grpc.StatusCode.UNAUTHENTICATED.value[0]
    stream.cancel()


async def test_a_client_goes_on_with_the_new_token_of_its_file(
    guarded, store, task_states, monkeypatch, tmp_path
):
    await task_states.register(LAMBDA)
    await access.add_grants(store, [Grant("shop", Role.CLIENT, "*")])
    await give_token(store)
    await give_token(store, "duly_b2_secret")
    file = tmp_path / "token"
    file.write_text(TOKEN)
    monkeypatch.setenv("DULY_RPC_TOKEN_FILE", str(file))
    async with duly.AsyncClient(guarded.address) as client:
        await client.schedule(LAMBDA)
        file.write_text("duly_b2_secret\n")
        await access.revoke_tokens(store, ["a1"])
        monkeypatch.setattr(access_cache, "FRESH", timedelta(0))
        tasks = await asyncio.gather(*(client.schedule(LAMBDA) for _ in range(5)))
    assert len({task.task_id for task in tasks}) == 5


async def test_a_store_that_does_not_answer_is_asked_once_for_all_who_wait(store, monkeypatch):
    await give_token(store)
    cache = AccessCache(store)
    digest = hashlib.sha256(TOKEN.encode()).digest()
    assert await cache.token_holder(digest)
    asked = []

    async def fail() -> None:
        asked.append(1)
        await asyncio.sleep(0)
        raise StoreUnavailableError("it is away")

    monkeypatch.setattr(access_cache, "FRESH", timedelta(0))
    monkeypatch.setattr(cache, "_read", fail)
    holders = await asyncio.gather(*(cache.token_holder(digest) for _ in range(50)))
    assert all(holders)
    assert len(asked) == 1


async def test_a_token_that_was_made_since_the_last_look_is_known_at_once(store, monkeypatch):
    cache = AccessCache(store)
    digest = hashlib.sha256(TOKEN.encode()).digest()
    assert await cache.token_holder(digest) is None
    await give_token(store)
    monkeypatch.setattr(access_cache, "UNKNOWN", timedelta(microseconds=1))

    assert await cache.token_holder(digest)


async def test_unknown_tokens_do_not_load_the_store(store, monkeypatch):
    cache = AccessCache(store)
    await cache.access_of("anybody")
    read, reads = cache._read, []

    async def count() -> None:
        reads.append(1)
        await read()

    monkeypatch.setattr(cache, "_read", count)
    monkeypatch.setattr(access_cache, "UNKNOWN", timedelta(hours=1))
    monkeypatch.setattr(access_cache, "FRESH", timedelta(hours=1))
    guesses = [hashlib.sha256(b"%d" % number).digest() for number in range(100)]

    assert [await cache.token_holder(guess) for guess in guesses] == [None] * 100
    assert reads == []


async def test_health_is_asked_without_a_token(guarded):
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    answer = await health_pb2_grpc.HealthStub(guarded.channel).Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def operator(store: Store, pattern: str = "*") -> None:
    await give_token(store)
    await access.add_grants(store, [Grant("shop", Role.OPERATOR, pattern)])


def access_stub(guarded: Frontend) -> access_pb2_grpc.AccessServiceStub:
    return access_pb2_grpc.AccessServiceStub(guarded.channel)


async def test_an_operator_makes_a_token_that_works_until_it_is_revoked(guarded, store, monkeypatch):
    monkeypatch.setattr(access_cache, "FRESH", timedelta(0))
    await operator(store)
    stub = access_stub(guarded)
    request = access_pb2.CreateTokenRequest(principal="mailer", note="for the mail team")
    request.lifetime.FromTimedelta(timedelta(days=1))
    made = await stub.CreateToken(request, metadata=headers())
    grant = access_pb2.Grant(principal="mailer", role=access_pb2.ROLE_CLIENT, pattern="mail.*")
    added = await stub.AddGrants(access_pb2.AddGrantsRequest(grants=[grant]), metadata=headers())
    assert added.added == 1
    seen = await stub.GetAccess(access_pb2.GetAccessRequest(), metadata=headers(made.token))
    assert (seen.principal, list(seen.grants)) == ("mailer", [grant])
    listed = await stub.ListTokens(access_pb2.ListTokensRequest(), metadata=headers())
    assert [token.created_by for token in listed.tokens if token.token_id == made.token_id] == ["shop"]
    revoked = await stub.RevokeTokens(
        access_pb2.RevokeTokensRequest(token_ids=[made.token_id]), metadata=headers()
    )
    assert list(revoked.revoked) == [made.token_id]
    refused = await refusal(stub.GetAccess(access_pb2.GetAccessRequest(), metadata=headers(made.token)))
    assert refused.code is grpc.StatusCode.UNAUTHENTICATED


async def test_an_expired_token_is_unauthenticated(guarded, store):
    await give_token(store, lifetime=timedelta(seconds=-1))
    refused = await refusal(access_stub(guarded).GetAccess(access_pb2.GetAccessRequest(), metadata=headers()))
    assert refused.code is grpc.StatusCode.UNAUTHENTICATED


async def test_an_operator_of_some_lambdas_grants_for_no_others(guarded, store):
    await operator(store, "mail.*")
    stub = access_stub(guarded)
    grant = access_pb2.Grant(principal="x", role=access_pb2.ROLE_OWNER, pattern="mail.send")
    assert (await stub.AddGrants(access_pb2.AddGrantsRequest(grants=[grant]), metadata=headers())).added == 1
    for pattern in ("*", "mail*", "ma*", "shop"):
        wider = access_pb2.Grant(principal="x", role=access_pb2.ROLE_OWNER, pattern=pattern)
        refused = await refusal(
            stub.AddGrants(access_pb2.AddGrantsRequest(grants=[wider]), metadata=headers())
        )
        assert refused.code is grpc.StatusCode.PERMISSION_DENIED, pattern


async def test_one_invalid_grant_and_none_is_written(guarded, store):
    await operator(store)

    for grant, field in [
        ({"principal": "", "role": 1, "pattern": "*"}, "principal"),
        ({"principal": "a\x00", "role": 1, "pattern": "*"}, "principal"),
        ({"principal": "a", "role": 0, "pattern": "*"}, "role"),
        ({"principal": "a", "role": 77, "pattern": "*"}, "role"),
        ({"principal": "a", "role": 1, "pattern": ""}, "pattern"),
        ({"principal": "a", "role": 1, "pattern": "Mail"}, "pattern"),
        ({"principal": "a", "role": 1, "pattern": "a*b*"}, "pattern"),
    ]:
        good = access_pb2.Grant(principal="x", role=access_pb2.ROLE_OWNER, pattern="mail.send")
        request = access_pb2.AddGrantsRequest(grants=[good, access_pb2.Grant(**grant)])
        answer = await access_stub(guarded).AddGrants(request, metadata=headers())
        assert (answer.added, answer.results[1].error.field) == (0, field)
        assert await access.list_grants(store, "x") == []


async def test_only_its_owner_and_operators_delete_a_lambda_and_only_operators_transfer_it(guarded, store):
    roles = {"owner": Role.OWNER, "operator": Role.OPERATOR, "client": Role.CLIENT}
    for name, role in roles.items():
        await give_token(store, f"duly_{name}_secret", name)
        await access.add_grants(store, [Grant(name, role, LAMBDA)])

    def as_(name):
        return headers(f"duly_{name}_secret")

    registry = guarded.registry
    declared = registry_pb2.Lambda(name=LAMBDA, owner="mail team", version="1")
    pinned = registry_pb2.Lambda(name=f"{LAMBDA}@1", owner="mail team", version="1")
    await registry.RegisterLambdas(
        registry_pb2.RegisterLambdasRequest(lambdas=[declared, pinned]), metadata=as_("owner")
    )
    transfer = registry_pb2.UpdateLambdaRequest(name=LAMBDA, owner="web team")
    delete = registry_pb2.DeleteLambdaRequest(name=f"{LAMBDA}@1")

    refused = [
        (await refusal(registry.UpdateLambda(transfer, metadata=as_(name)))).code
        for name in ("owner", "client")
    ]
    refused.append((await refusal(registry.DeleteLambda(delete, metadata=as_("client")))).code)
    deleted = await registry.DeleteLambda(delete, metadata=as_("owner"))
    transferred = await registry.UpdateLambda(transfer, metadata=as_("operator"))
    shown = await registry.GetLambda(registry_pb2.GetLambdaRequest(name=LAMBDA), metadata=as_("owner"))

    assert refused == [grpc.StatusCode.PERMISSION_DENIED] * 3
    assert not deleted.HasField("error")
    assert not transferred.HasField("error")
    assert (shown.in_force.registered_by, getattr(shown.in_force, "lambda").owner) == ("owner", "web team")


async def test_a_grant_of_a_role_that_only_a_newer_release_knows_gives_nothing(guarded, store):
    await give_token(store)
    await access.add_grants(store, [Grant("shop", Role.CLIENT, LAMBDA), Grant("shop", Role.AUDITOR, "*")])
    async with store.connection() as connection:
        await connection.execute("alter table role_grant drop constraint role_grant_role_check")
        await connection.execute("update role_grant set role = 'steward' where role = 'auditor'")
        await connection.execute("update access_version set version = version + 1")

    found = await AccessCache(store).access_of("shop")

    assert found.roles == {Role.CLIENT}
    assert await access.list_grants(store) == [Grant("shop", Role.CLIENT, LAMBDA)]


# ---- bounds of grants ------------------------------------------------------------------------------------


async def test_one_principal_has_so_many_grants_in_a_namespace_and_more_change_nothing(guarded, store):
    await give_token(store)
    await access.add_grants(store, [Grant("shop", Role.OPERATOR, "mallory/*")])
    service = access_pb2_grpc.AccessServiceStub(guarded.channel)

    def grants(first: int, number: int) -> access_pb2.AddGrantsRequest:
        names = [f"mallory/{place:0120}" for place in range(first, first + number)]
        asked = [
            access_pb2.Grant(principal="alice", role=access_pb2.ROLE_CLIENT, pattern=each) for each in names
        ]
        return access_pb2.AddGrantsRequest(grants=asked)

    assert (await service.AddGrants(grants(0, access.MOST_GRANTS), metadata=headers())).added == 100
    again = await service.AddGrants(grants(0, access.MOST_GRANTS), metadata=headers())
    assert not [each for each in again.results if each.HasField("error")]
    refused = await service.AddGrants(grants(access.MOST_GRANTS, 2), metadata=headers())

    assert refused.added == 0
    assert "more than 100 grants in the namespace 'mallory'" in refused.results[0].error.message
    assert len(await access.list_grants(store, "alice")) == access.MOST_GRANTS
    other = [Grant("alice", Role.CLIENT, "alice/*")]
    assert await access.add_grants(store, other) == 1


async def test_a_principal_with_as_many_long_grants_as_it_may_have_gets_its_lists(guarded, store):
    await give_token(store, principal="alice")
    for namespace in ("a", "b", "c"):
        await access.add_grants(
            store,
            [
                Grant("alice", role, f"{namespace}/{place:0119}*")
                for place in range(access.MOST_GRANTS // 2)
                for role in (Role.CLIENT, Role.AUDITOR)
            ],
        )

    listed = await guarded.stub.ListTasks(frontend_pb2.ListTasksRequest(), metadata=headers())

    assert not listed.tasks


async def test_grants_that_change_nothing_have_no_server_read_them_again(store):
    await access.add_grants(store, [Grant("alice", Role.CLIENT, "alice/*")])
    before = await version_of(store)

    assert await access.add_grants(store, [Grant("alice", Role.CLIENT, "alice/*")]) == 0
    assert await access.remove_grants(store, [Grant("nobody", Role.CLIENT, "alice/*")]) == 0

    assert await version_of(store) == before


async def version_of(store: Store) -> int:
    async with store.connection() as connection:
        (version,) = await (await connection.execute("select version from access_version")).fetchone()
        return version
