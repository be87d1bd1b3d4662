"""The page of promises: shares, what is left of budgets, what alerts, and nothing counted, which is no 100 %."""

import re
from datetime import UTC, datetime, timedelta

from duly_core.trends import store as trends
from tests.console.test_console_board import words
from tests.fixtures.task_states import LAMBDA
from tests.slo.test_slo_calls import promise
from tests.trends.test_trend_store import row


def rows(page: str) -> list[str]:
    """Return the words of each row of the table."""
    return [words(each).replace("\u2013", "-") for each in re.findall(r"<tr>\s*<td.*?</tr>", page, re.DOTALL)]


async def test_a_promise_that_is_kept_and_one_that_is_not_are_told_apart(browser, store, task_states):
    await task_states.register()
    at = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=1)
    await trends.add_runs(store, [row(name, at, starts=50, place=10) for name in ("", LAMBDA)])
    await trends.add_calls(store, {at: (1_000_000, 1)})

    page = await browser.get("/slo")

    assert page.status_code == 200
    assert rows(page.text) == [
        "calls accepted - 99.9 % 99.999 % 99.999 % 99.999 % 100 % 0.0x -",
        "starts within 5 s all 95 % 0 % 0 % 0 % -1,900 % 20.0x critical",
        f"starts within 5 s {LAMBDA} 95 % 0 % 0 % 0 % -1,900 % 20.0x critical",
    ]


async def test_a_window_of_a_day_has_one_column(browser, monkeypatch, task_states):
    await task_states.register()
    promise(monkeypatch, window=timedelta(days=1))

    page = await browser.get(f"/slo?lambda={LAMBDA}")

    assert page.text.count(">1 d</th>") == 1
    assert rows(page.text) == [f"starts within 5 s {LAMBDA} 95 % no data no data no data - -"]


async def test_nothing_counted_is_told_as_no_data(browser, task_states):
    await task_states.register()

    page = await browser.get(f"/slo?lambda={LAMBDA}")

    assert rows(page.text) == [f"starts within 5 s {LAMBDA} 95 % no data no data no data no data - -"]


async def test_an_unknown_lambda_is_told(browser):
    page = await browser.get("/slo?lambda=ghost")

    assert page.status_code == 400
    assert "ghost" in page.text
