"""The whole way of a person through a real identity provider (node-oidc-provider), in a headless Chromium."""

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.async_api import Page, async_playwright

from duly_console.app import console_app
from duly_console.http_server import HttpServer
from duly_console.oidc import renewal
from duly_console.oidc.open_oidc import open_oidc
from duly_console.session_cookie import SessionCookies
from duly_console.settings import ConsoleSettings
from duly_core.access import cache as access_cache
from duly_core.access import store as access
from duly_core.access.audit_log import list_events
from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.grants import Grant
from duly_core.access.jwt_reader import open_jwt_reader
from duly_core.access.roles import Role
from duly_core.access.settings import AuthSettings
from duly_core.rpc.channel import open_channel
from duly_core.rpc.settings import RpcSettings
from tests.fixtures.services import serve_frontend

CHROMIUM = Path("/usr/bin/chromium")
PROVIDER = Path(__file__).parent / "oidc_provider"
CLIENT_ID = "duly-console"
SECRET = "a-secret-of-the-console"
_NO_NETWORK = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT", "ENETUNREACH", "ENOTCACHED")

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not CHROMIUM.exists(), reason="Chromium is not installed: install chromium"),
    pytest.mark.skipif(
        not (shutil.which("node") and shutil.which("npm")),
        reason="the identity provider needs node and npm: install nodejs and npm",
    ),
]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


async def install() -> None:
    """Install the provider's packages, or skip the test where npm reaches no registry."""
    if (PROVIDER / "node_modules" / ".package-lock.json").exists():
        return
    npm = await asyncio.create_subprocess_exec(
        "npm",
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
        cwd=PROVIDER,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(npm.communicate(), 200)
    if npm.returncode and any(code in said.decode() for code in _NO_NETWORK):
        pytest.skip("npm cannot fetch the identity provider here")
    assert npm.returncode == 0, said.decode()


@pytest.fixture
async def console(store, tmp_path, monkeypatch) -> AsyncIterator[str]:
    """The address of a console, whose people sign in at the provider; the group `sre` operates everything."""
    await install()
    monkeypatch.setattr(access_cache, "FRESH", timedelta(0))
    await access.add_grants(store, [Grant("group:sre", Role.OPERATOR, "*")])
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    issuer, address = f"http://127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    async with AsyncExitStack() as closing:
        node = await asyncio.create_subprocess_exec(
            "node",
            "provider.mjs",
            issuer.rpartition(":")[2],
            f"http://{address}/sign-in/callback",
            f"http://{address}/sign-in",
            cwd=PROVIDER,
            env={"PATH": os.environ["PATH"]},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        closing.push_async_callback(node.wait)
        closing.callback(node.kill)
        assert await asyncio.wait_for(node.stdout.readline(), 60) == b"ready\n"
        read = open_jwt_reader(AuthSettings(mode="required", oidc_issuer=issuer, oidc_audience=CLIENT_ID))
        authorizer = Authorizer(AccessCache(store), read)
        frontend = await closing.enter_async_context(serve_frontend(store, authorizer=authorizer))
        channel = open_channel(frontend.address, RpcSettings())
        closing.push_async_callback(channel.close)
        settings = ConsoleSettings(
            listen=address,
            oidc_issuer=issuer,
            oidc_client_id=CLIENT_ID,
            oidc_client_secret_file=str(secret),
        )
        cookies = SessionCookies.open("", timedelta(hours=1))
        oidc = open_oidc(settings, secure=False)
        app = console_app(settings, cookies, channel, secure=False, oidc=oidc)
        server, stop = HttpServer(app, settings, RpcSettings()), asyncio.Event()
        serving = asyncio.create_task(server.serve(stop))
        yield server.url
        stop.set()
        await serving


@pytest.fixture
async def window() -> AsyncIterator[Page]:
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"]
        )
        context = await chromium.new_context(viewport={"width": 390, "height": 800})
        # the provider's pages have a font of another host
        await context.route(lambda url: "127.0.0.1" not in url, lambda route: route.abort())
        yield await context.new_page()
        await chromium.close()


async def test_a_person_signs_in_renews_changes_something_and_signs_out_everywhere(
    console, window, store, monkeypatch
):
    await window.goto(f"{console}/settings")
    assert window.url == f"{console}/sign-in?back=%2Fsettings"
    assert await window.evaluate("document.scrollingElement.scrollWidth") <= 390

    await window.get_by_role("link", name="Sign in with").click()
    await window.fill("input[name=login]", "ann+sre+staff")
    await window.fill("input[name=password]", "any")
    await window.get_by_role("button", name="Sign-in").click()
    await window.get_by_role("button", name="Continue").click()
    await window.wait_for_url(f"{console}/settings")
    assert await window.inner_text(".principal") == "oidc:ann+sre+staff"
    (session,) = [each for each in await window.context.cookies(console) if each["name"].startswith("duly_")]
    assert (session["sameSite"], session["httpOnly"]) == ("Strict", True)

    monkeypatch.setattr(renewal, "EARLY", 10**6)
    for _ in range(3):  # the provider takes a second use of a refresh token for a theft
        assert (await window.reload()).status == 200
    row = window.locator("tr", has_text="frontend.horizon")
    await row.locator("input[name=value]").fill("300d")
    await row.get_by_role("button").click()
    await window.locator("main button.primary").click()
    await window.wait_for_url(f"{console}/settings*")
    events = await list_events(store, before=2**62, limit=9, method="SetSettings")
    assert [event.entry.actor for event in events] == ["oidc:ann+sre+staff"]

    await window.get_by_role("button", name="Sign out").click()
    await window.get_by_role("link", name="Sign out of").click()
    await window.get_by_role("button", name="Yes").click()
    await window.wait_for_url(f"{console}/sign-in*")
    await window.goto(f"{console}/settings")
    await window.get_by_role("link", name="Sign in with").click()
    assert await window.locator("input[name=password]").count() == 1, "the provider asks again"
