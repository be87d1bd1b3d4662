"""Grants to groups: people of a group have them, and nobody else."""

from datetime import timedelta

import pytest

from duly_core.access import cache as access_cache
from duly_core.access import store as access
from duly_core.access.cache import AccessCache
from duly_core.access.grants import MOST_GRANTS, Access, Grant, together
from duly_core.access.operator_without_server import make_operator
from duly_core.access.roles import Action, Role
from duly_core.errors import SettingsError
from duly_wire.v1 import access_pb2
from tests.access.test_access import access_stub, give_token, guarded, headers, operator  # noqa: F401 (a fixture)


@pytest.fixture
def cache(store, monkeypatch):
    monkeypatch.setattr(access_cache, "FRESH", timedelta(0))
    return AccessCache(store)


async def test_people_have_the_grants_of_their_groups_beside_their_own(cache, store):
    await access.add_grants(
        store,
        [
            Grant("oidc:ann", Role.CLIENT, "mail.*"),
            Grant("group:sre", Role.OPERATOR, "shop/*"),
            Grant("group:audit", Role.AUDITOR, "*"),
        ],
    )

    ann = await cache.access_of("oidc:ann", ("sre", "staff"))
    bob = await cache.access_of("oidc:bob", ("sre",))
    nobody = await cache.access_of("oidc:eve", ("SRE", "group:sre", "sre ", "oidc:ann"))

    assert ann.roles == {Role.CLIENT, Role.OPERATOR}
    assert ann.scope(Action.SCHEDULE).principal == "oidc:ann", "own tasks are the person's"
    assert bob.roles == {Role.OPERATOR}
    assert bob.may(Action.OPERATE, "shop/pay")
    assert not bob.may(Action.OPERATE, "pay")
    assert nobody.roles == frozenset()


async def test_a_grant_to_a_group_counts_at_once_and_ends_with_it(cache, store):
    grant = Grant("group:sre", Role.OPERATOR, "*")
    before = await cache.access_of("oidc:ann", ("sre",))
    await access.add_grants(store, [grant])
    during = await cache.access_of("oidc:ann", ("sre",))
    await access.remove_grants(store, [grant])
    after = await cache.access_of("oidc:ann", ("sre",))

    assert [each.roles for each in (before, during, after)] == [set(), {Role.OPERATOR}, set()]


async def test_a_group_is_not_its_people(cache, store):
    await access.add_grants(store, [Grant("sre", Role.OPERATOR, "*"), Grant("oidc:sre", Role.OWNER, "*")])

    assert (await cache.access_of("oidc:ann", ("sre",))).roles == frozenset()


async def test_what_is_remembered_of_people_is_bounded(cache, store, monkeypatch):
    monkeypatch.setattr(access_cache, "_MOST_REMEMBERED", 3)
    monkeypatch.setattr(access_cache, "FRESH", timedelta(hours=1))
    await access.add_grants(store, [Grant("group:sre", Role.OPERATOR, "*")])

    for number in range(10):
        assert (await cache.access_of(f"oidc:{number}", ("sre",))).roles == {Role.OPERATOR}

    assert len(cache._snapshot.access) <= 3


def test_grants_of_many_groups_are_bounded_in_each_namespace_and_the_widest_stay():
    hostile = [
        Grant(f"group:{group}", Role.CLIENT, f"mallory/{group}-{number:03}")
        for group in range(20)
        for number in range(MOST_GRANTS)
    ]
    wide = [Grant("group:sre", Role.OPERATOR, "*"), Grant("group:shop", Role.OWNER, "shop/*")]

    kept = together([Grant("oidc:ann", Role.OWNER, "shop/pay")], [*hostile, *wide])
    access = Access("oidc:ann", kept)

    assert len(kept) == MOST_GRANTS + 2
    assert access.scope(Action.OPERATE).is_everything
    assert access.scope(Action.REGISTER).all_tasks == ("shop/*",), "the narrower one is covered"


async def test_no_token_is_made_in_the_name_of_a_person_or_a_group(guarded, store):  # noqa: F811
    await operator(store)

    for name in ("oidc:ann", "group:sre", "breaker"):
        with pytest.raises(Exception, match="reserved"):
            await access_stub(guarded).CreateToken(
                access_pb2.CreateTokenRequest(principal=name), metadata=headers()
            )


async def test_a_grant_names_somebody(guarded, store):  # noqa: F811
    await operator(store)
    stub = access_stub(guarded)
    grants = [
        access_pb2.Grant(principal=name, role=access_pb2.ROLE_CLIENT, pattern="*")
        for name in ("group:", "oidc:", "group:sre")
    ]

    refused = await stub.AddGrants(access_pb2.AddGrantsRequest(grants=grants), metadata=headers())
    added = await stub.AddGrants(access_pb2.AddGrantsRequest(grants=grants[2:]), metadata=headers())

    assert [each.error.field for each in refused.results] == ["principal", "principal", ""]
    assert (refused.added, added.added) == (0, 1)


async def test_who_has_a_token_is_in_no_group(guarded, store):  # noqa: F811
    await give_token(store)
    await access.add_grants(store, [Grant("group:shop", Role.OPERATOR, "*")])

    seen = await access_stub(guarded).GetAccess(access_pb2.GetAccessRequest(), metadata=headers())

    assert (seen.principal, list(seen.grants), list(seen.groups)) == ("shop", [], [])


@pytest.mark.parametrize("name", ["oidc:ann", "group:sre", "breaker"])
def test_the_first_operator_is_no_person_and_no_group(name):
    with pytest.raises(SettingsError, match="reserved"):
        make_operator("postgresql://nowhere.invalid/duly", name)
