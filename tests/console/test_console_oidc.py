"""Sign-in to the console by an identity provider: what signs somebody in, what does not, and how long it lasts."""

import asyncio
import hashlib
import re
import time
from dataclasses import replace
from datetime import timedelta
from html import unescape
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import pytest
from cryptography.fernet import Fernet
from structlog.testing import capture_logs

from duly_console.errors import PageError, SignInNeededError
from duly_console.oidc import renewal
from duly_console.oidc.open_oidc import open_oidc
from duly_console.session_cookie import Session, SessionCookies
from duly_console.settings import ConsoleSettings
from duly_core.access import cache as access_cache
from duly_core.access import jwks_url
from duly_core.access import store as access
from duly_core.access.audit_log import list_events
from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.grants import Grant
from duly_core.access.jwt_reader import open_jwt_reader
from duly_core.access.roles import Role
from duly_core.access.settings import AuthSettings
from duly_core.errors import SettingsError
from duly_core.oidc import provider as provider_module
from tests.fixtures.console import ORIGIN, browse, token_of
from tests.fixtures.identity_provider import CLIENT_ID, SECRET, signed
from tests.fixtures.services import serve_frontend

EVERYTHING = 2**62


@pytest.fixture
async def people(store, identity_provider, monkeypatch):
    """A Frontend that knows people of the provider; the group `sre` operates everything, `operator` has a token."""
    monkeypatch.setattr(access_cache, "FRESH", timedelta(0))
    monkeypatch.setattr(jwks_url, "_ASKED_EVERY_S", 0)
    await access.add_token(store, hashlib.sha256(token_of("operator").encode()).digest(), "o", "operator")
    grants = [Grant("operator", Role.OPERATOR, "*"), Grant("group:sre", Role.OPERATOR, "*")]
    await access.add_grants(store, grants)
    read = open_jwt_reader(
        AuthSettings(mode="required", oidc_issuer=identity_provider.issuer, oidc_audience=CLIENT_ID)
    )
    async with serve_frontend(store, authorizer=Authorizer(AccessCache(store), read)) as served:
        yield served


@pytest.fixture
def oidc_settings(identity_provider, tmp_path):
    secret = tmp_path / "client-secret"
    secret.write_text(f"{SECRET}\n")
    secret.chmod(0o600)
    return {
        "oidc_issuer": identity_provider.issuer,
        "oidc_client_id": CLIENT_ID,
        "oidc_client_secret_file": str(secret),
    }


@pytest.fixture
async def person(people, oidc_settings):
    """A browser on a console with an identity provider."""
    async with browse(people, **oidc_settings) as opened:
        yield opened


async def at_provider(browser, back="/tasks"):
    """Begin to sign in, and return the address to which the provider sends the browser back."""
    begun = await browser.get("/sign-in/oidc", params={"back": back})
    assert begun.status_code == 303, begun.text
    async with httpx.AsyncClient() as http:
        answer = await http.get(begun.headers["location"])
    return answer.headers["location"].removeprefix(ORIGIN)


async def sign_in(browser, back="/tasks"):
    """Go to the provider and back."""
    return await browser.get(await at_provider(browser, back))


def is_signed_in(response):
    return response.status_code == 200 and "Signed in" in response.text


async def test_a_person_signs_in_and_has_the_roles_of_its_groups(person):
    answer = await sign_in(person, "/settings?x=1&y=2")
    cookies = answer.headers.get_list("set-cookie")
    page = await person.get("/settings")

    assert is_signed_in(answer)
    assert 'content="0; url=/settings?x=1&amp;y=2"' in answer.text
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert page.status_code == 200
    assert "oidc:ann-1" in page.text
    assert "Groups: sre, staff" in page.text
    assert all("HttpOnly" in each for each in cookies)
    assert "samesite=strict" in cookies[0].lower()


async def test_the_request_to_the_provider_is_bound_to_this_browser(person, identity_provider):
    begun = await person.get("/sign-in/oidc")
    where = urlsplit(begun.headers["location"])
    asked = {name: values[0] for name, values in parse_qs(where.query).items()}
    cookie = begun.headers["set-cookie"]

    assert f"{where.scheme}://{where.netloc}" == identity_provider.issuer
    assert asked["response_type"] == "code"
    assert asked["redirect_uri"] == f"{ORIGIN}/sign-in/callback"
    assert asked["scope"] == "openid profile email"
    assert asked["code_challenge_method"] == "S256"
    assert len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3
    assert not any(asked[name] in cookie for name in ("state", "nonce"))
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower(), "the provider's page leads back"


async def test_what_a_person_does_is_audited_with_the_persons_name(person, store, task_states):
    await task_states.register()
    await sign_in(person)
    await person.get("/settings")

    done = await person.confirmed("/settings/change", name="store_consumer.batch", value="17")

    assert done.status_code == 200
    events = await list_events(store, before=EVERYTHING, limit=10, method="SetSettings")
    assert [event.entry.actor for event in events] == ["oidc:ann-1"]


async def test_a_person_without_a_role_is_told_so(person, identity_provider, store):
    identity_provider.person["groups"] = ["staff"]
    await sign_in(person)

    before = await person.get("/settings")
    await access.add_grants(store, [Grant("oidc:ann-1", Role.AUDITOR, "*")])

    assert before.status_code == 403
    assert "duly grants add oidc:ann-1" in unescape(before.text)
    assert (await person.get("/settings")).status_code == 200


def unsigned(claims):
    return jwt.encode(claims, None, "none", headers={"kid": "key-0"})


def symmetric(claims):
    return jwt.encode(claims, "x" * 32, "HS256", headers={"kid": "key-0"})


@pytest.mark.parametrize(
    "lie",
    [
        {"changes": {"nonce": "another"}},
        {"changes": {"nonce": None}},
        {"changes": {"aud": "another-client"}},
        {"changes": {"aud": [CLIENT_ID, "another-client"]}},
        {"changes": {"azp": "another-client"}},
        {"changes": {"iss": "https://evil.example"}},
        {"changes": {"exp": int(time.time()) - 5}},
        {"changes": {"exp": None}},
        {"changes": {"exp": "soon"}},
        {"changes": {"sub": None}},
        {"changes": {"sub": ["ann"]}},
        {"changes": {"iat": 10**30}},
        {"sign": unsigned},
        {"sign": symmetric},
        {"sign": lambda claims: signed(claims, 1, kid="key-0")},
        {"sign": lambda claims: signed(claims, kid="guess")},
        {"sign": lambda _claims: "a.b.c"},
        {"sign": lambda _claims: "e30.W10.x"},
        {"sign": lambda _claims: ""},
    ],
)
async def test_an_id_token_that_is_not_for_this_sign_in_signs_nobody_in(person, identity_provider, lie):
    for name, value in lie.items():
        setattr(identity_provider, name, value)

    answer = await sign_in(person)

    assert answer.status_code == 400
    assert 'role="alert"' in answer.text
    assert (await person.get("/settings")).status_code == 303


async def test_a_providers_clock_that_is_ahead_signs_in(person, identity_provider):
    identity_provider.changes = {"iat": int(time.time()) + 30}

    assert is_signed_in(await sign_in(person))


async def test_an_answer_of_another_attempt_or_of_none_signs_nobody_in(person):
    first = await at_provider(person)
    await at_provider(person)  # in another tab: its state is in the cookie now
    mixed_up = await person.get(first)
    person.http.cookies.clear()
    without_cookie = await person.get(first)

    for answer in (mixed_up, without_cookie):
        assert answer.status_code == 400
        assert "did not begin in this browser" in answer.text
    for address in (
        "/sign-in/callback",
        "/sign-in/callback?state=&code=x",
        "/sign-in/callback?state=x&state=y",
    ):
        assert (await person.get(address)).status_code == 400


async def test_a_code_signs_in_once(person):
    where = await at_provider(person)
    copied = dict(person.http.cookies)
    first = await person.get(where)
    again = await person.get(where)
    person.http.cookies.clear()
    person.http.cookies.update(copied)
    replayed = await person.get(where)

    assert is_signed_in(first)
    assert again.status_code == 400
    assert replayed.status_code == 400
    assert "invalid_grant" in replayed.text


async def test_an_attempt_ends_after_ten_minutes(person, monkeypatch):
    where = await at_provider(person)
    monkeypatch.setattr("duly_console.oidc.attempt.LASTS", -1)

    assert (await person.get(where)).status_code == 400


async def test_a_session_cookie_is_no_attempt_and_an_attempt_no_session(person):
    await sign_in(person)
    cookies = person.http.cookies
    session = cookies["duly_7480"]
    await person.get("/sign-in/oidc")
    attempt = cookies["duly_7480-sign-in"]
    cookies.clear()
    cookies.set("duly_7480", attempt)
    cookies.set("duly_7480-sign-in", session)

    assert (await person.get("/settings")).status_code == 303
    assert (await person.get("/sign-in/callback?state=x&code=y")).status_code == 400


@pytest.mark.parametrize(
    "back",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/" + "x" * 9_000],
)
async def test_signing_in_goes_on_to_a_page_of_the_console_only(person, back):
    answer = await sign_in(person, back)

    assert 'content="0; url=/"' in answer.text


async def test_an_answer_that_names_another_issuer_is_refused(person, identity_provider):
    where = await at_provider(person)
    evil = re.sub(r"iss=[^&]*", "iss=https%3A%2F%2Fevil.example", where)
    refused = await person.get(evil)
    identity_provider.metadata = {"authorization_response_iss_parameter_supported": True}
    where = await at_provider(person)

    assert refused.status_code == 400
    assert "another provider" in refused.text
    assert is_signed_in(await person.get(where))


async def test_a_provider_that_names_itself_in_answers_must_always(people, identity_provider, oidc_settings):
    identity_provider.metadata = {"authorization_response_iss_parameter_supported": True}
    async with browse(people, **oidc_settings) as browser:
        where = await at_provider(browser)

        assert (await browser.get(re.sub(r"&iss=[^&]*", "", where))).status_code == 400


async def test_a_console_that_restarted_meanwhile_asks_the_provider_before_it_takes_an_answer(
    people, identity_provider, oidc_settings, tmp_path
):
    identity_provider.metadata = {"authorization_response_iss_parameter_supported": True}
    keys = tmp_path / "keys"
    keys.write_bytes(Fernet.generate_key())
    keys.chmod(0o600)
    async with browse(people, **oidc_settings, secret_file=str(keys)) as before:
        where = await at_provider(before)
        cookies = dict(before.http.cookies)
    async with browse(people, **oidc_settings, secret_file=str(keys)) as browser:
        browser.http.cookies.update(cookies)
        unnamed = await browser.get(re.sub(r"&iss=[^&]*", "", where))
        browser.http.cookies.update(cookies)
        named = await browser.get(where)

    assert unnamed.status_code == 400
    assert is_signed_in(named)


async def test_what_the_provider_says_instead_of_a_code_is_shown_and_runs_nothing(person):
    begun = await person.get("/sign-in/oidc")
    state = parse_qs(urlsplit(begun.headers["location"]).query)["state"][0]

    answer = await person.get(
        "/sign-in/callback",
        params={
            "state": state,
            "error": "access_denied",
            "error_description": "<script>x</script>" + "y" * 999,
        },
    )

    assert answer.status_code == 400
    assert "access_denied" in answer.text
    assert "<script>x" not in answer.text
    assert "y" * 300 not in answer.text


# ---- the provider is away --------------------------------------------------------------------------------


async def test_while_the_provider_is_away_tokens_sign_in(person, identity_provider):
    identity_provider.away = True

    begun = await person.get("/sign-in/oidc")
    with_token = await person.sign_in("operator")

    assert begun.status_code == 503
    assert "does not answer" in begun.text
    assert 'name="token"' in begun.text
    assert with_token.status_code == 303
    assert (await person.get("/settings")).status_code == 200


async def test_a_provider_that_is_away_is_not_asked_for_each_visitor(person, identity_provider):
    identity_provider.away = True

    answers = await asyncio.gather(*(person.http.get("/sign-in/oidc") for _ in range(20)))

    assert {answer.status_code for answer in answers} == {503}
    assert identity_provider.calls["/.well-known/openid-configuration"] == 1


async def test_what_the_provider_said_of_itself_is_remembered(person, identity_provider, monkeypatch):
    await sign_in(person)
    fetches = identity_provider.calls["/.well-known/openid-configuration"]
    await person.get("/sign-in/oidc")
    assert identity_provider.calls["/.well-known/openid-configuration"] == fetches
    monkeypatch.setattr(provider_module, "_FRESH", -1)
    identity_provider.away = True

    assert (await person.get("/sign-in/oidc")).status_code == 303


async def test_a_provider_that_ends_between_the_pages_signs_nobody_in(person, identity_provider):
    where = await at_provider(person)
    identity_provider.away = True

    answer = await person.get(where)

    assert answer.status_code == 503
    assert (await person.get("/settings")).status_code == 303


async def test_a_wrong_client_secret_is_the_consoles_fault(people, oidc_settings, tmp_path):
    (tmp_path / "client-secret").write_text("another")
    async with browse(people, **oidc_settings) as browser:
        answer = await sign_in(browser)

    assert answer.status_code == 503
    assert "console.oidc_client_secret_file" in answer.text


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://evil.example/token"},
        {"authorization_endpoint": None},
        {"authorization_endpoint": "javascript:alert(1)"},
    ],
)
async def test_metadata_that_is_not_the_issuers_leads_nowhere(person, identity_provider, metadata):
    identity_provider.metadata = metadata

    assert (await person.get("/sign-in/oidc")).status_code == 503


# ---- how long a session lasts ----------------------------------------------------------------------------


@pytest.fixture
def always_due(monkeypatch):
    """Each request renews the ID token."""
    monkeypatch.setattr(renewal, "EARLY", 10**6)


async def test_an_id_token_is_renewed_before_it_expires_and_forms_stay_valid(
    person, identity_provider, monkeypatch
):
    await sign_in(person)
    await person.get("/settings")
    before = dict(person.http.cookies)
    monkeypatch.setattr(renewal, "EARLY", 10**6)
    identity_provider.person["groups"] = ["staff"]

    renewed = await person.post("/settings/change", name="store_consumer.batch", value="17")

    assert renewed.status_code == 403, "the groups of now count"
    assert "may not" in unescape(renewed.text), "and not: the form is of another session"
    assert person.http.cookies["duly_7480"] != before["duly_7480"]
    assert list(identity_provider.refresh_tokens.values()) == [1, 0]


async def test_requests_at_the_same_time_renew_once_also_where_an_answer_was_lost(
    person, identity_provider, monkeypatch
):
    await sign_in(person)
    old = dict(person.http.cookies)
    monkeypatch.setattr(renewal, "EARLY", 301)
    identity_provider.lifetime = 600

    answers = await asyncio.gather(*(person.http.get("/settings") for _ in range(10)))
    person.http.cookies.clear()
    person.http.cookies.update(old)  # the answer did not arrive
    later = await person.get("/settings")

    assert {answer.status_code for answer in (*answers, later)} == {200}
    assert max(identity_provider.refresh_tokens.values()) == 1


async def test_without_a_refresh_token_a_session_ends_with_the_id_token(person, identity_provider):
    identity_provider.brings_refresh_tokens = False
    answer = await sign_in(person)
    cookies = SessionCookies.open("", timedelta(hours=1))
    now = int(time.time())

    lasts = [
        cookies.read(cookies.write(Session.of_provider("token", refresh, now + left))) is not None
        for refresh, left in [("", 9), ("", -1), ("refresh", -1)]
    ]

    assert int(re.search(r"Max-Age=(\d+)", answer.headers["set-cookie"])[1]) <= 300
    assert lasts == [True, False, True]


async def test_a_refresh_token_that_is_refused_ends_the_session(person, identity_provider, always_due):
    await sign_in(person)
    identity_provider.refresh_tokens.clear()

    refused = [await person.http.get("/settings") for _ in range(2)]

    assert [answer.status_code for answer in refused] == [303, 303]
    assert refused[0].headers["location"].startswith("/sign-in")


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"access_token": "opaque"}, 200),  # the ID token goes on as it was to
        ({"id_token": "a.b.c"}, 303),
        ({"id_token": 7}, 303),
        ([], 200),  # no answer of a provider: as if it were away
    ],
)
async def test_other_answers_to_a_refresh_token(person, identity_provider, always_due, answer, status):
    await sign_in(person)
    identity_provider.refresh_answer = answer

    assert (await person.get("/settings")).status_code == status


async def test_a_refreshed_id_token_of_somebody_else_ends_the_session(person, identity_provider, always_due):
    await sign_in(person)
    identity_provider.person["sub"] = "bob-2"

    assert (await person.get("/settings")).status_code == 303


async def test_while_the_provider_is_away_a_session_lasts_as_long_as_its_id_token(
    identity_provider, oidc_settings
):
    now = [time.time()]
    provider = open_oidc(ConsoleSettings(**oidc_settings), secure=False).provider
    renewals = renewal.Renewals(provider, lambda: now[0])
    session = Session.of_provider(identity_provider.id_token(), "refresh", int(now[0]) + 300)
    identity_provider.refresh_tokens["refresh"] = 0
    assert await renewals.fresh(session) is session, "it is not due"
    await provider.metadata()
    identity_provider.away = True

    now[0] += 290
    during = [await renewals.fresh(session) for _ in range(5)]
    now[0] += 15
    with pytest.raises(PageError, match="identity provider does not answer") as after:
        await renewals.fresh(session)
    identity_provider.away = False
    identity_provider.lifetime = 1_000  # its clock is that of the machine
    now[0] += 15
    renewed = await renewals.fresh(session)

    assert all(each is session for each in during)
    assert after.value.status == 503
    assert identity_provider.calls["/token"] == 3, "it is not asked for each request"
    assert renewed.expires_at > now[0]
    assert renewed.refresh != "refresh"
    assert renewed.csrf == session.csrf


async def test_refused_refresh_tokens_are_remembered_for_a_while_and_within_bounds(
    identity_provider, oidc_settings, monkeypatch
):
    monkeypatch.setattr(renewal, "_MOST", 3)
    provider = open_oidc(ConsoleSettings(**oidc_settings), secure=False).provider
    renewals = renewal.Renewals(provider)
    now = int(time.time())

    for number in (0, 0, 1, 2, 3):
        with pytest.raises(SignInNeededError):
            await renewals.fresh(Session.of_provider(identity_provider.id_token(), f"guess {number}", now))

    assert identity_provider.calls["/token"] == 4
    assert len(renewals._renewals) == 3


async def test_a_page_that_fails_keeps_the_renewed_session(
    people, oidc_settings, identity_provider, store, monkeypatch
):
    async with browse(people, page_timeout=timedelta(seconds=1), **oidc_settings) as person:
        await sign_in(person)
        before = person.http.cookies["duly_7480"]
        monkeypatch.setattr(renewal, "EARLY", 301)
        identity_provider.lifetime = 600

        async with store.connection() as connection, connection.transaction():
            await connection.execute("lock table role_grant in access exclusive mode")
            failed = await person.get("/settings")
        renewed = person.http.cookies["duly_7480"]
        monkeypatch.setattr(renewal, "EARLY", 30)
        after = await person.get("/settings")

    assert failed.status_code in (503, 504), failed.text
    assert renewed != before
    assert after.status_code == 200
    assert sorted(identity_provider.refresh_tokens.values()) == [0, 1]


async def test_the_page_that_says_that_the_store_is_away_keeps_the_renewed_session(
    people, oidc_settings, identity_provider, store, monkeypatch
):
    monkeypatch.setattr(access_cache, "STALE", timedelta(0))
    async with browse(people, **oidc_settings) as person:
        await sign_in(person)
        before = person.http.cookies["duly_7480"]
        monkeypatch.setattr(renewal, "EARLY", 301)
        identity_provider.lifetime = 600

        async with store.connection() as connection, connection.transaction():
            await connection.execute("set local idle_in_transaction_session_timeout = 0")
            await connection.execute("lock table access_version in access exclusive mode")
            away = await person.get("/settings")
        renewed = person.http.cookies["duly_7480"]
        after = await person.get("/settings")

    assert away.status_code == 503
    assert "store is away" in away.text
    assert renewed != before
    assert after.status_code == 200
    assert sorted(identity_provider.refresh_tokens.values()) == [0, 1]


async def test_renewed_tokens_are_forgotten_once_they_expired_or_their_session_signed_out(
    identity_provider, oidc_settings
):
    now = [time.time()]
    provider = open_oidc(ConsoleSettings(**oidc_settings), secure=False).provider
    renewals = renewal.Renewals(provider, lambda: now[0])
    identity_provider.refresh_tokens |= {"of ann": 0, "of bob": 0}
    ann, bob = (
        Session.of_provider(identity_provider.id_token(), token, int(now[0]))
        for token in ("of ann", "of bob")
    )
    renewed = await renewals.fresh(ann)
    other = await renewals.fresh(bob)

    renewals.forget(renewed)
    of_bob = [each.csrf for each in renewals._renewals.values()]
    now[0] = other.expires_at + 1
    with pytest.raises(SignInNeededError):
        await renewals.fresh(replace(other, refresh=""))

    assert of_bob == [bob.csrf]
    assert not renewals._renewals


# ---- large tokens, signing out, other ways in ------------------------------------------------------------


@pytest.mark.parametrize(("count", "cookies"), [(2, 1), (60, 2), (120, 3)])
async def test_groups_of_a_large_firm_fit_into_cookies(person, identity_provider, count, cookies):
    identity_provider.person["groups"] = ["sre", *(f"{number:036}" for number in range(count))]

    answer = await sign_in(person)

    assert is_signed_in(answer)
    parts = [each for each in answer.headers.get_list("set-cookie") if "samesite=strict" in each.lower()]
    assert len(parts) == cookies
    assert all(len(part.split(";")[0]) <= 4_096 for part in parts)
    assert (await person.get("/settings")).status_code == 200


async def test_too_many_groups_for_a_browser_are_told(person, identity_provider):
    identity_provider.person["groups"] = [f"{number:036}" for number in range(400)]

    answer = await sign_in(person)

    assert answer.status_code == 400
    assert "fewer groups" in answer.text


async def test_a_part_of_a_cookie_is_nobodys(person, identity_provider):
    identity_provider.person["groups"] = ["sre", *(f"{number:036}" for number in range(60))]
    await sign_in(person)
    person.http.cookies.delete("duly_7480-1")

    assert (await person.get("/settings")).status_code == 303


async def test_signing_out_offers_to_sign_out_of_the_provider(person, identity_provider):
    await sign_in(person)
    copied = dict(person.http.cookies)
    await person.get("/settings")

    out = await person.post("/sign-out")
    person.http.cookies.clear()
    person.http.cookies.update(copied)

    (link,) = re.findall(r'href="(http[^"]+)"', out.text)
    where = urlsplit(unescape(link))
    assert f"{where.scheme}://{where.netloc}{where.path}" == f"{identity_provider.issuer}/end"
    assert parse_qs(where.query) == {
        "client_id": [CLIENT_ID],
        "post_logout_redirect_uri": [f"{ORIGIN}/sign-in"],
    }
    assert (await person.get("/settings")).status_code == 303, "a copy of the cookie"


@pytest.mark.parametrize("url", [None, "javascript:alert(1)", "http://evil.example/end"])
async def test_a_provider_without_a_page_to_sign_out_at(person, identity_provider, url):
    identity_provider.metadata = {"end_session_endpoint": url}
    await sign_in(person)
    await person.get("/settings")

    out = await person.post("/sign-out")

    assert (out.status_code, out.headers["location"]) == (303, "/sign-in")


async def test_tokens_sign_in_beside_the_provider(person):
    page = await person.get("/sign-in?back=/tasks")
    signed_in = await person.sign_in("operator")
    out = await person.post("/sign-out")

    assert f'href="{ORIGIN}/sign-in/oidc?back=%2Ftasks"' in page.text
    assert signed_in.status_code == 303
    assert out.headers["location"] == "/sign-in"


async def test_without_an_issuer_there_is_no_way_to_a_provider(people):
    async with browse(people) as browser:
        page = await browser.get("/sign-in")
        begun = await browser.get("/sign-in/oidc")

    assert "Sign in with" not in page.text
    assert begun.status_code == 404


async def test_a_frontend_that_identifies_nobody_signs_nobody_in(frontend, oidc_settings):
    async with browse(frontend, **oidc_settings) as browser:
        answer = await sign_in(browser)

    assert answer.status_code == 400
    assert "auth.mode = none" in answer.text


async def test_a_frontend_that_does_not_know_the_provider_says_so(guarded, oidc_settings):
    async with browse(guarded, **oidc_settings) as browser:
        answer = await sign_in(browser)

    assert answer.status_code == 400
    assert "The Frontend does not accept this sign-in" in answer.text


async def test_no_page_and_no_log_line_has_a_token_a_code_or_a_secret(person, identity_provider, always_due):
    issued = []
    identity_provider.sign = lambda claims: issued.append(signed(claims)) or issued[-1]
    with capture_logs() as lines:
        where = await at_provider(person)
        code = parse_qs(urlsplit(where).query)["code"][0]
        pages = [await person.get(where), await person.get("/settings")]
        identity_provider.refresh_tokens.clear()
        pages.append(await person.get("/settings"))

    secrets = [*issued, code, SECRET, *identity_provider.refresh_tokens]
    for text in (str(lines), *(page.text for page in pages), *(str(page.headers) for page in pages)):
        assert not any(secret in text for secret in secrets)
    assert {"event": "signed in", "principal": "oidc:ann-1"}.items() <= next(
        line.items() for line in lines if line["event"] == "signed in"
    )


# ---- settings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"oidc_client_id": ""}, "oidc_client_id"),
        ({"oidc_issuer": ""}, "oidc_issuer"),
        ({"oidc_issuer": "http://login.example.com"}, "https"),
        ({"oidc_scopes": "profile"}, "openid"),
        ({"listen": "0.0.0.0:7480"}, "public_url"),
        ({"listen": "127.0.0.1:0"}, "public_url"),
        ({"oidc_client_secret_file": "/nowhere/secret"}, "oidc_client_secret_file"),
    ],
)
def test_settings_with_which_nobody_could_sign_in_are_refused(changes, match, monkeypatch):
    said = {"oidc_issuer": "https://login.example.com", "oidc_client_id": "duly"} | changes

    with pytest.raises(SettingsError, match=match):
        open_oidc(ConsoleSettings.load(**said), secure=False)


@pytest.mark.parametrize(("mode", "text"), [(0o644, "x"), (0o600, "")])
def test_a_client_secret_that_others_may_read_or_that_is_none_is_refused(tmp_path, mode, text):
    file = tmp_path / "secret"
    file.write_text(text)
    file.chmod(mode)
    settings = ConsoleSettings(
        oidc_issuer="https://login.example.com", oidc_client_id="duly", oidc_client_secret_file=str(file)
    )

    with pytest.raises(SettingsError, match="oidc_client_secret_file"):
        open_oidc(settings, secure=False)


def test_behind_a_proxy_the_provider_sends_browsers_to_its_address():
    settings = ConsoleSettings(
        listen="0.0.0.0:7480",
        public_url="https://duly.example.com/",
        oidc_issuer="https://login.example.com",
        oidc_client_id="duly",
    )

    assert open_oidc(settings, secure=True).base_url == "https://duly.example.com"
