"""The command palette, and buttons that copy ids, by keyboard in a headless Chromium."""

import re
from datetime import timedelta

import pytest
from playwright.async_api import expect

import duly
from tests.fixtures.console_pages import needs_chromium

pytestmark = [
    pytest.mark.long,  # a browser for each test
    pytest.mark.timeout(300),
    needs_chromium,
]

NO_CLIPBOARD = "Object.defineProperty(navigator, 'clipboard', { value: undefined })"
"""As where a page comes without TLS."""


@pytest.fixture
async def window(console_browser, console_url):
    opened = await console_browser.new_context(base_url=console_url, viewport={"width": 1280, "height": 900})
    yield opened
    await opened.close()


@pytest.fixture
async def page(window):
    opened = await window.new_page()
    complaints = []
    opened.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    yield opened
    assert complaints == []


async def test_keys_open_it_and_the_focus_returns(page):
    await page.goto("/lambdas")
    link = page.get_by_role("link", name="Queues", exact=True).first
    await link.focus()
    for keys in ("/", "Control+k", "Meta+k"):
        await page.keyboard.press(keys)
        await expect(page.get_by_role("dialog", name="Command palette")).to_be_visible()
        await expect(page.get_by_role("combobox", name=re.compile("Go to"))).to_be_focused()

        await page.keyboard.press("Escape")

        await expect(page.get_by_role("dialog")).to_have_count(0)
        await expect(link).to_be_focused()


async def test_it_goes_to_a_page(page):
    await page.goto("/")
    await page.keyboard.press("/")
    await page.keyboard.type("time t")
    chosen = page.locator("#palette").get_by_role("option", selected=True)
    await expect(chosen).to_contain_text("Time tables")
    await page.keyboard.press("ArrowDown")
    await expect(chosen).to_contain_text("Find")
    await page.keyboard.press("ArrowUp")

    await page.keyboard.press("Enter")

    await page.wait_for_url("**/time-tables")


async def test_it_goes_to_a_lambda_by_the_begin_of_its_name(page, task_states):
    for name in ("mail.receive", "mail.send", "web.mail"):
        await task_states.register(name)
    await page.goto("/")
    await page.keyboard.press("Control+k")
    await page.keyboard.type("mail.s")
    await expect(page.locator("#palette").get_by_role("option", selected=True)).to_contain_text("mail.send")

    await page.keyboard.press("Enter")

    await page.wait_for_url("**/lambdas/mail.send")


async def test_it_goes_to_a_task_by_its_id_and_a_button_only_asks(page, client, task_states):
    await task_states.register("mail.send")
    task = await client.schedule("mail.send", delay=timedelta(hours=1))
    await page.goto("/gates")
    await page.keyboard.press("/")
    await page.keyboard.type(str(task))
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/tasks/{task}")

    await page.keyboard.press("/")
    await page.keyboard.type("cancel the")
    await expect(page.locator("#palette").get_by_role("option", selected=True)).to_contain_text(
        "Cancel the task"
    )
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/tasks/{task}/cancel")

    await expect(page.get_by_role("link", name="Back, change nothing")).to_be_visible()
    await page.keyboard.press("/")
    await page.keyboard.type("cancel the")
    await expect(page.locator("#palette").get_by_role("option")).to_have_count(1)
    await expect(page.locator("#palette").get_by_role("option")).to_contain_text("Find")
    assert (await client.get(task)).status is duly.TaskStatus.NEW


async def test_what_is_typed_is_found_by_the_search(page):
    await page.goto("/")
    await page.keyboard.press("/")
    await page.keyboard.type("nothing has this name")
    await page.keyboard.press("Enter")

    await page.wait_for_url("**/search?q=nothing+has+this+name")


async def test_a_task_is_found_by_the_begin_of_its_id(page, client, task_states):
    await task_states.register("mail.send")
    task = await client.schedule("mail.send", delay=timedelta(hours=1))
    await page.goto("/")
    await page.keyboard.press("/")
    await page.keyboard.type(str(task)[:13])

    await page.locator("#palette").get_by_role("option").filter(has_text=str(task)).click()

    await page.wait_for_url(f"**/tasks/{task}")


async def test_names_are_text_and_never_markup(page):
    await page.goto("/")
    await page.keyboard.press("/")
    await page.keyboard.type("<img src=x onerror=alert(1)>")

    await expect(page.locator("#palette").get_by_role("option")).to_contain_text("<img src=x")
    assert await page.locator("#palette img").count() == 0


async def test_an_id_is_copied_whole(page, window, client, task_states):
    await task_states.register("mail.send")
    task = await client.schedule("mail.send", delay=timedelta(hours=1))
    await window.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.goto("/tasks")
    link = page.get_by_role("link", name=str(task))
    assert (await link.bounding_box())["width"] < 150
    assert await link.get_attribute("title") == str(task)

    await link.focus()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("button", name=f"Copy {task}")).to_be_focused()
    await page.keyboard.press("Enter")

    await expect(page.get_by_role("status").get_by_text(f"Copied {task}")).to_be_attached()
    assert await page.evaluate("navigator.clipboard.readText()") == str(task)


async def test_without_a_clipboard_the_id_is_selected(page, client, task_states):
    await task_states.register("mail.send")
    task = await client.schedule("mail.send", delay=timedelta(hours=1))
    await page.add_init_script(NO_CLIPBOARD)
    await page.goto("/tasks")

    await page.get_by_role("button", name=f"Copy {task}").press("Enter")

    await expect(page.get_by_role("status").get_by_text("Selected. Copy it with Ctrl-C.")).to_be_attached()
    assert await page.evaluate("getSelection().toString()") == str(task)


async def test_a_key_shows_whole_lines(page, client, task_states):
    await task_states.register("mail.send")
    await client.put_gate("deploy", duly.GateKind.PAUSE, "mail.send", reason="because of a deploy " * 20)
    await page.goto("/gates")
    row = page.locator("tbody tr").first
    cut = (await row.bounding_box())["height"]

    await page.keyboard.press("w")

    assert (await row.bounding_box())["height"] > cut * 2
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
