"""Pages with long names in windows of six widths, in a headless Chromium: rows are one line, and actions stay in sight."""

import pytest

from tests.fixtures.console_pages import needs_chromium

WIDTHS = (390, 768, 1024, 1280, 1440, 1920)

pytestmark = [
    pytest.mark.long,  # it opens 24 pages, and lays each out six times
    pytest.mark.timeout(300),
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


async def test_rows_are_one_line_and_no_action_is_out_of_sight(console_browser, console_url, console_paths):
    problems = {}
    page = await console_browser.new_page(base_url=console_url)
    for path in console_paths:
        answer = await page.goto(path, wait_until="domcontentloaded")
        assert answer is not None
        assert answer.status == 200, path
        for width in WIDTHS:
            await page.set_viewport_size({"width": width, "height": 900})
            if found := await page.evaluate(MEASURE):
                problems[path, width] = found

    assert problems == {}
