"""The console where browsers come by TLS."""

import asyncio
import ssl
from datetime import timedelta

import httpx
import pytest

from duly_console.app import console_app
from duly_console.http_server import HttpServer
from duly_console.session_cookie import SessionCookies
from duly_console.settings import ConsoleSettings
from duly_core.rpc.channel import open_channel
from duly_core.rpc.settings import RpcSettings
from duly_local.certificates import make_authority, make_certificate
from tests.fixtures.console import Browser, token_of


@pytest.fixture
def folder(tmp_path):
    make_authority(tmp_path)
    make_certificate(tmp_path, "server", ["127.0.0.1"])
    return tmp_path


@pytest.fixture
async def address(guarded, folder):
    """Where a console serves by TLS, HOST:PORT."""
    settings = ConsoleSettings(listen="127.0.0.1:0")
    rpc = RpcSettings(cert_file=str(folder / "server.pem"), key_file=str(folder / "server.key"))
    channel = open_channel(guarded.address, RpcSettings())
    app = console_app(settings, SessionCookies.open("", timedelta(hours=1)), channel, secure=True)
    server = HttpServer(app, settings, rpc)
    stop = asyncio.Event()
    serving = asyncio.create_task(server.serve(stop))
    yield server.address
    stop.set()
    await serving
    await channel.close()


def browser_of(folder, address):
    authority = ssl.create_default_context(cafile=folder / "ca.pem")
    return httpx.AsyncClient(verify=authority, base_url=f"https://{address}", timeout=30)


async def test_a_session_begins_whose_cookie_is_for_tls_and_this_host_only(folder, address):
    async with browser_of(folder, address) as http:
        browser = Browser(http)
        await browser.get("/sign-in")
        headers = {"origin": f"https://{address}"}
        signed_in = await browser.post("/sign-in", headers, token=token_of("operator"))
        page = await browser.get("/")

    cookie = signed_in.headers["set-cookie"]
    assert cookie.startswith("__Host-duly=")
    assert {"secure", "httponly", "path=/"} <= {part.strip().lower() for part in cookie.split(";")}
    assert (page.status_code, "operator" in page.text) == (200, True)
    assert page.headers["strict-transport-security"] == "max-age=31536000"


async def test_who_does_not_speak_tls_is_not_served(address):
    async with httpx.AsyncClient(base_url=f"http://{address}", timeout=30) as http:
        with pytest.raises(httpx.TransportError):
            await http.get("/sign-in")


async def test_a_new_certificate_is_shown_without_a_restart(folder, address, tmp_path_factory):
    async with browser_of(folder, address) as http:
        assert (await http.get("/healthz")).status_code == 200
    other = tmp_path_factory.mktemp("other")
    make_authority(other)
    make_certificate(other, "server", ["127.0.0.1"])
    for name in ("server.key", "server.pem"):
        (other / name).replace(folder / name)

    async with browser_of(other, address) as http:
        assert (await http.get("/healthz")).status_code == 200
