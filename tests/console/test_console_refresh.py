"""Pages that refresh themselves, in a headless Chromium: nothing but a good answer replaces what they show.

Postgres and the Frontend are frozen by relays: connections stay open, and nobody answers. The tests share one
installation and one browser; each has a page, and tasks and gates, of its own.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, Request, Route, async_playwright, expect

import duly_console
from duly_console.app import console_app
from duly_console.changes.streams import Streams
from duly_console.http_server import HttpServer
from duly_console.session_cookie import SessionCookies
from duly_console.settings import ConsoleSettings
from duly_core.fleet.hosts import ServedLambda, report_host
from duly_core.gates import store as gates
from duly_core.gates.rules import GateScope, Kind
from duly_core.graphs import store as graphs
from duly_core.notifications import store as store_notifications
from duly_core.notifications.settings import NotificationSettings
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.problems import store as problems
from duly_core.problems.kinds import Kind as ProblemKind
from duly_core.problems.kinds import Severity
from duly_core.problems.problem import found
from duly_core.rpc.channel import open_channel
from duly_core.rpc.settings import RpcSettings
from duly_core.tasks import dead_letters as store_dead_letters
from duly_core.tasks import schedule
from duly_core.tasks import store as tasks
from duly_core.tasks.task import NewTask
from duly_core.trends import store as trends
from duly_frontend.fleet.hosts import read_report
from duly_frontend.notifications.deliveries import Deliveries
from duly_wire.ids import new_task_id
from duly_wire.v1 import fleet_pb2, fleet_pb2_grpc, graphs_pb2
from tests.console.test_console_colours import contrast
from tests.fixtures import whole
from tests.fixtures.services import BreakableConnection, BreakableLine, Frontend, serve_frontend
from tests.fixtures.task_states import LAMBDA, TaskStates
from tests.fleet.test_fleet_hosts import a_report
from tests.trends.test_trend_store import row

CHROMIUM = Path("/usr/bin/chromium")
TEMPLATES = Path(duly_console.__file__).parent / "templates"
TICK = 50
"""ms between two looks of a page at what is due."""
DEADLINE = 1_200
"""ms until a page gives up an answer; the console gives up the Frontend after 1 s."""
expect.set_options(timeout=20_000)  # milliseconds: other tests share the processors
TOLD = re.compile(r"No answer since (\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d UTC\.")
"""The day is named when it is over: a test may run at midnight."""

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not CHROMIUM.exists(), reason="Chromium is not installed: install chromium"),
]


def cases(names: Iterable[str], *quick: str) -> list[Any]:
    """All of them; `make test` runs the quick ones: each of the others opens a page and waits a second or two."""
    return [pytest.param(name, marks=[] if name in quick else pytest.mark.long) for name in names]


@dataclass(frozen=True)
class Installation:
    """A console on a Frontend on Postgres, with a relay before each of both, and a way to Postgres beside them."""

    url: str
    patient_url: str
    """The same console, which waits long for the Frontend: for pages that have one try."""
    lines: dict[str, BreakableLine]
    frontend: Frontend
    states: TaskStates

    def thaw(self) -> None:
        """Let both answer."""
        for line in self.lines.values():
            line.thaw()


@dataclass(frozen=True)
class Shown:
    """A page of something that is there."""

    path: str
    told: tuple[str, ...]
    """What it says."""
    parts: tuple[str, ...]
    """Selectors of what refreshes itself."""
    change: Callable[[], Awaitable[object]]
    """Changes what it shows, in Postgres itself."""
    then: str
    """What it says afterwards, and did not say before."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(postgres_server) -> AsyncIterator[Installation]:
    """Everything but the browser."""
    name = postgres_server.create()
    dsn = postgres_server.dsn_of(name)
    async with AsyncExitStack() as closing:
        closing.callback(postgres_server.drop, name)
        store = await closing.enter_async_context(Store(StoreSettings(dsn=dsn)))
        states = TaskStates(store)
        await states.register()
        to_postgres = BreakableConnection(dsn)
        await to_postgres.restore()
        closing.push_async_callback(to_postgres.cut)
        behind = await closing.enter_async_context(Store(StoreSettings(dsn=to_postgres.dsn)))
        ops = {"kind": "webhook", "url": "https://hooks.example.com/s3cret"}
        deliveries = Deliveries(NotificationSettings(targets={"ops": ops}), "")
        closing.push_async_callback(deliveries.close)
        frontend = await closing.enter_async_context(serve_frontend(behind, deliveries=deliveries))
        host, port = frontend.address.split(":")
        to_frontend = BreakableLine(host, int(port))
        await to_frontend.restore()
        closing.push_async_callback(to_frontend.cut)
        channel = open_channel(to_frontend.address, RpcSettings())
        closing.push_async_callback(channel.close)
        cookies = SessionCookies.open("", timedelta(hours=1))
        stop = asyncio.Event()
        serving, urls = [], []
        for seconds in (1, 30):
            settings = ConsoleSettings(listen="127.0.0.1:0", page_timeout=timedelta(seconds=seconds))
            streams = Streams(50)
            app = console_app(settings, cookies, channel, secure=False, streams=streams)
            server = HttpServer(app, settings, RpcSettings(), streams.close)
            serving.append(server.serve(stop))
            urls.append(server.url)
        ending = asyncio.gather(*serving)
        lines: dict[str, BreakableLine] = {"Postgres": to_postgres, "the Frontend": to_frontend}
        made = Installation(urls[0], urls[1], lines, frontend, states)
        yield made
        made.thaw()
        stop.set()
        await ending


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    """The browser."""
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(
            executable_path=str(CHROMIUM),
            args=["--no-sandbox", "--disable-gpu", "--renderer-process-limit=1"],
        )
        yield opened
        await opened.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def window(chromium, installation) -> AsyncIterator[BrowserContext]:
    """Of all pages: a window, and the process that draws it, cost as much as some of the tests."""
    opened = await chromium.new_context(base_url=installation.url, viewport={"width": 1000, "height": 500})
    yield opened
    await opened.close()


@pytest_asyncio.fixture(loop_scope="module")
async def page(window, installation) -> AsyncIterator[Page]:
    """A page whose clock ticks quickly."""
    page = await window.new_page()
    page.set_default_timeout(30_000)
    await page.add_init_script(
        f"""document.addEventListener("readystatechange", () => {{
            if (document.readyState !== "interactive") return;
            document.body.dataset.tick = "{TICK}";
            document.body.dataset.deadline = "{DEADLINE}";
        }})"""
    )
    yield page
    installation.thaw()
    await page.close()
    await window.clear_cookies()


async def overview(installation: Installation) -> Shown:
    """Two gates are in force."""
    store = installation.states.store
    for name in ("deploy", "repair"):
        scope = GateScope(LAMBDA, None, None, None)
        await whole.put_gate(
            store, gates.NewGate(name, Kind.PAUSE, scope, None, "ann", f"because of a {name}", None)
        )
    return Shown(
        "/?range=live",
        ("Gate deploy pauses", "because of a repair", "due, not taken yet"),
        ("#now", "#backlog", "#live"),
        lambda: whole.put_gate(
            store, gates.NewGate("deploy", Kind.PAUSE, scope, None, "ann", "the deploy goes on", None)
        ),
        "the deploy goes on",
    )


async def task(installation: Installation) -> Shown:
    """It waits."""
    new = await installation.states.new()
    return Shown(
        f"/tasks/{UUID(bytes=new.task_id)}",
        ("new", LAMBDA, "Scheduled for"),
        ("#facts", "#timeline", "#attempts"),
        lambda: tasks.cancel_tasks(installation.states.store, [new.task_id]),
        "cancelled",
    )


async def graph(installation: Installation) -> Shown:
    """Its nodes wait."""
    graph_id = new_task_id()
    node = {"label": "a", "task": {"lambda": LAMBDA}}
    after = {"label": "b", "task": {"lambda": LAMBDA}, "waits_for": [{"label": "a"}]}
    request = graphs_pb2.ScheduleGraphRequest(graph_id=str(graph_id), name="g", nodes=[node, after])
    answer = await installation.frontend.graphs.ScheduleGraph(request)
    assert not answer.HasField("error")
    return Shown(
        f"/graphs/{graph_id}",
        ("running", "not ended", str(graph_id)),
        ("#state", "#nodes"),
        lambda: graphs.cancel_graph(installation.states.store, graph_id.bytes),
        "ended",
    )


async def list_of_tasks(installation: Installation) -> Shown:
    """One of a lambda of its own."""
    name = f"list.of-{new_task_id().hex[-12:]}"
    await installation.states.register(name)
    store = installation.states.store
    (first, second) = (NewTask(new_task_id().bytes, name, b"{}") for _ in range(2))
    await schedule.schedule(store, [first])
    return Shown(
        f"/tasks?lambda={name}",
        (name, str(UUID(bytes=first.task_id)), "new"),
        ("#rows",),
        lambda: schedule.schedule(store, [second]),
        str(UUID(bytes=second.task_id)),
    )


async def list_of_graphs(installation: Installation) -> Shown:
    """One that runs, and then does not."""
    shown = await graph(installation)
    graph_id = shown.path.rpartition("/")[2]
    return Shown(
        "/graphs?running=1", ("g", graph_id, "running"), ("#rows",), shown.change, "No graph matches."
    )


async def dead_letter(installation: Installation, name: str, message: str) -> str:
    """A task of a lambda that failed for good, by its id."""
    states = installation.states
    await schedule.schedule(states.store, [NewTask(new_task_id().bytes, name, b"{}")])
    claimed = await states.take_of(name)
    await states.fail(claimed, message)
    return str(UUID(bytes=claimed.task_id))


async def registered(installation: Installation, part: str) -> str:
    """A lambda of its own."""
    name = f"{part}.of-{new_task_id().hex[-12:]}"
    await installation.states.register(name)
    return name


async def dead_letters(installation: Installation) -> Shown:
    """Those of a lambda of its own, by cause."""
    name = await registered(installation, "dead")
    await dead_letter(installation, name, "KeyError: the first")
    return Shown(
        f"/dead-letters?lambda={name}",
        (name, "KeyError", "the first"),
        ("#rows",),
        lambda: dead_letter(installation, name, "OSError: another cause"),
        "another cause",
    )


async def list_of_lambdas(installation: Installation) -> Shown:
    """Those with a part of their name in common."""
    name = await registered(installation, "listed")
    return Shown(
        f"/lambdas?name={name}",
        (name,),
        ("#rows",),
        lambda: installation.states.register(f"{name}.other"),
        f"{name}.other",
    )


async def list_of_queues(installation: Installation) -> Shown:
    """Those of lambdas of its own."""
    name = await registered(installation, "queue")
    other = f"{name}.other"
    await installation.states.register(other)
    store = installation.states.store
    (first, second) = (NewTask(new_task_id().bytes, each, b"{}") for each in (name, other))
    await schedule.schedule(store, [first])
    await queue_is_counted(installation, name)
    return Shown(
        f"/queues?lambda={name}*",
        (name, "1 queue with tasks"),
        ("#rows",),
        lambda: schedule.schedule(store, [second]),
        other,
    )


async def queue_is_counted(installation: Installation, name: str) -> None:
    """Wait for a count that has it: one is kept for some seconds."""
    fleet = fleet_pb2_grpc.FleetServiceStub(installation.frontend.channel)
    request = fleet_pb2.ListQueuesRequest(lambdas=[name])
    async with asyncio.timeout(30):
        while True:
            if (await fleet.ListQueues(request)).queues:
                return


async def list_of_hosts(installation: Installation) -> Shown:
    """Those that serve a lambda of its own."""
    name = await registered(installation, "served")
    store, lambdas = installation.states.store, [ServedLambda(name, "1.2", 0)]
    first, second = (
        read_report(a_report(f"{each}-{name[-12:]}:1:a", name=f"{each}-of-the-rack"))
        for each in ("first", "second")
    )
    await report_host(store, first, lambdas, "")
    return Shown(
        f"/hosts?lambda={name}",
        ("first-of-the-rack", "3 of 16"),
        ("#rows",),
        lambda: report_host(store, second, lambdas, ""),
        "second-of-the-rack",
    )


async def targets(installation: Installation) -> Shown:
    """A target that failed by a reason that nothing else has."""
    store, here = installation.states.store, new_task_id().hex[-12:]
    await store_notifications.note_test(store, "ops", f"first {here}")
    return Shown(
        "/notifications",
        ("ops", "webhook", f"first {here}"),
        ("#rows",),
        lambda: store_notifications.note_test(store, "ops", f"second {here}"),
        f"second {here}",
    )


async def promises(installation: Installation) -> Shown:
    """A lambda whose runs began on time so far, and then late."""
    store, name = installation.states.store, f"slo.{new_task_id().hex[-12:]}"
    await installation.states.register(name)
    at = datetime.now(UTC).replace(second=0, microsecond=0)
    await trends.add_runs(store, [row(name, at, starts=3)])
    return Shown(
        f"/slo?lambda={name}",
        (name, "100 %"),
        ("#rows",),
        lambda: trends.add_runs(store, [row(name, at, starts=1, place=10)]),
        "75 %",
    )


REFRESHED: dict[str, Callable[[Installation], Awaitable[Shown]]] = {
    "overview.html": overview,
    "task.html": task,
    "graph.html": graph,
    "tasks.html": list_of_tasks,
    "graphs.html": list_of_graphs,
    "dead_letters.html": dead_letters,
    "lambdas.html": list_of_lambdas,
    "queues.html": list_of_queues,
    "hosts.html": list_of_hosts,
    "notifications.html": targets,
    "slo.html": promises,
}
NO_EVENTS = {"overview.html", "lambdas.html", "hosts.html"}
"""What changes on these pages is no event of a task: it is told of with the next one, or with the next tick."""


async def mark(page: Page) -> None:
    """Type, select and scroll, and leave a mark that a reload would remove."""
    await page.evaluate(
        "window.mark = true; document.documentElement.style.setProperty('min-height', '3000px')"
    )
    await page.locator("#search").fill("half a word")
    await page.evaluate("document.getElementById('search').setSelectionRange(2, 5); scrollTo(0, 77)")


async def expect_mark(page: Page) -> None:
    found = await page.evaluate(
        "(({ value, selectionStart, selectionEnd, id }) => [window.mark, id, value, selectionStart, selectionEnd])"
        "(document.activeElement)"
    )
    assert found == [True, "search", "half a word", 2, 5]


async def expect_trouble(page: Page, shown: Shown, since: datetime) -> None:
    """The bar tells since when, what was seen is still there, and dimmed."""
    await expect(page.locator("#no-answer [role=status]")).to_contain_text(TOLD)
    told = datetime.fromisoformat(await page.locator("#no-answer time").get_attribute("datetime") or "")
    assert since - timedelta(seconds=1) <= told <= datetime.now(UTC)
    assert await page.locator("#no-answer time").inner_text() == f"{told:%H:%M:%S}"
    assert await page.locator("#no-answer .why").inner_text() != ""
    for part in shown.parts:
        await expect(page.locator(part)).to_have_class(re.compile(r"\bstale\b"))
    for text in shown.told:
        await expect(page.locator("main")).to_contain_text(text)


async def expect_no_trouble(page: Page) -> None:
    await expect(page.locator("#no-answer [role=status]")).to_be_empty()
    await expect(page.locator("#no-answer .why")).to_be_empty()
    await expect(page.locator(".stale")).to_have_count(0)


PARTS = {"output.html"}
"""Of a page that a person asked to see the payload of: it has no address of its own."""
LEADING = {"signed_in.html"}
"""They lead to another page at once, and show nothing that could become old."""


async def test_every_page_that_refreshes_itself_has_a_case():
    refreshing = {
        template.name
        for template in TEMPLATES.iterdir()
        if re.search(r'hx-trigger|hx-get|http-equiv="refresh"|id="live"', template.read_text())
    }

    assert refreshing - PARTS - LEADING == set(REFRESHED)


@pytest.mark.parametrize("frozen", cases(["Postgres", "the Frontend"], "Postgres"))
@pytest.mark.parametrize("template", cases(REFRESHED, "overview.html", "task.html"))
async def test_a_page_keeps_what_it_shows_while_nobody_answers_and_comes_back(
    page, installation, template, frozen
):
    shown = await REFRESHED[template](installation)
    opened_at = datetime.now(UTC)
    await page.goto(shown.path)
    await mark(page)

    installation.lines[frozen].freeze()
    await expect_trouble(page, shown, opened_at)
    await shown.change()
    installation.thaw()

    await expect(page.locator("main")).to_contain_text(shown.then)
    await expect_no_trouble(page)
    await expect_mark(page)
    assert await page.evaluate("scrollY") >= 77


async def in_place_of(page: Page, path: str, answer: Callable[[Route], Awaitable[object]]) -> None:
    """Answer what a page asks for in the background; pages that people open are served as always."""

    async def handle(route: Route) -> None:
        is_asked = route.request.resource_type == "fetch"
        await (answer(route) if is_asked else route.continue_())

    await page.route(lambda url: url.partition("//")[2].partition("/")[2] == path[1:], handle)


async def real(route: Route) -> tuple[Any, str]:
    answer = await route.fetch()
    return answer, await answer.text()


async def cut(route: Route) -> None:
    answer, text = await real(route)
    await route.fulfill(response=answer, body=text[: text.index("</main>")])


async def another_task(route: Route) -> None:
    answer, text = await real(route)
    here = re.search(r'data-path="([^"]+)', text)
    assert here
    await route.fulfill(response=answer, body=text.replace(here[1], f"/tasks/{new_task_id()}"))


BAD: dict[str, tuple[Callable[[Route], Awaitable[object]], str]] = {
    "503 of the console": (
        lambda route: route.fulfill(status=503, body='<p class="problem">Postgres is away.</p>'),
        "Postgres is away.",
    ),
    "502 of a proxy": (lambda route: route.fulfill(status=502, body="<h1>Bad"), "status 502"),
    "404 with a page": (
        lambda route: route.fulfill(status=404, body="<main id=facts></main></html>"),
        "status 404",
    ),
    "nothing": (lambda route: route.fulfill(status=204), "status 204"),
    "empty": (lambda route: route.fulfill(body=""), "not complete"),
    "a proxy's page": (
        lambda route: route.fulfill(content_type="text/html", body="<html><body>Log in</body></html>"),
        "another page",
    ),
    "cut off": (cut, "not complete"),
    "another task": (another_task, "another page"),
    "elsewhere": (
        lambda route: route.fulfill(status=302, headers={"location": f"{route.request.url}?elsewhere"}),
        "another page",
    ),
    "no connection": (lambda route: route.abort(), "cannot be reached"),
}


@pytest.mark.parametrize("bad", cases(BAD, "503 of the console", "cut off"))
async def test_a_bad_answer_replaces_nothing(page, installation, bad):
    shown = await task(installation)
    answer, reason = BAD[bad]
    opened_at = datetime.now(UTC)
    await page.goto(shown.path)

    await in_place_of(page, shown.path, answer)
    await expect_trouble(page, shown, opened_at)
    await expect(page.locator("#no-answer .why")).to_contain_text(reason)
    await page.unroute_all(behavior="ignoreErrors")
    await expect_no_trouble(page)
    await shown.change()

    await expect(page.locator("#facts .status").first).to_have_text(shown.then)


async def test_a_page_that_lacks_the_refreshed_part_replaces_nothing(page, installation):
    shown = await task(installation)
    await page.goto(shown.path)

    async def without(route: Route) -> None:
        answer, text = await real(route)
        await route.fulfill(response=answer, body=text.replace('id="facts"', 'id="other"'))

    await in_place_of(page, shown.path, without)

    await expect(page.locator("#no-answer .why")).to_have_text("The answer lacks a part of the page.")
    await expect(page.locator("#facts .status").first).to_have_text("new")


async def test_requests_do_not_pile_up_and_a_late_answer_is_dropped(page, installation):
    shown = await task(installation)
    events: list[str] = []
    told, first = asyncio.Event(), asyncio.Event()
    late: Route | None = None

    async def hold(route: Route) -> None:
        nonlocal late
        late = late or route
        first.set()
        await told.wait()
        if route is not late:
            await route.continue_()

    def note(event: str) -> Callable[[Request], None]:
        return lambda request: events.append(event) if request.resource_type == "fetch" else None

    page.on("request", note("begun"))
    page.on("requestfailed", note("given up"))
    await in_place_of(page, shown.path, hold)
    await page.goto(shown.path)
    await first.wait()
    assert late is not None
    _, text = await real(late)
    await expect(page.locator("#no-answer .why")).to_have_text("The console does not answer in time.")
    await shown.change()
    told.set()
    await expect(page.locator("#facts .status").first).to_have_text("cancelled")
    await page.evaluate(
        "window.seen = new Set(); new MutationObserver(() => window.seen.add(document.querySelector('#facts .status')"
        ".textContent)).observe(document.querySelector('main'), { childList: true, subtree: true, attributes: true })"
    )
    await late.fulfill(content_type="text/html", body=text)

    assert events[:3] == ["begun", "given up", "begun"]
    answered, *seen = await page.evaluate("fetch('/healthz').then((answer) => [answer.ok, ...window.seen])")
    assert answered
    assert {*seen} <= {"cancelled"}  # on a slow machine the next refresh comes meanwhile


async def test_an_answer_to_a_machine_that_slept_meanwhile_is_dropped(page, installation):
    shown = await task(installation)
    held: asyncio.Queue[Route] = asyncio.Queue()
    await page.goto(shown.path)
    await in_place_of(page, shown.path, held.put)
    late = await held.get()
    answer, text = await real(late)
    late_text = text.replace('id="facts"', 'id="facts" data-late')

    # the wall clock went on, timers did not
    await page.evaluate("(() => { const now = Date.now; Date.now = () => now() + 3_600_000; })()")
    await late.fulfill(response=answer, body=late_text)

    await expect(page.locator("#no-answer .why")).to_have_text("The console does not answer in time.")
    assert await page.locator("[data-late]").count() == 0


BAD_FIGURES: dict[str, dict[str, Any]] = {
    "503": {"status": 503, "body": "{}"},
    "a page": {"content_type": "text/html", "body": "<html></html>"},
    "lacking": {"json": {"at": 1.0}},
    "null": {"body": "null"},
    "no numbers": {"json": {"at": "now", "ready": "0", "held": 0, "oldest": 0}},
}


@pytest.mark.parametrize("bad", cases(BAD_FIGURES, "lacking"))
async def test_bad_figures_change_no_plot(page, installation, bad):
    await installation.states.new()
    await page.goto("/?range=live")
    due = page.locator("[data-series=ready] b")
    await expect(due).to_have_text(re.compile("[1-9]"), timeout=30_000)  # counts may be some seconds old

    await in_place_of(page, "/live", lambda route: route.fulfill(**BAD_FIGURES[bad]))
    await expect(page.locator("#no-answer [role=status]")).to_contain_text(TOLD)

    await expect(page.locator("#live")).to_have_class(re.compile("stale"))
    await expect(page.locator("#now")).not_to_have_class(re.compile("stale"))  # it has an answer of its own
    assert re.fullmatch(r"[1-9]\d*", await due.inner_text())
    await page.unroute_all(behavior="ignoreErrors")
    await expect_no_trouble(page)


async def test_one_part_without_an_answer_makes_the_whole_page_old_at_once(page):
    held: asyncio.Queue[Route] = asyncio.Queue()
    await in_place_of(page, "/", held.put)
    await in_place_of(page, "/live", lambda route: route.abort())

    await page.goto("/?range=live")
    await expect(page.locator("#no-answer .why")).to_have_text("The console cannot be reached.")

    assert await page.locator("#now.stale, #backlog.stale, #live.stale").count() == 3


async def wait_for_each_answer(page: Page) -> None:
    """For tests that have a look to lose: a busy machine may answer late."""
    await page.add_init_script(
        """document.addEventListener("readystatechange", () => {
            if (document.readyState === "interactive") document.body.dataset.deadline = "60000";
        })"""
    )


async def test_a_rate_that_cannot_be_computed_keeps_the_last_one_dimmed(page):
    counters = [100, 300, 7]  # Postgres has forgotten its counters
    figures = {"ready": 1, "held": 0, "oldest": 0.0, "median_lateness": None, "p99_lateness": None}
    asked = 0

    async def count(route: Route) -> None:
        nonlocal asked
        scheduled = counters[min(asked, 2)]
        asked += 1
        await route.fulfill(
            json=figures | {"at": 1_000.0 + min(asked, 3), "scheduled": scheduled, "ended": 0}
        )

    await wait_for_each_answer(page)
    await in_place_of(page, "/live", count)
    await page.goto("/?range=live")

    legend = page.locator("[data-series=scheduled_rate]")
    await expect(legend).to_have_class(re.compile("stale"))
    assert await legend.locator("b").inner_text() == "200"
    assert await legend.get_attribute("title") == "As of 00:16:42 UTC"


async def tick_never(page: Page) -> None:
    """Only a stream tells the page of a change."""
    await page.add_init_script(
        """document.addEventListener("readystatechange", () => {
            if (document.readyState === "interactive") document.body.dataset.tick = "3600000";
        })"""
    )
    await wait_for_each_answer(page)


@pytest.mark.parametrize(
    "template",
    cases(sorted(REFRESHED.keys() - {"notifications.html", "slo.html"}), "task.html", "graph.html"),
)
async def test_a_stream_tells_an_open_page_of_a_change_before_any_tick(page, installation, template):
    shown = await REFRESHED[template](installation)
    await tick_never(page)
    async with page.expect_request("**/changes?**"):
        await page.goto(installation.patient_url + shown.path)
    await mark(page)

    await shown.change()
    if template in NO_EVENTS:
        await installation.states.new()

    await expect(page.locator("main")).to_contain_text(shown.then)
    await expect_mark(page)
    assert await page.evaluate("scrollY") >= 77


@pytest.mark.parametrize("missing", ["no EventSource", "no stream"])
async def test_without_a_stream_ticks_go_on(page, installation, missing):
    shown = await task(installation)
    if missing == "no EventSource":
        await page.add_init_script("delete window.EventSource")
    else:
        await page.route("**/changes?**", lambda route: route.fulfill(status=429))
    await page.goto(shown.path)

    await shown.change()

    await expect(page.locator("#facts .status").first).to_have_text("cancelled")
    await expect_no_trouble(page)


async def test_a_refresh_takes_away_nothing_that_is_selected(page, installation):
    shown = await task(installation)
    await page.goto(shown.path)
    await page.evaluate("getSelection().selectAllChildren(document.querySelector('#facts .lead'))")
    selected = await page.evaluate("getSelection().toString()")

    await shown.change()
    for _ in range(3):
        async with page.expect_response(lambda answer: answer.request.resource_type == "fetch"):
            pass

    assert await page.evaluate("getSelection().toString()") == selected
    await expect_no_trouble(page)
    await expect(page.locator("#facts .status").first).to_have_text("new")
    await page.evaluate("getSelection().removeAllRanges()")
    await expect(page.locator("#facts .status").first).to_have_text("cancelled")


async def test_a_rate_that_is_being_typed_keeps_the_list_and_a_redrive_is_not_another_than_was_seen(
    page, installation
):
    shown = await dead_letters(installation)
    await page.goto(shown.path)
    await page.locator("#rate").fill("2")

    await shown.change()
    for _ in range(3):
        async with page.expect_response(lambda answer: answer.request.resource_type == "fetch"):
            pass

    await expect(page.locator("#rate")).to_have_value("2")
    await expect(page.locator("#rows")).not_to_contain_text(shown.then)
    await expect_no_trouble(page)
    await page.locator("#rate").fill("")
    await expect(page.locator("#rows")).to_contain_text(shown.then)


async def test_a_button_of_a_row_keeps_the_focus_when_a_newer_cause_stands_before_it(page, installation):
    shown = await dead_letters(installation)
    await page.goto(shown.path)
    button = page.locator("td.actions button")
    await button.focus()
    focused = await page.evaluate("document.activeElement.id")

    await shown.change()
    await expect(button).to_have_count(2)

    assert focused.startswith("redrive-")
    assert await page.evaluate("document.activeElement.id") == focused


async def test_an_open_page_of_a_cause_shows_that_its_last_dead_letter_was_redriven(page, installation):
    name = await registered(installation, "dead")
    task_id = await dead_letter(installation, name, "KeyError: the only one")
    await page.goto(f"/dead-letters?lambda={name}")
    await page.locator("td.message a").click()
    await expect(page.locator("#rows h2")).to_have_text("1 dead letter of one cause")

    await store_dead_letters.redrive(installation.states.store, [UUID(task_id).bytes])

    await expect(page.locator("#rows")).to_contain_text("has this cause any more")
    await expect_no_trouble(page)


async def test_a_hidden_page_has_no_stream(page, installation):
    shown = await task(installation)
    async with page.expect_request("**/changes?**") as opened:
        await page.goto(shown.path)
    stream = await opened.value

    async with page.expect_event("requestfailed", lambda request: request == stream):
        await page.evaluate(
            """() => {
                Object.defineProperty(document, "hidden", { get: () => true });
                document.dispatchEvent(new Event("visibilitychange"));
            }"""
        )


async def test_a_refresh_keeps_the_focus_within_what_it_replaces(page, installation):
    shown = await overview(installation)
    await page.goto(shown.path)
    await page.locator("#now a").first.focus()
    await shown.change()

    async with page.expect_response(lambda answer: answer.request.resource_type == "fetch"):
        pass

    await expect(page.locator("#now")).to_contain_text(shown.then)
    await expect(page.locator("#now a").first).to_be_focused()


async def publish(store: Store, *texts: str) -> None:
    """Have the incident board say that these gates are problems."""
    now = datetime.now(UTC)
    pauses = [
        found(
            ProblemKind.PAUSED,
            Severity.WARNING,
            now,
            name,
            key=name,
            does="pauses",
            what="all lambdas",
            owner="ann",
            reason=f"because of {name}",
            until="",
        )
        for name in texts
    ]
    begun_at = await problems.begin(store, "test", timedelta(0))
    assert begun_at is not None
    assert await problems.publish(store, begun_at, pauses)


async def test_the_board_goes_stale_with_the_page_keeps_its_cards_and_comes_back_as_it_was_left(
    page, installation
):
    store = installation.states.store
    names = [f"a-pause-{number:02}" for number in range(13)]
    scope = GateScope(LAMBDA, None, None, None)
    for name in names:
        await whole.put_gate(store, gates.NewGate(name, Kind.PAUSE, scope, None, "ann", "", None))
    await publish(store, *names)
    await page.goto("/")
    line, mark, cards = page.locator(".board-line"), page.locator("#mark"), page.locator(".card")
    await expect(line).to_contain_text(re.compile(r"13 problems as of \d\d:\d\d:\d\d UTC, live"))
    await page.locator("#more-cards summary").click()
    await page.locator(".card", has_text="a-pause-05").get_by_role("button", name="Remove").focus()
    focused = await page.evaluate("document.activeElement.id")

    installation.lines["Postgres"].freeze()
    await expect(page.locator("#no-answer [role=status]")).to_contain_text(TOLD)
    await expect(line.locator(".is-stale")).to_be_visible()
    await expect(line.locator(".is-live")).to_be_hidden()
    await expect(mark).to_have_class(re.compile(r"\bstale\b"))
    await expect(cards).to_have_count(13)
    await expect(cards.first).to_contain_text("because of a-pause-")
    await publish(store, *names[:12])
    installation.thaw()

    await expect(mark).to_have_text("12 problems")
    await expect_no_trouble(page)
    await expect(line.locator(".is-live")).to_be_visible()
    await expect(cards).to_have_count(12)
    await expect(page.locator("#more-cards")).to_have_attribute("open", "")
    assert await page.evaluate("document.activeElement.id") == focused
    await publish(store)
    await gates.delete_gates(store, names)


async def test_a_refresh_keeps_the_focus_on_a_link_whose_row_moves(page, installation):
    states = installation.states
    await states.new()
    await page.goto("/")
    link = page.locator("#backlog a.name").first
    await expect(link).to_be_attached(timeout=30_000)  # counts may be some seconds old
    await link.focus()
    href = await link.get_attribute("href")

    await states.register("most.tasks")
    more = [NewTask(new_task_id().bytes, "most.tasks", b"{}") for _ in range(300)]
    await schedule.schedule(states.store, more)

    await expect(link).to_have_attribute("href", "/lambdas/most.tasks", timeout=60_000)
    assert await page.evaluate("document.activeElement.getAttribute('href')") == href


async def test_relative_times_go_on_while_nothing_is_answered(page, installation):
    new = await installation.states.new()
    await tasks.cancel_tasks(installation.states.store, [new.task_id])
    await page.goto("/tasks")
    await in_place_of(page, "/tasks", lambda route: route.abort())
    ago = page.locator("td time[data-ago]").first
    assert re.fullmatch(r"now|\d+ s ago", await ago.inner_text())

    await page.evaluate("(() => { const now = Date.now; Date.now = () => now() + 3_600_000; })()")

    await expect(ago).to_have_text(re.compile(r"^1 h"))
    await expect(page.locator("#as-of")).to_contain_text(re.compile(r"As of \d\d:\d\d:\d\d UTC \(1 h"))


async def test_a_change_that_failed_is_not_sent_again_by_itself(page, installation):
    shown = await task(installation)
    await page.goto(f"{shown.path}")
    await page.get_by_role("button", name="Cancel the task").click()

    installation.lines["the Frontend"].freeze()
    await page.locator("main").get_by_role("button", name="Cancel the task").click()

    await expect(page.get_by_role("alert")).to_be_visible()
    await expect(page.locator("#retry")).to_have_count(0)


async def test_the_bar_is_said_once(page, installation):
    shown = await task(installation)
    refused = 0
    enough = asyncio.Event()
    await page.goto(shown.path)
    await page.evaluate(
        "window.said = 0; new MutationObserver(() => { window.said += 1; })"
        ".observe(document.querySelector('#no-answer [role=status]'), { childList: true, subtree: true, characterData: true })"
    )

    async def refuse(route: Route) -> None:
        nonlocal refused
        refused += 1
        if refused == 4:
            enough.set()
        await route.fulfill(status=500 + refused)

    await in_place_of(page, shown.path, refuse)
    await enough.wait()

    await expect(page.locator("#no-answer .why")).to_contain_text("50")
    assert await page.evaluate("window.said") == 1


async def test_a_tab_that_is_seen_again_dims_what_is_old_until_it_has_an_answer(page, installation):
    shown = await task(installation)
    await page.goto(shown.path)
    asked: asyncio.Queue[Route] = asyncio.Queue()

    await page.evaluate(
        """() => {
            const now = Date.now;
            let isHidden = true;
            Object.defineProperty(document, "hidden", { get: () => isHidden });
            document.dispatchEvent(new Event("visibilitychange"));
            window.seeAgain = () => {
                Date.now = () => now() + 3_600_000;
                isHidden = false;
                document.dispatchEvent(new Event("visibilitychange"));
                return [document.querySelector("#facts").matches(".stale"), document.querySelector("#no-answer").textContent];
            };
        }"""
    )
    await in_place_of(page, shown.path, asked.put)
    dimmed, bar = await page.evaluate("window.seeAgain()")

    assert (dimmed, bar) == (True, "")  # nobody has failed to answer yet
    await expect(page.locator("#no-answer [role=status]")).to_contain_text(TOLD)
    await page.unroute_all(behavior="ignoreErrors")
    await expect_no_trouble(page)


async def test_a_session_that_has_ended_leads_to_the_page_to_sign_in(page, installation):
    shown = await task(installation)
    await page.goto(shown.path)

    async with page.expect_event("load"):  # loaded anew, a page leads there by a redirect
        await in_place_of(page, shown.path, lambda route: route.fulfill(status=401, body="sign in again"))


@pytest.mark.parametrize(
    "bad",
    cases(
        ["503 of the console", "no connection", "empty", "a proxy's page", "nothing"], "503 of the console"
    ),
)
async def test_a_payload_that_cannot_be_shown_leaves_the_form_with_what_was_typed(page, installation, bad):
    shown = await task(installation)
    answer, _ = BAD[bad]
    await page.goto(shown.path)
    await page.get_by_label("Reason").fill("ticket 17")

    await in_place_of(page, f"{shown.path}/reveal", answer)
    await page.get_by_role("button", name="Show them").click()

    await expect(page.locator("#bodies").get_by_role("alert")).not_to_be_empty()
    await expect(page.get_by_label("Reason")).to_have_value("ticket 17")
    await page.unroute_all(behavior="ignoreErrors")
    await page.get_by_role("button", name="Show them").click()
    await expect(page.locator("#bodies")).to_contain_text("The audit log has recorded this read.")
    await expect(page.locator("#bodies").get_by_role("alert")).to_have_count(0)


async def test_a_page_that_could_not_be_opened_comes_back_by_itself(page, installation):
    shown = await task(installation)
    await page.goto("/audit")

    installation.lines["the Frontend"].freeze()
    answer = await page.goto(shown.path)
    assert answer is not None
    assert answer.status == 504
    await expect(page.get_by_role("alert")).to_be_visible()
    await expect(page.locator("#retry [role=status]")).to_have_text("This page tries again by itself.")
    await expect(page.locator("#retry .wait")).to_contain_text(re.compile("Next try in|Trying now"))
    installation.thaw()

    await expect(page.locator("#facts .status").first).to_have_text("new")
    assert page.url.endswith(shown.path)


async def test_a_page_that_could_not_be_opened_waits_for_what_is_being_typed(page, installation):
    shown = await task(installation)

    installation.lines["the Frontend"].freeze()
    await page.goto(shown.path)
    await page.evaluate("document.getElementById('main').insertAdjacentHTML('beforeend', '<input id=typed>')")
    await page.locator("#typed").fill("half a word")
    installation.thaw()

    await page.get_by_role("link", name="Load the page").wait_for()
    assert await page.locator("#typed").input_value() == "half a word"


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_what_is_dimmed_can_be_read(page, installation, scheme):
    await page.emulate_media(color_scheme=scheme)
    shown = await overview(installation)
    await page.goto(shown.path)
    await installation.states.new()
    await in_place_of(page, "/live", lambda route: route.abort())
    await in_place_of(page, "/", lambda route: route.abort())

    await expect(page.locator("#now")).to_have_class(re.compile("stale"))

    found = await page.evaluate(
        """() => [...document.querySelectorAll(".stale, .stale *")].filter((each) => [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim())).map((each) => {
            let ground = each;
            while (getComputedStyle(ground).backgroundColor === "rgba(0, 0, 0, 0)") ground = ground.parentElement;
            const hex = (colour) => "#" + colour.match(/[0-9]+/g).slice(0, 3).map((each) => Number(each).toString(16).padStart(2, "0")).join("");
            return [each.outerHTML.slice(0, 60), hex(getComputedStyle(each).color), hex(getComputedStyle(ground).backgroundColor), getComputedStyle(each).opacity];
        })"""
    )
    assert len(found) > 10
    for what, text, ground, opacity in found:
        assert contrast(text, ground) >= 4.5, what
        assert opacity == "1", what
