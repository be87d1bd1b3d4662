"""The page of promises: shares, what is left of budgets, what alerts, and nothing counted, which is no 100 %."""

import re
from datetime import UTC, datetime, timedelta

import grpc
import pytest

from duly_core.trends import store as trends
from duly_frontend.slo.service import ObjectiveServicer
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


@pytest.fixture
def frontend_without_objectives(monkeypatch):
    """Let the Frontend answer as one of a release before objectives."""

    async def is_unknown(_servicer, _request, context):
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

    for name in ("ListObjectives", "PutObjective", "DeleteObjectives"):
        monkeypatch.setattr(ObjectiveServicer, name, is_unknown)


async def test_a_frontend_of_an_older_release_shows_its_promises(
    frontend_without_objectives, browser, task_states
):
    await task_states.register()

    page = await browser.get(f"/slo?lambda={LAMBDA}")

    assert rows(page.text) == [f"starts within 5 s {LAMBDA} 95 % no data no data no data no data - -"]
    assert 'action="/slo/put"' not in page.text


async def test_an_unknown_lambda_is_told(browser):
    page = await browser.get("/slo?lambda=ghost")

    assert page.status_code == 400
    assert "ghost" in page.text


async def test_an_objective_is_set_changed_and_removed_on_the_page(browser, client, task_states):
    await task_states.register()
    form = {"lambda": LAMBDA, "share": "99.9", "within": "1s"}
    await browser.get("/slo")

    asked = await browser.post("/slo/put", **form)
    await browser.confirmed("/slo/put", **form)
    (made,) = await client.objectives()
    page = await browser.get(f"/slo?objective={LAMBDA}")
    shown = {"was_share": "99.9", "was_within": "1s"}
    await browser.confirmed("/slo/put", **form | shown | {"within": "10m"})
    (changed,) = await client.objectives()
    await browser.confirmed("/slo/reset", **{"lambda": LAMBDA})

    assert f"99.9 % of the runs of {LAMBDA} are to start within 1 s" in words(asked.text)
    assert (made.share, made.start_within) == (0.999, timedelta(seconds=1))
    assert f"Change the objective of {LAMBDA}" in page.text
    assert (changed.share, changed.start_within) == (0.999, timedelta(minutes=10))
    assert await client.objectives() == []


async def test_the_line_of_the_others_says_so_and_a_lambda_by_which_prefix_it_is_judged(
    browser, client, store, task_states
):
    await task_states.register()
    at = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=1)
    await trends.add_runs(store, [row(name, at, starts=50, place=7) for name in ("", LAMBDA)])
    await client.put_objective("mail.*", 0.9, start_within=timedelta(seconds=1))

    page = await browser.get("/slo")

    assert rows(page.text)[1:3] == [
        "starts within 5 s all others 95 % no data no data no data no data - -",
        f"starts within 1 s {LAMBDA} 90 % by mail.* 0 % 0 % 0 % -900 % 10.0x critical",
    ]


async def test_a_share_that_is_no_number_and_one_that_cannot_be_promised_are_told(browser, client):
    await browser.get("/slo")

    typed = await browser.post("/slo/put", **{"lambda": LAMBDA, "share": "most", "within": "1s"})
    whole = await browser.confirmed("/slo/put", **{"lambda": LAMBDA, "share": "100", "within": "1s"})

    assert (typed.status_code, "must be a percentage" in typed.text) == (400, True)
    assert (whole.status_code, "less than 1" in whole.text) == (400, True)
    assert await client.objectives() == []
