"""The console of `duly up` in a headless Chromium: scripts, policy, keyboard, widths, and without scripts."""

import os
import re
import signal
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect

import duly
from tests.fixtures.waiting import wait_until
from tests.fixtures.whole_stack import WholeStack

CHROMIUM = Path("/usr/bin/chromium")
PAGES = (
    "/",
    "/tasks",
    "/dead-letters",
    "/lambdas",
    "/sessions",
    "/graphs",
    "/time-tables",
    "/pools",
    "/resources",
    "/settings",
    "/audit",
)

pytestmark = [
    pytest.mark.system,
    # a browser beside a whole stack: a minute; the pages themselves are tested by tests/console/test_console_*.py
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not CHROMIUM.exists(), reason="Chromium is not installed: install chromium"),
]


class PatientStack(WholeStack):
    """A machine that also runs a browser may be slow."""

    ready_within = timedelta(seconds=300)


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    folder = tmp_path_factory.mktemp("console")
    running = PatientStack(folder, "--data", str(folder / "data"))
    try:
        address = running.frontend()
        found = wait_until(lambda: re.search(r"console at (\S+)", running.output))
        assert re.search(r"metrics at http://127\.0\.0\.1:\d+/metrics \(server\)", running.output)
        with duly.Client(address) as client:
            yield client, found[1], running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"]
        )
        yield opened
        opened.close()


@pytest.fixture
def open_page(chromium, stack):
    """Open a page of the console; what its browser complains of is an error at the end of the test."""
    complaints: list[str] = []
    contexts = []

    def _open(path: str, **options):
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on(
            "console",
            lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(stack[1] + path)
        return page

    yield _open
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.mark.parametrize("width", [375, 768, 1280])
def test_no_page_is_wider_than_its_window_or_breaks_its_own_policy(open_page, stack, width):
    page = open_page("/", viewport={"width": width, "height": 800})

    for path in PAGES:
        page.goto(stack[1] + path)

        assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0, path
        assert page.locator("h1").count() == 1, path


def test_plots_follow_what_happens_while_the_page_is_seen(open_page):
    page = open_page("/?range=live", viewport={"width": 1280, "height": 900})

    with page.expect_response("**/live") as first:
        pass
    with page.expect_response("**/live") as second:
        pass

    assert page.locator(".plot canvas").count() == 4
    assert second.value.json()["at"] > first.value.json()["at"]
    expect(page.locator("[data-series=held] b")).not_to_have_text("\u2013")


def test_the_keyboard_reaches_content_search_and_palette(open_page):
    page = open_page("/lambdas")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "palette-input"
    page.keyboard.press("Escape")
    page.locator("#search").focus()
    page.keyboard.type("test.echo")
    page.keyboard.press("Enter")
    page.wait_for_url("**/lambdas/test.echo")


def test_a_payload_is_shown_in_place(open_page, stack):
    client, *_ = stack
    (lambda_name, *_) = [each.name for each in client.lambdas()]
    task = client.schedule(lambda_name, {"mark": "seen only when asked"}, delay=timedelta(hours=1))
    page = open_page(f"/tasks/{task}")

    assert page.get_by_text("seen only when asked").count() == 0
    page.get_by_label("Reason").fill("a test")
    page.get_by_role("button", name="Show them").click()
    page.get_by_text("seen only when asked").wait_for()

    assert page.url.endswith(str(task))
    (event, *_) = client.audit_events(method="RevealTask")
    assert event.request["reason"] == "a test"


@pytest.mark.parametrize("frozen", [r"\bpostgres\b", r"-m duly_cli server\b"], ids=["Postgres", "the server"])
def test_open_pages_outlast_what_is_stopped(chromium, stack, frozen):
    """Stops the processes themselves: tests/console/test_console_refresh.py freezes the lines to them."""
    client, url, running = stack
    (lambda_name, *_) = [each.name for each in client.lambdas()]
    task = client.schedule(lambda_name, {}, delay=timedelta(hours=1))
    client.put_gate("deploy", duly.GateKind.PAUSE, lambda_name, reason="a deploy")
    context = chromium.new_context()
    overview, of_task = context.new_page(), context.new_page()
    overview.goto(url)
    of_task.goto(f"{url}/tasks/{task}")
    pids = [pid for pid, line in running.processes().items() if re.search(frozen, line)]
    assert pids

    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for page in (overview, of_task):
            page.bring_to_front()
            expect(page.get_by_text("No answer since")).to_be_visible(timeout=60_000)
        expect(overview.locator("#now")).to_contain_text(re.compile(r"[Gg]ate .?deploy.? pauses"))
        expect(of_task.locator("#facts.stale .status").first).to_have_text("new")
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    for page in (overview, of_task):
        page.bring_to_front()
        expect(page.get_by_text("No answer since")).to_have_count(0, timeout=60_000)
        expect(page.locator(".stale")).to_have_count(0)
    client.cancel(task)
    expect(of_task.locator("#facts .status").first).to_have_text("cancelled", timeout=60_000)
    client.delete_gate("deploy")
    context.close()


def test_everything_but_the_plots_works_without_scripts(open_page, stack):
    client, *_ = stack
    (lambda_name, *_) = [each.name for each in client.lambdas()]
    task = client.schedule(lambda_name, {}, delay=timedelta(hours=1))
    page = open_page("/tasks", java_script_enabled=False)

    page.get_by_label("Status").select_option("new")
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("link", name=str(task)).click()
    page.get_by_role("button", name="Cancel the task").click()
    page.get_by_role("button", name="Cancel the task").click()

    assert page.locator(".notice").inner_text() == "The task is cancelled."
    assert client.get(task).status is duly.TaskStatus.CANCELLED
    page.get_by_label("Colours").select_option("dark")
    page.get_by_role("button", name="Set").click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
