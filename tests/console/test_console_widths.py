"""Pages with long names in windows of eight widths, in a headless Chromium: rows are one line, and actions stay in sight."""

import pytest
from playwright.async_api import Page

from tests.fixtures.console_pages import needs_chromium

WIDTHS = (320, 390, 640, 768, 1024, 1280, 1440, 1920)
"""640 is a window of 1280 px at 200 %, 320 is one at 400 %."""
USUAL = "warehouse/inventory.reconcile_with_supplier_prices"
OTHERS = {
    "/tasks?lambda=nothing.here": 200,
    "/dead-letters?lambda=nothing.here": 200,
    "/lambdas?name=nothing.here": 200,
    "/sessions?blocked=1": 200,
    "/graphs?name=nothing.here": 200,
    "/time-tables?lambda=nothing.here": 200,
    "/queues?lambda=nothing.here": 200,
    "/audit?actor=nobody": 200,
    "/search?q=name": 200,
    f"/search?q={'z' * 200}": 200,
    "/sign-in": 200,
    f"/nothing/{'z' * 200}": 404,
    f"/tasks/{'z' * 200}": 409,
}
"""Lists that are empty, what was searched for, and errors."""
CONFIRMED = {
    "/gates": "Remove gate",
    "/dead-letters?by=task": "Redrive task",
    "/resources": "Change",
    "/settings": "Reset",
}
"""The first button of these pages leads to one that asks whether to do it."""

pytestmark = [
    pytest.mark.long,  # it opens about 45 pages, and lays each out eight times
    pytest.mark.timeout(600),
    needs_chromium,
]

MEASURE = """() => {
    const root = document.scrollingElement, found = new Set(), isWide = innerWidth > 800;
    const is_out = (box, within) => box.left < Math.max(0, within.left) - 1 || box.right > Math.min(innerWidth, within.right) + 1;
    const look = (where) => {
        if (root.scrollWidth > innerWidth) found.add(`the page: ${root.scrollWidth}`);
        for (const each of document.querySelectorAll("main td button:not(.copy-id), main td .button")) {
            const within = (each.closest(".scroll") || root).getBoundingClientRect();
            if (is_out(each.getBoundingClientRect(), within)) found.add(`${where}: ${each.textContent}`);
        }
        for (const each of isWide ? document.querySelectorAll("main .scroll td:first-child") : []) {
            const within = each.closest(".scroll").getBoundingClientRect(), actions = each.parentElement.querySelector("td.actions");
            if (is_out(each.getBoundingClientRect(), within)) found.add(`${where}, name of the row: ${each.textContent}`);
            if (actions && each.getBoundingClientRect().right > actions.getBoundingClientRect().left + 1) found.add(`${where}, covered: ${each.textContent}`);
        }
    };
    const scrolls = [...document.querySelectorAll("main .scroll")];
    look("at the left");
    scrolls.forEach((each) => { each.scrollLeft = each.scrollWidth; });
    look("at the right");
    scrolls.forEach((each) => { each.scrollLeft = 0; });
    for (const row of innerWidth >= 1280 ? document.querySelectorAll("main .scroll tbody tr") : []) {
        const height = row.getBoundingClientRect().height;
        if (height > 46 && !row.querySelector(".problem")) found.add(`a row of ${height} px: ${row.textContent.trim()}`);
    }
    return [...found];
}"""

IS_CUT = "(name) => name.scrollWidth > name.clientWidth"


async def test_rows_are_one_line_and_no_action_is_out_of_sight(console_browser, console_url, console_paths):
    problems = {}
    page = await console_browser.new_page(base_url=console_url)
    for path, status in (dict.fromkeys(console_paths, 200) | OTHERS).items():
        answer = await page.goto(path, wait_until="domcontentloaded")
        assert answer is not None
        assert answer.status == status, path
        problems |= await measured(page, path)

    assert problems == {}


async def test_pages_that_ask_before_a_change_fit_into_the_window(
    console_browser, console_url, console_paths
):
    problems = {}
    page = await console_browser.new_page(base_url=console_url)
    for path, button in CONFIRMED.items():
        await page.goto(path, wait_until="domcontentloaded")
        await page.get_by_role("button", name=button).first.click()
        await page.get_by_role("link", name="Back, change nothing").wait_for()
        problems |= await measured(page, button)

    assert problems == {}


async def test_a_name_is_whole_where_its_table_has_room_and_else_is_read_by_pointing_at_it(
    console_browser, console_url, task_states
):
    await task_states.register(USUAL)
    page = await console_browser.new_page(base_url=console_url, viewport={"width": 1024, "height": 900})
    await page.goto("/lambdas")
    name = page.get_by_role("link", name=USUAL)

    assert await name.evaluate(IS_CUT)
    await name.hover()
    assert await name.get_attribute("title") == USUAL

    await page.set_viewport_size({"width": 1440, "height": 900})
    assert not await name.evaluate(IS_CUT)


async def measured(page: Page, where: str) -> dict[tuple[str, int], list[str]]:
    """Return what is wrong with a page at each width."""
    problems = {}
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 900})
        if found := await page.evaluate(MEASURE):
            problems[where, width] = found
    return problems
