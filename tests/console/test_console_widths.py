"""Pages with long names in windows of five widths, in a headless Chromium: nothing is wider, and buttons stay in sight."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from playwright.async_api import async_playwright

import duly
from duly_console.app import console_app
from duly_console.http_server import HttpServer
from duly_console.routes import PAGES
from duly_console.session_cookie import SessionCookies
from duly_console.settings import ConsoleSettings
from duly_core.rpc.channel import open_channel
from duly_core.rpc.settings import RpcSettings
from duly_wire.v1 import fleet_pb2_grpc
from tests.fleet.test_fleet_hosts import a_report

CHROMIUM = Path("/usr/bin/chromium")
WIDTHS = (390, 768, 1024, 1280, 1440)
LONG = "a-namespace-with-a-long-name/department.invoices." + "yearly-statement-" * 4 + "send"
NAME = "a-name-that-is-long." * 6
SESSION = "customer-" * 27

pytestmark = [
    pytest.mark.long,  # it opens 24 pages, and lays each out five times
    pytest.mark.timeout(300),
    pytest.mark.skipif(not CHROMIUM.exists(), reason="Chromium is not installed: install chromium"),
]

MEASURE = """() => {
    const root = document.scrollingElement, wide = [], hidden = [];
    if (root.scrollWidth > innerWidth) wide.push(`the page: ${root.scrollWidth}`);
    for (const each of document.querySelectorAll("main td button, main td .button")) {
        const box = each.getBoundingClientRect(), within = (each.closest(".scroll") || root).getBoundingClientRect();
        if (box.left < Math.max(0, within.left) - 1 || box.right > Math.min(innerWidth, within.right) + 1) hidden.push(each.textContent);
    }
    return [...wide, ...hidden];
}"""


@pytest.fixture
async def url(frontend, tmp_path) -> AsyncIterator[str]:
    """Of a console."""
    async with AsyncExitStack() as closing:
        channel = open_channel(frontend.address, RpcSettings())
        closing.push_async_callback(channel.close)
        settings = ConsoleSettings(listen="127.0.0.1:0")
        app = console_app(settings, SessionCookies.open("", timedelta(hours=1)), channel, secure=False)
        server, stop = HttpServer(app, settings, RpcSettings()), asyncio.Event()
        serving = asyncio.create_task(server.serve(stop))
        yield server.url
        stop.set()
        await serving


@pytest.fixture
async def paths(frontend, client, task_states) -> list[str]:
    """Return the addresses of all pages, each of something with a long name."""
    await task_states.register(LONG)
    await task_states.register("short")
    for number in range(4):
        claimed = await task_states.claimed(lambda_name=LONG, collection="c" * 128)
        await task_states.fail(claimed, message=f"RuntimeError: {number} {'without-a-space-' * 40}")
    dead = UUID(bytes=claimed.task_id)
    for _ in range(3):
        await client.schedule(LONG, session=duly.Session(SESSION), collection="c" * 128)
    await client.schedule("short")
    await client.put_gate(NAME[:128], duly.GateKind.PAUSE, LONG, reason="because " * 60, owner=NAME)
    await client.put_gate("brief", duly.GateKind.DELAY, "short", delay=timedelta(hours=1))
    await client.put_breaker(LONG, 0.5, reason="x" * 400, owner=NAME)
    await client.put_resource(NAME[:128], 0, rate=duly.Rate(5), note="n" * 400)
    await client.put_resource(f"lambda:{LONG}", 2)
    await client.create_table(NAME[:128], LONG, cron="0 2 * * *")
    await client.put_pool(
        NAME[:63],
        lambdas=[LONG, f"{LONG}*"],
        labels=[f"label-{number}={'v' * 20}" for number in range(32)],
        maximum=10_000,
        driver="d" * 63,
        driver_settings={"s" * 63: "v" * 253},
        note="n" * 400,
    )
    await client.set_setting("store_consumer.poll_interval", "7s")
    async with client.graph(NAME) as graph:
        first = graph.task(LONG, label="l" * 100)
        graph.task("short", label="second", after=first)
    host = f"{'a-machine-with-a-long-name.' * 3}example.org:1234567:abcdef01"
    await fleet_pb2_grpc.FleetServiceStub(frontend.channel).ReportHost(a_report(host, lambdas=(LONG,)))
    of = {
        "/hosts/{host_id}": f"/hosts/{host}",
        "/tasks/{task_id}": f"/tasks/{dead}",
        "/lambdas/{name:path}": f"/lambdas/{LONG}",
        "/sessions/session": f"/sessions/session?namespace={LONG.partition('/')[0]}&key={SESSION}",
        "/graphs/{graph_id}": f"/graphs/{graph.graph_id}",
        "/pools/{name}": f"/pools/{NAME[:63]}",
        "/time-tables/{name}": f"/time-tables/{NAME[:128]}",
    }
    listed = [of.get(path, path) for path, _, _ in PAGES if path not in ("/live", "/trends")]
    return [*listed, "/dead-letters?by=task", "/gates?gate=brief"]


async def test_no_page_is_wider_than_its_window_and_each_button_of_a_row_is_in_sight(url, paths):
    problems = {}
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"]
        )
        page = await chromium.new_page(base_url=url)
        for path in paths:
            answer = await page.goto(path, wait_until="domcontentloaded")
            assert answer is not None
            assert answer.status == 200, path
            for width in WIDTHS:
                await page.set_viewport_size({"width": width, "height": 900})
                if found := await page.evaluate(MEASURE):
                    problems[path, width] = found
        await chromium.close()

    assert problems == {}
