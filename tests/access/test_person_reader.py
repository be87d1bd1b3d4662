"""Whom an ID token of an identity provider names, and which groups: claims are what a provider's users may have written."""

import json
import time

import pytest
from structlog.testing import capture_logs

from duly_core.access import jwks_url
from duly_core.access.authorizer import Authorizer, Credentials
from duly_core.access.issuer_metadata import issuer_problem, read_metadata
from duly_core.access.jwt_reader import open_jwt_reader
from duly_core.access.principal import Principal
from duly_core.access.settings import AuthSettings
from duly_core.errors import SettingsError, UnauthenticatedError
from tests.access.test_jwt_reader import key_set
from tests.access.test_jwt_reader import signed as signed_by_service_issuer
from tests.fixtures.identity_provider import CLIENT_ID, signed


def settings(provider, **changes):
    said = {"mode": "required", "oidc_issuer": provider.issuer, "oidc_audience": CLIENT_ID} | changes
    return AuthSettings(**said)


@pytest.fixture
def read(identity_provider):
    return open_jwt_reader(settings(identity_provider))


async def test_a_person_has_a_name_that_no_token_has_and_its_groups(read, identity_provider):
    found = await read(identity_provider.id_token(groups=["staff", "sre", "sre"]))

    assert found.name == "oidc:ann-1"
    assert found.groups == ("sre", "staff")
    assert found.expires_at is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "another-client"},
        {"aud": None},
        {"aud": [CLIENT_ID, "other"], "azp": "other"},
        {"azp": "other"},
        {"iss": "https://evil.example"},
        {"iss": None},
        {"exp": None},
        {"exp": 10**18},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": " ann-1"},
        {"sub": "ann\n1"},
        {"sub": "ann\u202e1"},
        {"sub": "a" * 251},
        {"groups": {"sre": True}},
        {"groups": None, "_claim_names": {"groups": "src1"}},
    ],
)
async def test_an_id_token_that_is_not_ours_or_names_nobody_is_refused(read, identity_provider, changes):
    identity_provider.changes = changes

    with pytest.raises(UnauthenticatedError):
        await read(identity_provider.id_token())


@pytest.mark.parametrize("seconds", [-1, -59])
async def test_an_id_token_has_no_time_beyond_its_end(read, identity_provider, seconds):
    identity_provider.changes = {"exp": int(time.time()) + seconds}

    with pytest.raises(UnauthenticatedError, match="expired"):
        await read(identity_provider.id_token())


async def test_a_providers_clock_may_be_a_little_ahead(read, identity_provider):
    identity_provider.changes = {"iat": int(time.time()) + 40, "nbf": int(time.time()) + 40}
    assert (await read(identity_provider.id_token())).name == "oidc:ann-1"

    identity_provider.changes = {"iat": int(time.time()) + 90}
    with pytest.raises(UnauthenticatedError, match="not yet valid"):
        await read(identity_provider.id_token())


async def test_a_key_that_replaced_another_is_fetched_and_the_other_ends(
    read, identity_provider, monkeypatch
):
    before = identity_provider.id_token()
    await read(before)
    monkeypatch.setattr(jwks_url, "_ASKED_EVERY_S", 0)
    identity_provider.key = 1

    assert (await read(identity_provider.id_token())).name == "oidc:ann-1"
    with pytest.raises(UnauthenticatedError, match="no key"):
        await read(before)


async def test_a_key_of_the_provider_under_another_name_is_refused(read, identity_provider):
    identity_provider.sign = lambda claims: signed(claims, 1, kid="key-0")

    with pytest.raises(UnauthenticatedError):
        await read(identity_provider.id_token())


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.example"},
        {"jwks_uri": "http://evil.example/keys"},
        {"jwks_uri": None},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": 7},
    ],
)
async def test_metadata_of_another_issuer_or_without_a_safe_address_counts_for_nothing(
    read, identity_provider, metadata
):
    identity_provider.metadata = metadata

    with capture_logs() as lines, pytest.raises(UnauthenticatedError, match="cannot be fetched"):
        await read(identity_provider.id_token())

    assert [line["event"] for line in lines] == ["keys of JWTs not fetched"], "an operator reads why"


async def test_while_the_provider_is_away_known_keys_count(read, identity_provider, monkeypatch):
    await read(identity_provider.id_token())
    monkeypatch.setattr(jwks_url, "_ASKED_EVERY_S", 0)
    monkeypatch.setattr(jwks_url, "_FRESH_S", -1)
    identity_provider.away = True

    assert (await read(identity_provider.id_token())).name == "oidc:ann-1"


async def test_an_email_is_a_name_only_if_the_provider_verified_it(identity_provider):
    read = open_jwt_reader(settings(identity_provider, oidc_principal_claim="email"))
    identity_provider.person |= {"email": "ann@example.com"}

    assert (await read(identity_provider.id_token(email_verified=True))).name == "oidc:ann@example.com"
    for unverified in (False, None, "true"):
        with pytest.raises(UnauthenticatedError, match="verified"):
            await read(identity_provider.id_token(email_verified=unverified))


async def test_groups_that_no_grant_can_name_are_left_out(identity_provider):
    read = open_jwt_reader(settings(identity_provider, oidc_groups_claim="teams"))
    odd = ["sre", "", "a\x00b", "g" * 250, 7, None, ["sre"], "with space"]

    assert (await read(identity_provider.id_token(teams=odd))).groups == ("sre", "with space")
    assert (await read(identity_provider.id_token(teams="one"))).groups == ("one",)
    assert (await read(identity_provider.id_token())).groups == ()


async def test_without_a_groups_claim_groups_do_not_count(identity_provider):
    read = open_jwt_reader(settings(identity_provider, oidc_groups_claim=""))

    assert (await read(identity_provider.id_token())).groups == ()


async def test_services_and_people_are_read_side_by_side(identity_provider, tmp_path):
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [key_set()]}))
    read = open_jwt_reader(settings(identity_provider, jwks=str(file), jwt_issuer="https://issuer"))

    assert await read(identity_provider.id_token()) != await read(signed_by_service_issuer())
    assert (await read(signed_by_service_issuer())).name == "shop"
    for name in ("oidc:ann-1", "group:sre", "breaker"):
        with pytest.raises(UnauthenticatedError, match="reserved"):
            await read(signed_by_service_issuer(sub=name))


class Holders:
    """Tokens of the names of a person and of a group: nobody can make them, but a store may have them."""

    async def token_holder(self, digest):
        return Principal("group:sre")

    async def access_of(self, principal, groups=()):
        raise AssertionError


@pytest.mark.parametrize(
    "credentials",
    [
        Credentials(certificate_name="oidc:ann-1"),
        Credentials(certificate_name="group:sre"),
        Credentials(authorization="Bearer duly_1_x"),
    ],
)
async def test_no_token_and_no_certificate_has_the_name_of_a_person_or_a_group(credentials):
    with pytest.raises(UnauthenticatedError, match="reserved"):
        await Authorizer(Holders()).identify(credentials)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"oidc_audience": ""}, "oidc_audience"),
        ({"oidc_audience": " , "}, "oidc_audience"),
        ({"oidc_issuer": ""}, "oidc_issuer"),
        ({"oidc_principal_claim": ""}, "oidc_principal_claim"),
        ({"oidc_issuer": "http://login.example.com"}, "https"),
        ({"oidc_issuer": "login.example.com"}, "https"),
    ],
)
def test_settings_that_identify_nobody_are_refused(identity_provider, changes, match):
    with pytest.raises(SettingsError, match=match):
        open_jwt_reader(settings(identity_provider, **changes))


@pytest.mark.parametrize(
    ("issuer", "is_usable"),
    [
        ("https://login.example.com/realms/duly", True),
        ("http://127.0.0.1:8080", True),
        ("http://localhost:8080/x", True),
        ("http://login.example.com", False),
        ("https://", False),
        ("https://[", False),
        ("https://login.example.com/?a=b", False),
        ("file:///etc/passwd", False),
    ],
)
def test_an_issuer_is_reached_by_https_or_on_this_machine(issuer, is_usable):
    assert (issuer_problem(issuer) == "") == is_usable


def test_metadata_that_is_no_object_is_refused():
    with pytest.raises(ValueError, match="no JSON object"):
        read_metadata("https://login.example.com", b"[]")
