"""Who may see and change what in the console, and what other sites' pages cannot do."""

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from cryptography.fernet import Fernet
from structlog.testing import capture_logs

from duly_console.events import SignInLog
from duly_console.routes import CHANGES, PAGES
from duly_console.session_cookie import Session, SessionCookies
from duly_core.access import store as access
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_core.errors import SettingsError
from duly_core.tasks import task
from tests.console.test_console_pages import dead_letter, text_id
from tests.fixtures.console import ORIGIN, browse, token_of

EVIL = {"origin": "http://evil.example"}


@pytest.fixture
async def guarded_browser(guarded):
    async with browse(guarded) as opened:
        yield opened


async def test_nobody_sees_a_page_without_a_token(guarded_browser):
    for path, _, _ in PAGES:
        answer = await guarded_browser.get(path.replace("{name:path}", "x").replace("{", "").replace("}", ""))

        if path in ("/live", "/trends", "/search.json"):
            assert answer.status_code == 401
        else:
            assert answer.status_code == 303, path
            assert answer.headers["location"].startswith("/sign-in")


async def test_a_token_signs_in_and_signing_out_forgets_it(guarded_browser):
    signed_in = await guarded_browser.sign_in("operator")
    page = await guarded_browser.get("/")
    cookie = signed_in.headers["set-cookie"]
    signed_out = await guarded_browser.post("/sign-out")

    assert signed_in.headers["location"] == "/tasks"
    assert page.status_code == 200
    assert "operator" in page.text
    assert token_of("operator") not in cookie + page.text
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert signed_out.status_code == 303
    assert (await guarded_browser.get("/")).status_code == 303


async def test_a_copy_of_the_cookie_is_worth_nothing_after_signing_out_or_in(guarded_browser):
    jar = guarded_browser.http.cookies
    statuses = []
    for leave in ("/sign-out", "/sign-in"):
        await guarded_browser.sign_in("operator")
        copied = dict(jar)
        await guarded_browser.get("/")
        await guarded_browser.post(leave, token=token_of("auditor"))
        jar.clear()
        jar.update(copied)
        statuses.append((await guarded_browser.get("/")).status_code)
        jar.clear()

    assert statuses == [303, 303]


def test_ended_sessions_are_bounded_and_the_latest_stay_ended(monkeypatch):
    monkeypatch.setattr("duly_console.session_cookie._MOST_ENDED", 3)
    cookies = SessionCookies.open("", timedelta(hours=1))
    ended = [Session.new("token") for _ in range(5)]
    over = replace(Session.new("token"), started_at=1)

    for each in (over, *ended, *(Session.new() for _ in range(4))):
        cookies.end(each)

    read = [cookies.read(cookies.write(each)) is not None for each in ended]
    assert read == [True, True, False, False, False]
    assert len(cookies._ended) == 3


@pytest.mark.parametrize("token", ["", "duly_x_wrong", "two words", "x" * 9_000, "t\u00f6ken"])
async def test_what_is_no_valid_token_does_not_sign_in(guarded_browser, token):
    await guarded_browser.get("/sign-in")

    answer = await guarded_browser.post("/sign-in", token=token)

    assert answer.status_code == 400
    assert 'role="alert"' in answer.text
    assert (await guarded_browser.get("/")).status_code == 303


async def test_a_token_that_is_revoked_ends_the_session(guarded_browser, store):
    from duly_core.access import store as access

    await guarded_browser.sign_in("operator")
    before = await guarded_browser.get("/settings")
    await access.revoke_tokens(store, ["operator"])

    assert before.status_code == 200
    assert (await guarded_browser.get("/settings")).status_code == 303


async def test_signing_in_goes_back_to_a_page_of_the_console_only(guarded_browser):
    for back in ("https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"):
        await guarded_browser.get("/sign-in")

        answer = await guarded_browser.post("/sign-in", token=token_of("operator"), back=back)

        assert answer.headers["location"] == "/"


async def test_the_menu_has_what_a_role_may_see(guarded_browser):
    seen = {}
    for principal in ("operator", "auditor", "owner", "nobody"):
        await guarded_browser.sign_in(principal)
        page = await guarded_browser.get("/sign-in")
        page = await guarded_browser.get("/audit")
        seen[principal] = page.status_code
        menu = (await guarded_browser.get("/")).text
        assert ('href="/settings"' in menu) == (principal in ("operator", "auditor"))
        assert ('href="/tasks"' in menu) == (principal != "nobody")

    assert seen == {"operator": 200, "auditor": 200, "owner": 403, "nobody": 403}


async def test_an_auditor_reads_and_is_offered_no_change(guarded_browser, task_states):
    await task_states.register()
    dead = await dead_letter(task_states)
    waiting = text_id((await task_states.new()).task_id)
    await guarded_browser.sign_in("auditor")

    for path in ("/settings", "/dead-letters", f"/tasks/{dead}", f"/tasks/{waiting}", "/lambdas/mail.send"):
        page = await guarded_browser.get(path)

        assert page.status_code == 200, path
        main = page.text.split("<main")[1]
        assert 'method="post"' not in main, path
        assert "the mail server refused" not in main, "failure messages are not for auditors"


async def test_the_page_of_a_cause_offers_a_redrive_only_of_its_lambda(guarded_browser, task_states, store):
    grants = [Grant("nobody", Role.AUDITOR, "*"), Grant("nobody", Role.OWNER, "bill.*")]
    await access.add_grants(store, grants)
    for name in ("mail.send", "bill.pay"):
        await task_states.register(name)
        await dead_letter(task_states, lambda_name=name)
    await guarded_browser.sign_in("nobody")

    offers = {}
    for name in ("mail.send", "bill.pay"):
        page = (await guarded_browser.get(f"/dead-letters?lambda={name}")).text
        cause = re.findall(r"[?&;]cause=(\w+)", page)[0]
        shown = (await guarded_browser.get(f"/dead-letters?cause={cause}")).text
        offers[name] = 'name="cause" value=' in shown

    assert offers == {"mail.send": False, "bill.pay": True}


@pytest.mark.parametrize("principal", ["operator", "auditor", "owner", "client"])
async def test_each_role_opens_the_page_of_its_lambda(guarded_browser, task_states, principal):
    await task_states.register()
    await guarded_browser.sign_in(principal)

    assert (await guarded_browser.get("/lambdas/mail.send")).status_code == 200


async def test_the_frontend_refuses_what_a_page_would_not_offer(guarded_browser, task_states):
    await task_states.register()
    task = await task_states.new()
    path = f"/tasks/{text_id(task.task_id)}"
    await guarded_browser.sign_in("auditor")
    refused = [
        await guarded_browser.post(f"{path}/cancel", confirm="yes"),
        await guarded_browser.post(f"{path}/reveal"),
        await guarded_browser.post("/settings/change", name="store_consumer.batch", value="1", confirm="yes"),
        await guarded_browser.post("/dead-letters/redrive", confirm="yes"),
    ]

    assert [answer.status_code for answer in refused] == [403] * 4
    assert await task_states.status(task.task_id) == "new"


async def test_an_owner_changes_tasks_of_its_lambdas_and_sees_no_others(guarded_browser, task_states):
    await task_states.register()
    await task_states.register("bill.pay")
    ours = text_id((await task_states.new()).task_id)
    theirs = text_id((await task_states.new(lambda_name="bill.pay")).task_id)
    await guarded_browser.sign_in("owner")

    own = await guarded_browser.get(f"/tasks/{ours}")
    done = await guarded_browser.confirmed(f"/tasks/{ours}/cancel")

    assert "Cancel the task" in own.text
    assert "The task is cancelled." in done.text
    assert (await guarded_browser.get(f"/tasks/{theirs}")).status_code == 404
    assert "bill.pay" not in (await guarded_browser.get("/lambdas")).text
    assert "bill.pay" not in (await guarded_browser.get("/")).text


async def test_an_owner_of_a_namespace_sees_its_sessions_and_no_others(guarded_browser, task_states, store):
    await access.add_grants(store, [Grant("nobody", Role.OWNER, "shop/*")])
    await task_states.register()
    await task_states.register("shop/order.price")
    await task_states.new(session=task.Session("theirs"))
    await task_states.new(lambda_name="shop/order.price", session=task.Session("ours"))
    await guarded_browser.sign_in("nobody")

    menu = (await guarded_browser.get("/")).text
    listed = (await guarded_browser.get("/sessions")).text
    others = await guarded_browser.get("/sessions?namespace=default")
    await guarded_browser.sign_in("owner")

    assert 'href="/sessions"' in menu
    assert "ours" in listed
    assert "theirs" not in listed
    assert others.status_code == 403
    assert 'href="/sessions"' not in (await guarded_browser.get("/")).text


async def test_a_form_without_the_sessions_token_changes_nothing(browser, task_states):
    await task_states.register()
    task = await task_states.new()
    path = f"/tasks/{text_id(task.task_id)}/cancel"
    await browser.get("/")
    good = browser.csrf

    for bad in ("", "x", good[:-1]):
        browser.csrf = bad
        assert (await browser.post(path, confirm="yes")).status_code == 403

    assert await task_states.status(task.task_id) == "new"


@pytest.mark.parametrize(
    "headers",
    [
        EVIL,
        {"origin": "null"},
        {"origin": ORIGIN, "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"x-nothing": "said"},
    ],
)
async def test_a_form_of_another_site_changes_nothing(browser, task_states, headers):
    await task_states.register()
    task = await task_states.new()
    await browser.get("/")
    for path, _, _ in CHANGES:
        if "{" not in path:
            assert (await browser.post(path, headers=headers, confirm="yes")).status_code == 403, path

    answer = await browser.post(f"/tasks/{text_id(task.task_id)}/cancel", headers=headers, confirm="yes")

    assert answer.status_code == 403
    assert await task_states.status(task.task_id) == "new"


async def test_nothing_is_changed_by_opening_an_address(browser):
    for path, _, _ in CHANGES:
        named = re.sub(r"\{[^}]*\}", "x", path)

        assert (await browser.get(named)).status_code in (404, 405), path


async def test_every_answer_forbids_scripts_of_others_and_being_kept(browser):
    for path in ("/", "/tasks", "/nowhere", "/sign-in", "/live", "/healthz"):
        headers = (await browser.get(path)).headers
        policy = headers["content-security-policy"]

        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["cache-control"] == "no-store", path
        assert headers["x-content-type-options"] == "nosniff"


async def test_no_page_has_a_script_or_a_style_of_its_own(browser, task_states):
    await task_states.register()
    dead = await dead_letter(task_states)

    for path in (*(path for path, _, _ in PAGES if "{" not in path), f"/tasks/{dead}", "/sign-in"):
        text = (await browser.get(path)).text

        assert not re.search(r"<script(?![^>]*\bsrc=)", text), path
        assert not re.search(r"<style|\sstyle=|\son\w+=|https?://", text), path


@pytest.mark.parametrize("host", ["evil.example", "evil.example:7480", "10.0.0.7", ""])
async def test_a_console_on_loopback_serves_no_other_name(browser, host):
    answer = await browser.get("/", headers={"host": host})

    assert answer.status_code == 421
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("host", ["127.0.0.1:7480", "localhost:9000", "[::1]:7480"])
async def test_a_console_on_loopback_serves_its_own_names(browser, host):
    assert (await browser.get("/", headers={"host": host})).status_code == 200


async def test_without_tokens_other_machines_are_served_only_if_it_was_said(frontend):
    async with browse(frontend, listen="0.0.0.0:7480") as browser:
        refused = await browser.get("/", headers={"host": "10.0.0.7:7480"})
    async with browse(frontend, listen="0.0.0.0:7480", allow_remote_anonymous=True) as browser:
        served = await browser.get("/", headers={"host": "10.0.0.7:7480"})
        rebound = await browser.get("/", headers={"host": "evil.example"})

    assert refused.status_code == 403
    assert served.status_code == 200
    assert rebound.status_code == 421


async def test_behind_a_proxy_the_public_address_is_served(frontend):
    async with browse(frontend, public_url="https://duly.example.com") as browser:
        served = await browser.get("/", headers={"host": "duly.example.com"})
        other = await browser.get("/", headers={"host": "other.example.com"})

    assert (served.status_code, other.status_code) == (200, 421)


async def test_a_cookie_that_was_changed_or_is_of_another_key_is_nobodys(guarded):
    other = SessionCookies.open("", timedelta(hours=1)).write(Session.new(token_of("operator")))
    async with browse(guarded) as browser:
        for value in (other, other[:-4] + "AAAA", "x"):
            browser.http.cookies.set("duly_7480", value)
            assert (await browser.get("/")).status_code == 303


async def test_consoles_with_the_same_keys_share_sessions_and_old_keys_still_open(tmp_path: Path):
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    first, both = tmp_path / "first", tmp_path / "both"
    first.write_text(f"{old}\n")
    both.write_text(f"{new}\n{old}\n")
    for file in (first, both):
        file.chmod(0o600)
    hour = timedelta(hours=1)

    session = Session.new("t")
    written = SessionCookies.open(str(first), hour).write(session)

    assert SessionCookies.open(str(both), hour).read(written) == session
    assert SessionCookies.open(str(first), timedelta(seconds=-1)).read(written) is None
    for bad in ("", "short\n", "\u00e9\n"):
        first.write_text(bad)
        with pytest.raises(SettingsError, match="secret_file"):
            SessionCookies.open(str(first), hour)


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o620, 0o644])
def test_keys_that_others_may_read_are_refused(tmp_path: Path, mode):
    file = tmp_path / "keys"
    file.write_bytes(Fernet.generate_key())
    file.chmod(mode)

    with pytest.raises(SettingsError, match=f"others may read .* is {mode:o}.: chmod 600"):
        SessionCookies.open(str(file), timedelta(hours=1))


async def test_refused_tokens_are_logged_once_a_second_and_never_shown(guarded_browser):
    await guarded_browser.get("/sign-in")
    with capture_logs() as logs:
        for number in range(5):
            await guarded_browser.post("/sign-in", token=f"duly_secret_{number}")
        await guarded_browser.sign_in("operator")

    refused = [each for each in logs if each["event"] == "sign-in refused"]
    (accepted,) = [each for each in logs if each["event"] == "signed in"]
    assert 1 <= len(refused) < 5 or refused[-1]["left_out"] == 0
    assert refused[0] | {"peer": ""} == {
        "event": "sign-in refused",
        "log_level": "warning",
        "reason": "unknown, revoked or expired",
        "peer": "",
        "by": "token",
        "left_out": 0,
    }
    assert accepted["principal"] == "operator"
    assert "secret" not in str(logs)


def test_of_refused_tokens_one_a_second_is_logged_with_how_many_were_not():
    now = 100.0
    sign_ins = SignInLog(clock=lambda: now)
    with capture_logs() as logs:
        for _ in range(4):
            sign_ins.refused("unknown", "10.0.0.1")
        now += 1.0
        sign_ins.refused("unknown", "10.0.0.1")

    assert [each["left_out"] for each in logs] == [0, 3]


async def test_a_path_that_ends_with_a_slash_sends_nobody_elsewhere(browser):
    answer = await browser.get("/tasks/", headers={"host": "evil.example"})

    assert answer.status_code == 404
    assert "location" not in answer.headers


async def test_an_answer_without_tls_does_not_ask_for_it(browser):
    assert "strict-transport-security" not in (await browser.get("/")).headers


async def test_the_theme_can_be_set_on_an_error_page_by_who_has_a_session(browser):
    stranger = await browser.get("/nowhere")
    assert 'action="/theme"' not in stranger.text

    await browser.get("/")
    browser.csrf = ""
    lost = await browser.get("/nowhere")
    answer = await browser.post("/theme", theme="dark", back="/tasks")

    assert lost.status_code == 404
    assert (answer.status_code, answer.headers.get("location")) == (303, "/tasks")


@pytest.mark.parametrize("path", ["/dead-letters/redrive", "/gates/put", "/resources/capacity"])
async def test_fields_of_a_form_may_have_any_names(browser, task_states, path):
    await task_states.register()
    await dead_letter(task_states)
    await browser.get("/")
    names = ("path", "title", "text", "button", "back", "self", "status", "template", "token")
    form = {"name": "n", "lambda": "", "kind": "pause", "capacity": "1", "pattern": "*"} | dict.fromkeys(
        names, "x"
    )

    answer = await browser.http.post(path, data=form | {"csrf": browser.csrf}, headers={"origin": ORIGIN})

    assert answer.status_code in (200, 400, 404)


def test_a_cookie_that_is_written_anew_does_not_make_its_session_last_longer():
    cookies = SessionCookies.open("", timedelta(hours=1))
    fresh = Session.new("t")
    old = replace(fresh, started_at=fresh.started_at - 3_601)

    assert cookies.read(cookies.write(replace(fresh, notice="done"))) == replace(fresh, notice="done")
    assert cookies.read(cookies.write(old)) is None


@pytest.mark.parametrize("header", ["host", "origin"])
async def test_a_header_that_is_no_address_is_refused_as_one_of_another_site(browser, header):
    await browser.get("/")

    answer = await browser.post(
        "/theme", headers={"origin": ORIGIN, header: "http://[" if header == "origin" else "["}
    )

    assert answer.status_code == (421 if header == "host" else 403)


async def test_a_form_that_is_too_large_or_no_form_is_refused(browser):
    await browser.get("/")

    assert (await browser.post("/theme", theme="x" * 70_000)).status_code == 413
    many = await browser.http.post("/theme", content="a=1&" * 300, headers={"origin": ORIGIN})
    assert many.status_code == 400


async def test_a_frontend_that_is_gone_is_told_as_a_page(frontend):
    from duly_console.app import console_app
    from duly_console.settings import ConsoleSettings
    from duly_core.rpc.channel import open_channel
    from duly_core.rpc.settings import RpcSettings

    channel = open_channel("127.0.0.1:1", RpcSettings())
    cookies = SessionCookies.open("", timedelta(hours=1))
    app = console_app(ConsoleSettings(), cookies, channel, secure=False)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=ORIGIN) as http:
        answer = await http.get("/tasks")
    await channel.close()

    assert answer.status_code in (503, 504)
    assert 'role="alert"' in answer.text
