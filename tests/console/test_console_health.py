"""The console's health for load balancers: nobody signs in, and no Frontend is asked."""

from datetime import timedelta

import httpx

from duly_console.app import console_app
from duly_console.session_cookie import SessionCookies
from duly_console.settings import ConsoleSettings
from duly_core.rpc.channel import open_channel
from duly_core.rpc.settings import RpcSettings


async def test_health_is_told_to_any_caller_without_a_session_while_no_frontend_serves() -> None:
    settings = ConsoleSettings(frontend_address="127.0.0.1:1")
    channel = open_channel(settings.frontend_address, RpcSettings())
    app = console_app(settings, SessionCookies.open("", timedelta(hours=1)), channel, secure=True)
    # a kubelet asks by the address of the pod, which pages refuse on loopback
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="https://10.1.2.3:7480"
    ) as caller:
        healthy = await caller.get("/healthz")
        page = await caller.get("/tasks")
    await channel.close()

    assert (healthy.status_code, healthy.text) == (200, "ok")
    assert "set-cookie" not in healthy.headers
    assert page.status_code == 421
