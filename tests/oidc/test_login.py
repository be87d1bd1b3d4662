"""`duly login` and `duly logout`: what signs somebody in for commands, what does not, and how long it lasts."""

import asyncio
import json
import os
import re
import socket
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import grpc
import httpx
import pytest
from typer.testing import CliRunner

import duly
from duly_cli.__main__ import app
from duly_cli.oidc import commands, device, signing_in
from duly_cli.oidc.open_provider import open_provider
from duly_cli.oidc.sign_in_file import StoredSignIn, file_of, locked, prepared, read_sign_in
from duly_cli.oidc.signed_in_token import SignedInToken, signed_in_token
from duly_core.access import cache as access_cache
from duly_core.access import jwks_url
from duly_core.access import store as access
from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.grants import Grant
from duly_core.access.jwt_reader import open_jwt_reader
from duly_core.access.roles import Role
from duly_core.access.settings import AuthSettings
from duly_core.errors import SettingsError
from duly_core.oidc.errors import ClientRefusedError, ProviderAwayError, ProviderRefusedError
from duly_frontend.access.service import AccessServicer
from tests.fixtures.identity_provider import CLI_CLIENT_ID, CLIENT_ID, signed
from tests.fixtures.services import serve_frontend
from tests.fixtures.waiting import until

SCOPES = "openid profile email"


@pytest.fixture(autouse=True)
def state_folder(tmp_path, monkeypatch):
    """Where sign-ins are kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("DULY_TOKEN", "DULY_RPC_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "state"


@pytest.fixture
def auth(identity_provider):
    return AuthSettings(
        mode="required",
        oidc_issuer=identity_provider.issuer,
        oidc_audience=CLIENT_ID,
        oidc_cli_client_id=CLI_CLIENT_ID,
    )


@pytest.fixture
async def people(store, auth, monkeypatch):
    """A Frontend that knows people of the provider; the group `sre` operates everything."""
    monkeypatch.setattr(access_cache, "FRESH", timedelta(0))
    monkeypatch.setattr(jwks_url, "_ASKED_EVERY_S", 0)
    await access.add_grants(store, [Grant("group:sre", Role.OPERATOR, "*")])
    authorizer = Authorizer(AccessCache(store), open_jwt_reader(auth))
    async with serve_frontend(store, authorizer=authorizer, auth=auth) as served:
        yield served


@pytest.fixture
def run(people, monkeypatch):
    """Run a command against that Frontend."""

    async def run(*arguments, answer=None, **more):
        settings = {"DULY_ADDRESS": people.address, "COLUMNS": "200", "DISPLAY": ":0"} | more
        return await asyncio.to_thread(CliRunner().invoke, app, list(arguments), env=settings, input=answer)

    return run


@pytest.fixture
def browser(monkeypatch):
    """A browser, which opens what the command says: it goes to the provider and back."""
    opened = Browser()
    monkeypatch.setattr(signing_in.webbrowser, "open", opened.open)
    yield opened
    opened.thread.shutdown()


class Browser:
    def __init__(self):
        self.thread = ThreadPoolExecutor(1)
        self.changes = lambda where: where
        """Changes the address to which the provider sends the browser back."""
        self.before = lambda _url: None
        """What else happens before."""
        self.pages = []

    def open(self, url):
        self.thread.submit(self._go, url)

    def _go(self, url):
        with httpx.Client(timeout=40) as http:
            self.before(url)
            where = self.changes(http.get(url).headers["location"])
            self.pages.append(http.get(where))


def kept(people):
    return read_sign_in(people.address)


def secrets_of(sign_in):
    return [sign_in.id_token, sign_in.refresh_token]


async def test_a_person_signs_in_and_commands_have_the_roles_of_its_groups(run, browser, people):
    signed_in = await run("login", "--yes")
    who = await run("whoami")
    listed = await run("settings", "list")

    assert signed_in.exit_code == 0, signed_in.stderr
    assert f"signed in to {people.address}\noidc:ann-1\n  operator of * (by group:sre)\n" in signed_in.stdout
    assert who.stdout.startswith("oidc:ann-1\n")
    assert listed.exit_code == 0, listed.stderr
    (page,) = browser.pages
    assert page.status_code == 200
    assert "You are signed in" in page.text
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["cache-control"] == "no-store"
    file = file_of(people.address)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    said = signed_in.output + who.output + repr(kept(people)) + page.text
    assert not any(secret in said for secret in secrets_of(kept(people)))


async def test_the_way_to_the_provider_has_proof_keys_and_leads_back_to_this_machine(run, browser):
    urls = []
    browser.before = urls.append
    await run("login", "--yes")

    asked = {name: values[0] for name, values in parse_qs(urlsplit(urls[0]).query).items()}
    assert asked["client_id"] == CLI_CLIENT_ID
    assert asked["scope"] == SCOPES
    assert asked["code_challenge_method"] == "S256"
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/callback", asked["redirect_uri"])
    assert len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3


async def test_answers_that_are_not_of_this_sign_in_are_not_taken_and_do_not_end_it(
    run, browser, identity_provider, people
):
    answers = []

    def attack(url):
        back = parse_qs(urlsplit(url).query)["redirect_uri"][0]
        state = parse_qs(urlsplit(url).query)["state"][0]
        root = back.removesuffix("/callback")
        with httpx.Client() as http:
            answers.extend(
                [
                    http.get(f"{back}?code=evil&state=evil"),
                    http.get(f"{back}?code=evil"),
                    http.get(f"{back}?code=evil&state={state}&code=evil2"),
                    http.get(f"{back}?code=evil&state={state}", headers={"host": "evil.example"}),
                    http.get(f"{back}?error=access_denied&state=%ff"),
                    http.get(f"{back}?{'a=b&' * 50}state={state}"),
                    http.get(f"{root}/?state={state}&code=evil"),
                    http.post(back, data={"code": "evil", "state": state}),
                ]
            )

    browser.before = attack
    done = await run("login", "--yes")

    assert done.exit_code == 0, done.stderr
    assert [each.status_code for each in answers] == [400, 400, 400, 400, 400, 400, 404, 501]
    assert not any("evil" in each.text for each in answers)
    assert done.stderr.count("its state differs") == 1
    assert done.stderr.count("another host name") == 1
    assert identity_provider.calls["/token"] == 1
    assert kept(people) is not None


async def test_an_answer_is_taken_once(run, browser):
    again = []

    def twice(where):
        def repeat():
            return httpx.get(where, timeout=40)

        with ThreadPoolExecutor(2) as threads:
            again.extend(each.result() for each in [threads.submit(repeat), threads.submit(repeat)])
        return where.replace("/callback", "/late")

    browser.changes = twice
    done = await run("login", "--yes")

    assert done.exit_code == 0, done.stderr
    await until(lambda: len(again) == 2)  # the browser may have its answers after the command has ended
    assert sorted(each.status_code for each in again) == [200, 400]


async def test_what_the_provider_says_instead_of_a_code_is_shown_and_runs_nothing(run, browser, people):
    def refuse(where):
        parts = urlsplit(where)
        state = parse_qs(parts.query)["state"][0]
        more = "&error=access_denied&error_description=%3Cscript%3Ex%1B[31m"
        return f"{parts.scheme}://{parts.netloc}{parts.path}?state={state}{more}"

    browser.changes = refuse
    done = await run("login", "--yes")

    assert done.exit_code == 1
    assert "did not sign you in: access_denied" in done.stderr
    assert "\x1b" not in done.output
    assert browser.pages[0].status_code == 400
    assert "<script" not in browser.pages[0].text
    assert kept(people) is None


async def test_an_answer_that_names_another_issuer_is_refused(run, browser, people, identity_provider):
    browser.changes = lambda where: re.sub(r"iss=[^&]*", "iss=https%3A%2F%2Fevil.example", where)
    done = await run("login", "--yes")

    assert done.exit_code == 1
    assert "of another provider" in done.stderr
    assert identity_provider.calls["/token"] == 0
    assert kept(people) is None


@pytest.mark.parametrize(
    ("changes", "fix"),
    [
        ({"nonce": "another"}, "not for this sign-in"),
        ({"aud": "another-client"}, "not for this sign-in"),
        ({"iss": "https://evil.example"}, "not for this sign-in"),
        ({"exp": 1}, "compare the clocks"),
    ],
)
async def test_an_id_token_that_is_not_for_this_sign_in_signs_nobody_in(
    run, browser, people, identity_provider, changes, fix
):
    identity_provider.changes = changes
    done = await run("login", "--yes")

    assert done.exit_code == 1
    assert fix in done.stderr
    assert kept(people) is None


async def test_a_sign_in_that_the_frontend_does_not_take_names_its_settings_and_keeps_nothing(
    run, browser, people, identity_provider
):
    identity_provider.sign = lambda claims: signed(claims, 1, kid="key-0")  # with a key that is not published
    done = await run("login", "--yes")

    assert done.exit_code == 1
    assert "does not accept this sign-in" in done.stderr
    assert "auth.oidc_cli_client_id" in done.stderr
    assert browser.pages[0].status_code == 400
    assert kept(people) is None


async def test_while_the_provider_is_away_nobody_signs_in_and_the_command_says_why(
    run, browser, people, identity_provider
):
    identity_provider.away = True
    done = await run("login", "--yes")
    by_device = await run("login", "--yes", "--device")

    for each in (done, by_device):
        assert each.exit_code == os.EX_UNAVAILABLE
        assert "answers with status 503" in each.stderr
    assert kept(people) is None


async def test_a_port_of_another_program_is_an_error_that_names_it(run, browser):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = await run("login", "--yes", "--port", str(taken.getsockname()[1]))

    assert done.exit_code == 1
    assert "another program listens on" in done.stderr


async def test_a_chosen_port_is_in_the_address_to_come_back_to(run, browser):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    urls = []
    browser.before = urls.append
    done = await run("login", "--yes", "--port", str(port))

    assert done.exit_code == 0, done.stderr
    assert f"127.0.0.1%3A{port}%2Fcallback" in urls[0]


async def test_nobody_waits_for_ever(run, browser, monkeypatch):
    monkeypatch.setattr(signing_in, "_WITHIN", 0.05)
    browser.open = lambda _url: None
    monkeypatch.setattr(signing_in.webbrowser, "open", browser.open)
    done = await run("login", "--yes")

    assert done.exit_code == 1
    assert "nobody signed in within" in done.stderr


async def test_without_a_browser_the_address_and_the_other_way_are_printed(run, browser, monkeypatch):
    monkeypatch.setattr(signing_in, "_WITHIN", 0.05)
    for arguments, environment in (
        (["login", "--yes"], {"DISPLAY": "", "BROWSER": "", "WAYLAND_DISPLAY": ""}),
        (["login", "--yes", "--no-browser"], {}),
    ):
        done = await run(*arguments, **environment)

        assert "/authorize?" in done.stderr
        assert "duly login --device" in done.stderr
        assert browser.pages == []


# ---- another device --------------------------------------------------------------------------------------


async def test_a_person_signs_in_on_another_device(run, people, identity_provider, monkeypatch):
    monkeypatch.setattr(device, "_INTERVALS", (0.0, 0.0))
    identity_provider.device_answers = ["authorization_pending", "authorization_pending"]
    done = await run("login", "--yes", "--device")

    assert done.exit_code == 0, done.stderr
    assert f"{identity_provider.issuer}/activate" in done.stderr
    assert "WDJB-MJHT" in done.stderr
    assert (await run("whoami")).stdout.startswith("oidc:ann-1\n")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("access_denied", "was refused at"),
        ("expired_token", "in time"),
        ("invalid_grant", "leave out --device"),
    ],
)
async def test_a_refusal_on_the_other_device_ends_the_sign_in(
    run, people, identity_provider, monkeypatch, answer, text
):
    monkeypatch.setattr(device, "_INTERVALS", (0.0, 0.0))
    identity_provider.device_answers = [answer]
    done = await run("login", "--yes", "--device")

    assert done.exit_code == 1
    assert text in done.stderr
    assert kept(people) is None


async def test_a_provider_without_that_way_is_told(run, identity_provider):
    identity_provider.metadata = {"device_authorization_endpoint": None}
    done = await run("login", "--yes", "--device")

    assert done.exit_code == 1
    assert "offers no sign-in on another device: leave out --device" in done.stderr


async def test_the_provider_says_how_often_it_is_asked_and_not_for_how_long(identity_provider):
    provider, _ = open_provider(identity_provider.issuer, CLI_CLIENT_ID, SCOPES)
    pauses = []

    async def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            identity_provider.away = True
        if len(pauses) == 4:
            identity_provider.away = False

    code = await device.begin(provider)
    identity_provider.device_answers = ["slow_down", "authorization_pending"]
    tokens = await device.poll(provider, code, pause)
    assert pauses == [5, 10, 10, 20]
    assert tokens.id_token.subject == "ann-1"

    identity_provider.device_answers = ["authorization_pending"] * 1_000
    with pytest.raises(ProviderRefusedError, match="in time"):
        await device.poll(provider, replace(code, lasts=50), pause)
    assert len(identity_provider.device_answers) == 990


async def test_a_client_that_the_provider_does_not_know_is_an_error_that_names_it(run, identity_provider):
    done = await run("login", "--yes", "--device", "--client-id", "another")
    with pytest.raises(ProviderAwayError):
        await device.begin(open_provider(identity_provider.issuer, "another", SCOPES)[0])

    assert done.exit_code == os.EX_UNAVAILABLE
    assert "is 'another' its id" in done.stderr


@pytest.mark.parametrize("answer", ["invalid_client", "unauthorized_client"])
async def test_a_client_that_may_not_sign_in_so_is_told_at_once(identity_provider, answer):
    provider, _ = open_provider(identity_provider.issuer, CLI_CLIENT_ID, SCOPES)
    pauses = []

    async def pause(seconds):
        pauses.append(seconds)

    code = await device.begin(provider)
    identity_provider.device_answers = [answer] * 3
    with pytest.raises(ClientRefusedError, match=answer):
        await device.poll(provider, code, pause)

    assert len(pauses) == 1


async def test_a_provider_that_stays_away_is_named_and_not_the_person(identity_provider):
    provider, failure = open_provider(identity_provider.issuer, CLI_CLIENT_ID, SCOPES)

    async def pause(_seconds):
        identity_provider.away = True

    code = await device.begin(provider)
    with pytest.raises(ProviderAwayError) as ended:
        await device.poll(provider, code, pause)

    assert "503" in failure.told(ended.value)


# ---- where the provider is -------------------------------------------------------------------------------


async def test_everybody_learns_how_to_sign_in_without_a_token(people, identity_provider):
    async with duly.AsyncClient(people.address) as client:
        found = await client.sign_in_provider()
        with pytest.raises(duly.UnauthenticatedError):
            await client.access()

    assert found == duly.SignInProvider(identity_provider.issuer, CLI_CLIENT_ID, SCOPES)


@pytest.mark.parametrize("changes", [{"mode": "none"}, {"oidc_cli_client_id": ""}])
async def test_a_frontend_without_a_client_for_commands_says_how_to_name_one(store, auth, changes):
    settings = auth.model_copy(update=changes)
    async with serve_frontend(store, auth=settings) as served:
        done = await asyncio.to_thread(CliRunner().invoke, app, ["login", "--address", served.address])

    assert done.exit_code == 1
    assert "auth.oidc_cli_client_id" in done.stderr
    assert "--issuer and --client-id" in done.stderr


async def test_options_name_the_provider_where_the_frontend_does_not_and_are_remembered(
    store, auth, browser, identity_provider
):
    settings = auth.model_copy(update={"oidc_cli_client_id": "", "oidc_audience": CLI_CLIENT_ID})
    authorizer = Authorizer(AccessCache(store), open_jwt_reader(settings))
    async with serve_frontend(store, authorizer=authorizer, auth=settings) as served:

        async def login(*arguments):
            environment = {"DULY_ADDRESS": served.address, "DISPLAY": ":0"}
            return await asyncio.to_thread(CliRunner().invoke, app, ["login", *arguments], env=environment)

        named = ["--issuer", identity_provider.issuer, "--client-id", CLI_CLIENT_ID]
        first = await login(*named)
        again = await login()

    assert (first.exit_code, again.exit_code) == (0, 0), first.stderr + again.stderr
    assert "no roles" in again.stdout


@pytest.fixture
def without_get_sign_in(monkeypatch):
    """Frontends that begin after it are of a release that has no such call."""

    async def unknown(_self, _request, context):
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

    monkeypatch.setattr(AccessServicer, "GetSignIn", unknown)


async def test_an_older_frontend_takes_a_sign_in_at_a_provider_that_is_named(
    without_get_sign_in, run, browser, people, identity_provider
):
    unnamed = await run("login")
    named = await run("login", "--issuer", identity_provider.issuer, "--client-id", CLI_CLIENT_ID)

    assert unnamed.exit_code == 1
    assert "older" in unnamed.stderr
    assert named.exit_code == 0, named.stderr


async def test_whoever_is_on_the_way_names_no_provider(identity_provider):
    done = await asyncio.to_thread(CliRunner().invoke, app, ["login", "--yes", "--address", "192.0.2.1:7401"])

    assert done.exit_code == 1
    assert "without TLS" in done.stderr


async def test_the_first_sign_in_at_an_address_is_confirmed(
    run, browser, people, identity_provider, monkeypatch
):
    alone = await run("login")
    asked_before = identity_provider.calls["/authorize"]
    monkeypatch.setattr(commands, "is_terminal", lambda: True)
    refused = await run("login", answer="n\n")
    asked_then = identity_provider.calls["/authorize"]
    taken = await run("login", answer="y\n")
    again = await run("login")

    assert alone.exit_code == 2
    assert "add --yes" in alone.stderr
    assert (refused.exit_code, asked_before, asked_then) == (1, 0, 0)
    for each in (alone, refused, taken):
        assert f"to {identity_provider.issuer}, as client {CLI_CLIENT_ID}" in each.stderr
    assert taken.exit_code == 0, taken.stderr
    assert again.exit_code == 0, again.stderr
    assert "Sign in there?" not in again.stderr


async def test_another_client_than_before_is_confirmed_again(run, people, identity_provider):
    file = file_of(people.address)
    stored(identity_provider, people.address)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"client_id": "another"}))
    done = await run("login")

    assert done.exit_code == 2
    assert CLI_CLIENT_ID in done.stderr


@pytest.mark.parametrize("issuer", ["http://login.example.com", "login", "https://x.example/?a=b"])
async def test_an_issuer_that_others_could_listen_to_is_refused(run, issuer):
    done = await run("login", "--yes", "--issuer", issuer, "--client-id", "x")

    assert done.exit_code == 2
    assert "--issuer" in done.stderr


def test_a_client_for_commands_needs_an_issuer():
    with pytest.raises(SettingsError, match="oidc_issuer"):
        open_jwt_reader(AuthSettings(mode="required", oidc_cli_client_id="x"))


# ---- how long it lasts -----------------------------------------------------------------------------------


def stored(identity_provider, address="127.0.0.1:1", lasts=300, refresh=True):
    """Keep a sign-in as `duly login` does."""
    identity_provider.lifetime = lasts
    identity_provider.changes = {"iat": int(time.time()) - 600}
    answer = identity_provider._tokens(aud=CLI_CLIENT_ID)
    provider, _ = open_provider(identity_provider.issuer, CLI_CLIENT_ID, SCOPES)
    found = provider.read(answer["id_token"])
    sign_in = StoredSignIn(
        address=address,
        issuer=identity_provider.issuer,
        client_id=CLI_CLIENT_ID,
        scopes=SCOPES,
        id_token=found.text,
        expires_at=found.expires_at,
        refresh_token=answer["refresh_token"] if refresh else "",
    )
    with locked(address), prepared(address) as keep:
        keep(sign_in)
    identity_provider.lifetime = 300
    identity_provider.changes = {}
    return sign_in


async def test_commands_at_once_use_a_refresh_token_once(identity_provider):
    first = stored(identity_provider, lasts=5)
    commands = [signed_in_token(first.address) for _ in range(6)]

    tokens = await asyncio.gather(*(asyncio.to_thread(each) for each in commands))

    assert identity_provider.refresh_tokens[first.refresh_token] == 1
    assert len(set(tokens)) == 1
    assert tokens[0] != first.id_token
    assert read_sign_in(first.address).id_token == tokens[0]
    assert await asyncio.to_thread(signed_in_token(first.address)) == tokens[0]
    assert identity_provider.calls["/token"] == 1


async def test_a_command_that_runs_for_long_renews_meanwhile(run, browser, people, identity_provider):
    await run("login", "--yes")
    now = [0.0]
    token = SignedInToken(kept(people), lambda: now[0])
    first = token()
    now[0] = kept(people).expires_at - 10
    renewed = await asyncio.to_thread(token)

    assert first != renewed
    async with duly.AsyncClient(people.address, token=lambda: renewed) as client:
        assert (await client.access()).principal == "oidc:ann-1"


async def test_a_refused_refresh_token_is_used_once_and_the_error_says_what_to_do(identity_provider):
    before = stored(identity_provider, lasts=-5)
    identity_provider.refresh_tokens.clear()

    for _ in range(2):
        with pytest.raises(duly.CredentialsError, match=r"has ended.*run `duly login`"):
            await asyncio.to_thread(signed_in_token(before.address))

    assert identity_provider.calls["/token"] == 1


async def test_while_the_provider_is_away_a_token_serves_until_it_ends(identity_provider):
    valid = stored(identity_provider, lasts=20)
    ended = stored(identity_provider, "127.0.0.1:2", lasts=-5)
    identity_provider.away = True

    assert await asyncio.to_thread(signed_in_token(valid.address)) == valid.id_token
    with pytest.raises(duly.CredentialsError, match=r"has to be renewed.*503.*Try again"):
        await asyncio.to_thread(signed_in_token(ended.address))
    identity_provider.away = False
    assert await asyncio.to_thread(signed_in_token(ended.address)) != ended.id_token


async def test_somebody_elses_token_renews_nothing(identity_provider):
    before = stored(identity_provider, lasts=-5)
    identity_provider.person = {"sub": "bob"}

    with pytest.raises(duly.CredentialsError, match="somebody else"):
        await asyncio.to_thread(signed_in_token(before.address))


async def test_a_sign_in_that_cannot_be_renewed_ends_every_command_with_the_fix(
    run, people, identity_provider
):
    stored(identity_provider, people.address, lasts=-5, refresh=False)
    done = await run("list")

    assert done.exit_code == 1
    assert (
        done.stderr.splitlines()[-1] == f"duly: your sign-in at {people.address} has ended: run `duly login`"
    )


async def test_a_sign_in_that_has_ended_is_in_the_way_of_no_server_that_needs_none(store, identity_provider):
    async with serve_frontend(store) as served:
        stored(identity_provider, served.address, lasts=-5, refresh=False)
        done = await asyncio.to_thread(CliRunner().invoke, app, ["list", "--address", served.address])

    assert done.exit_code == 0, done.stderr
    assert "has ended" not in done.output


async def test_without_authlib_a_token_serves_until_it_ends_and_the_error_names_what_to_install(
    identity_provider, monkeypatch
):
    valid = stored(identity_provider, lasts=20)
    ended = stored(identity_provider, "127.0.0.1:2", lasts=-5)
    monkeypatch.setitem(sys.modules, "duly_cli.oidc.open_provider", None)

    assert await asyncio.to_thread(signed_in_token(valid.address)) == valid.id_token
    with pytest.raises(duly.CredentialsError, match=r"duly\[oidc\]"):
        await asyncio.to_thread(signed_in_token(ended.address))
    assert ended.refresh_token in identity_provider.refresh_tokens


async def test_who_has_not_signed_in_is_told_of_it(run):
    done = await run("list")

    assert done.exit_code == 1
    assert "duly login" in done.stderr


async def test_a_token_of_the_environment_counts_for_more(run, browser, people):
    await run("login", "--yes")
    other = await run("list", DULY_TOKEN="duly_unknown")
    again = await run("login", "--yes", DULY_TOKEN="duly_unknown")

    assert other.exit_code == 1
    assert "unknown, revoked or expired" in other.stderr
    assert "DULY_TOKEN is set, and counts for more" in again.stderr


# ---- the file --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda file: file.chmod(0o644), "other users may read"),
        (lambda file: file.write_text("{"), "cannot be read"),
        (lambda file: file.write_text("{}"), "no sign-in"),
        (
            lambda file: file.write_text(json.dumps(json.loads(file.read_text()) | {"id_token": 1})),
            "no sign-in",
        ),
        (
            lambda file: file.write_text(json.dumps(json.loads(file.read_text()) | {"address": "evil:1"})),
            "no sign-in",
        ),
    ],
)
async def test_a_file_that_is_not_ours_alone_is_not_used_and_can_be_replaced(
    run, browser, people, identity_provider, spoil, text
):
    stored(identity_provider, people.address)
    spoil(file_of(people.address))

    refused = await run("list")
    replaced = await run("login", "--yes")

    assert refused.exit_code == 1
    assert text in refused.stderr
    assert replaced.exit_code == 0, replaced.stderr
    assert (await run("whoami")).exit_code == 0


async def test_a_sign_in_is_of_one_address(run, browser, people):
    await run("login", "--yes")
    with pytest.raises(duly.UnauthenticatedError):
        async with duly.AsyncClient(people.address) as client:
            await client.access()

    assert signed_in_token(people.address) is not None
    assert signed_in_token(people.address.replace("127.0.0.1", "localhost")) is None


async def test_a_folder_that_cannot_be_written_is_told_before_somebody_signs_in(
    run, browser, state_folder, identity_provider
):
    state_folder.write_text("a file")
    done = await run("login", "--yes")

    assert done.exit_code == 1
    assert "cannot be written" in done.stderr
    assert identity_provider.calls["/authorize"] == 0


# ---- logout ----------------------------------------------------------------------------------------------


async def test_logout_forgets_and_ends_the_sign_in_at_the_provider(run, browser, people, identity_provider):
    await run("login", "--yes")
    refresh_token = kept(people).refresh_token
    done = await run("logout")
    again = await run("logout")

    assert (done.exit_code, done.stdout) == (0, f"signed out of {people.address}\n")
    assert done.stderr == ""
    assert refresh_token not in identity_provider.refresh_tokens
    assert kept(people) is None
    assert (again.exit_code, again.stderr) == (0, f"duly: you are not signed in at {people.address}\n")


async def test_logout_forgets_while_the_provider_is_away_and_says_what_is_left(
    run, people, identity_provider
):
    stored(identity_provider, people.address)
    identity_provider.away = True
    done = await run("logout")

    assert done.exit_code == 0
    assert kept(people) is None
    assert "was not ended at the provider" in done.stderr
    assert "valid until 20" in done.stderr


async def test_what_others_may_have_read_is_ended_at_the_provider(run, people, identity_provider):
    before = stored(identity_provider, people.address)
    file_of(people.address).chmod(0o644)
    done = await run("logout")

    assert done.exit_code == 0
    assert done.stdout == f"signed out of {people.address}\n"
    assert "other users may have read" in done.stderr
    assert before.refresh_token not in identity_provider.refresh_tokens
    assert not file_of(people.address).exists()


async def test_a_sign_in_that_others_may_have_read_is_ended_before_the_next_begins(
    run, browser, people, identity_provider
):
    before = stored(identity_provider, people.address)
    file_of(people.address).chmod(0o640)
    at_the_browser = []
    browser.before = lambda _url: at_the_browser.extend(identity_provider.refresh_tokens)
    done = await run("login", "--yes")

    assert done.exit_code == 0, done.stderr
    assert "other users may have read" in done.stderr
    assert at_the_browser == []
    assert list(identity_provider.refresh_tokens) == [kept(people).refresh_token]
    assert before.id_token != kept(people).id_token or before.refresh_token != kept(people).refresh_token


async def test_a_sign_in_that_nobody_else_read_is_only_replaced(run, browser, people, identity_provider):
    stored(identity_provider, people.address)
    await run("login")

    assert identity_provider.calls["/revoke"] == 0


async def test_logout_leaves_nothing_of_a_command_that_was_killed(run, people, identity_provider):
    stored(identity_provider, people.address)
    file = file_of(people.address)
    file.with_name(f".{file.name}.0f.new").write_text("a secret")
    await run("logout")

    assert [each.suffix for each in file.parent.iterdir()] == [".lock"]


async def test_logout_everywhere_forgets_each(run, people, identity_provider):
    for address in ("127.0.0.1:1", "127.0.0.1:2"):
        stored(identity_provider, address)
    done = await run("logout", "--all")
    again = await run("logout", "--all")

    assert sorted(done.stdout.splitlines()) == ["signed out of 127.0.0.1:1", "signed out of 127.0.0.1:2"]
    assert again.stderr == "duly: you are signed in nowhere\n"
