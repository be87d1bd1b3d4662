"""JWTs count only if a key of the issuer signed them, for us, and they have not expired."""

import asyncio
import json
import threading
import time

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from duly_core.access import jwks_file, jwks_url
from duly_core.access.jwks_url import FetchedKeys
from duly_core.access.jwt_reader import open_jwt_reader
from duly_core.access.settings import AuthSettings
from duly_core.errors import SettingsError, UnauthenticatedError

KEY = rsa.generate_private_key(65_537, 2_048)
OTHER = rsa.generate_private_key(65_537, 2_048)


def key_set(key: rsa.RSAPrivateKey = KEY, key_id: str = "k1") -> dict[str, object]:
    return json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())) | {"kid": key_id, "alg": "RS256"}


def claims(**changes: object) -> dict[str, object]:
    said = {"sub": "shop", "aud": "duly", "iss": "https://issuer", "exp": int(time.time()) + 60} | changes
    return {name: value for name, value in said.items() if value is not None}


def signed(key: object = KEY, algorithm: str = "RS256", key_id: str = "k1", **changes: object) -> str:
    return jwt.encode(claims(**changes), key, algorithm, headers={"kid": key_id})


@pytest.fixture
def read(tmp_path):
    file = tmp_path / "keys.json"
    symmetric = {
        "kty": "oct",
        "kid": "shared",
        "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0ISE",
        "alg": "HS256",
    }
    file.write_text(json.dumps({"keys": [key_set(), symmetric]}))
    return open_jwt_reader(AuthSettings(mode="required", jwks=str(file), jwt_issuer="https://issuer"))


async def test_a_jwt_of_the_issuer_names_its_principal(read):
    found = await read(signed())
    assert found.name == "shop"
    assert found.expires_at is not None


PUBLIC = KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def by_hand(algorithm: str, key_id: str, secret: bytes) -> str:
    """A token that PyJWT would not sign: with a public key as if it were a secret."""
    encoder = jwt.PyJWS(algorithms=["HS256", "none"])
    encoder._algorithms["HS256"].prepare_key = lambda key: key  # type: ignore[method-assign]
    return encoder.encode(json.dumps(claims()).encode(), secret, algorithm, headers={"kid": key_id})


@pytest.mark.parametrize(
    "make",
    [
        lambda: jwt.encode(claims(), None, "none", headers={"kid": "k1"}),
        lambda: by_hand("HS256", "k1", PUBLIC),
        lambda: by_hand("HS256", "shared", b"secretsecretsecretsecretsecret!!"),
        lambda: signed(OTHER),
        lambda: signed(ec.generate_private_key(ec.SECP256R1()), "ES256"),
        lambda: signed(key_id="k2"),
        lambda: jwt.encode(claims(), KEY, "RS256"),
        lambda: signed(exp=None),
        lambda: signed(exp=int(time.time()) - 1),
        lambda: signed(exp=10**18),
        lambda: signed(nbf=int(time.time()) + 600),
        lambda: signed(aud=None),
        lambda: signed(aud="others"),
        lambda: signed(iss=None),
        lambda: signed(iss="https://others"),
        lambda: signed(sub=None),
        lambda: signed(sub=""),
        lambda: signed(sub="a\x00b"),
        lambda: signed(sub="a" * 256),
        lambda: signed() + "x",
        lambda: "a.b.c",
    ],
)
async def test_any_other_jwt_is_refused(read, make):
    with pytest.raises(UnauthenticatedError):
        await read(make())


@pytest.fixture
def looks_always(monkeypatch):
    monkeypatch.setattr(jwks_file, "_LOOK_EVERY_S", 0)


async def test_a_file_of_keys_is_read_again_when_it_changes(looks_always, tmp_path):
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [key_set()]}))
    read = open_jwt_reader(AuthSettings(mode="required", jwks=str(file), jwt_issuer="https://issuer"))
    assert (await read(signed())).name == "shop"

    file.write_text(json.dumps({"keys": [key_set(OTHER, "k2"), key_set(OTHER, "k3")]}))

    assert (await read(signed(OTHER, key_id="k2"))).name == "shop"
    with pytest.raises(UnauthenticatedError, match="no key 'k1'") as refused:
        await read(signed())
    assert str(tmp_path) not in str(refused.value), "callers need not know where the keys are"


@pytest.mark.parametrize("content", [b'{"keys": [', b"{}", b"\xff", None])
async def test_while_the_file_of_keys_cannot_be_read_those_before_stay_in_force(
    looks_always, tmp_path, content
):
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [key_set()]}))
    read = open_jwt_reader(AuthSettings(mode="required", jwks=str(file), jwt_issuer="https://issuer"))

    file.unlink() if content is None else file.write_bytes(content)

    assert (await read(signed())).name == "shop"
    file.write_text(json.dumps({"keys": [key_set(OTHER, "k2")]}))
    assert (await read(signed(OTHER, key_id="k2"))).name == "shop"


def test_keys_are_fetched_by_https_only():
    with pytest.raises(SettingsError):
        open_jwt_reader(AuthSettings(mode="required", jwks="http://issuer/keys"))


async def test_a_key_that_the_issuer_took_out_is_refused_after_a_while(monkeypatch):
    keys = [jwt.PyJWK(key_set())]
    fetched = FetchedKeys(lambda *, refresh: keys)
    assert (await fetched.find(signed())).key_id == "k1"
    keys = [jwt.PyJWK(key_set(OTHER, "k2"))]
    monkeypatch.setattr(jwks_url, "_ASKED_EVERY_S", 0)
    assert (await fetched.find(signed())).key_id == "k1"
    monkeypatch.setattr(jwks_url, "_FRESH_S", -1)
    with pytest.raises(jwt.InvalidKeyError):
        await fetched.find(signed())


async def test_tokens_that_name_unknown_keys_do_not_load_the_issuer():
    asked = []

    def fetch(*, refresh: bool) -> list[jwt.PyJWK]:
        asked.append(refresh)
        return [jwt.PyJWK(key_set())]

    fetched = FetchedKeys(fetch)
    for number in range(50):
        with pytest.raises(jwt.InvalidKeyError):
            await fetched.find(signed(key_id=f"guess{number}"))
    assert len(asked) == 1


async def test_known_keys_are_accepted_while_the_issuer_does_not_answer(monkeypatch):
    answers = [[jwt.PyJWK(key_set())]]

    def fetch(*, refresh: bool) -> list[jwt.PyJWK]:
        if not answers:
            raise jwt.PyJWKClientError("no answer")
        return answers.pop()

    fetched = FetchedKeys(fetch)
    await fetched.find(signed())
    monkeypatch.setattr(jwks_url, "_FRESH_S", -1)
    monkeypatch.setattr(jwks_url, "_ASKED_EVERY_S", 0)
    assert (await fetched.find(signed())).key_id == "k1"
    monkeypatch.setattr(jwks_url, "_STALE_S", -1)
    with pytest.raises(jwt.PyJWKClientError):
        await fetched.find(signed())


async def test_one_fetch_runs_at_a_time_and_who_has_a_known_key_does_not_wait(monkeypatch):
    monkeypatch.setattr(jwks_url, "_ASKED_EVERY_S", 0)
    answers = [threading.Event() for _ in range(2)]
    answers[0].set()
    fetches = []

    def fetch(*, refresh: bool) -> list[jwt.PyJWK]:
        fetches.append(refresh)
        assert answers[len(fetches) - 1].wait(20)
        return [jwt.PyJWK(key_set())]

    fetched = FetchedKeys(fetch)
    await fetched.find(signed())
    # more of them than the threads that others need, too
    strangers = [asyncio.ensure_future(fetched.find(signed(key_id=f"guess{n}"))) for n in range(50)]
    await asyncio.sleep(0)

    async with asyncio.timeout(20):
        assert (await fetched.find(signed())).key_id == "k1"
        assert await asyncio.to_thread(str, 1) == "1"
        assert not any(each.done() for each in strangers)
        answers[1].set()
        refused = await asyncio.gather(*strangers, return_exceptions=True)

    assert {type(each) for each in refused} == {jwt.InvalidKeyError}
    assert len(fetches) == 2


async def test_who_waits_for_keys_waits_no_longer_than_a_fetch_may_take(monkeypatch):
    monkeypatch.setattr(jwks_url, "_FETCHED_WITHIN_S", 0.01)
    goes_on = threading.Event()
    fetched = FetchedKeys(lambda *, refresh: goes_on.wait(20) and [])

    with pytest.raises(jwt.PyJWKClientError, match="cannot be fetched"):
        await fetched.find(signed())

    goes_on.set()
