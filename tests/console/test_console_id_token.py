"""ID tokens that the console takes: each rule holds here also where a Frontend would accept the token."""

import pytest

from duly_core.oidc.errors import ProviderRefusedError
from duly_core.oidc.id_token import read_id_token
from tests.fixtures.identity_provider import CLIENT_ID, signed

ISSUER = "https://login.example.com"
NOW = 1_800_000_000


def claims(**changes):
    said = {
        "iss": ISSUER,
        "aud": CLIENT_ID,
        "sub": "ann-1",
        "iat": NOW,
        "exp": NOW + 300,
        "nonce": "n",
    } | changes
    return {name: value for name, value in said.items() if value is not None}


def read(text, nonce="n"):
    return read_id_token(text, issuer=ISSUER, client_id=CLIENT_ID, now=NOW, nonce=nonce)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"aud": [CLIENT_ID]},
        {"aud": [CLIENT_ID, "api"], "azp": CLIENT_ID},
        {"iat": NOW + 60, "nbf": NOW + 60},  # the provider's clock is ahead
    ],
)
def test_an_id_token_for_this_sign_in_names_a_subject_and_an_end(changes):
    found = read(signed(claims(**changes)))

    assert (found.subject, found.expires_at) == ("ann-1", NOW + 300)


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": f"{ISSUER}/"},
        {"iss": None},
        {"aud": "another-client"},
        {"aud": None},
        {"aud": "api", "azp": CLIENT_ID},
        {"aud": [CLIENT_ID, "api"]},
        {"aud": [CLIENT_ID, "api"], "azp": "api"},
        {"azp": "api"},
        {"nonce": "another"},
        {"nonce": None},
        {"exp": NOW},
        {"exp": None},
        {"exp": True},
        {"exp": 10**40},
        {"sub": None},
        {"sub": ""},
        {"iat": None},
    ],
)
def test_any_other_id_token_is_refused(changes):
    with pytest.raises(ProviderRefusedError):
        read(signed(claims(**changes)))


@pytest.mark.parametrize(
    "text", [None, 7, "", "a.b", "a.b.c", "e30.W10.x", "W10.e30.x", f"{'W' * 99_999}.e30.x"]
)
def test_what_is_no_id_token_is_refused(text):
    with pytest.raises(ProviderRefusedError):
        read(text)


def test_a_refreshed_id_token_needs_no_nonce():
    assert read(signed(claims(nonce=None)), nonce="").subject == "ann-1"
