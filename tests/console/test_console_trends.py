"""Charts of a day: the figures that the script of a page asks for, and who may see them."""

from datetime import UTC, datetime, timedelta

from duly_core.trends import store as trends
from tests.fixtures.task_states import LAMBDA
from tests.trends.test_trend_store import row


async def fill(store):
    at = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=10)
    await trends.add_runs(store, [row("", at, starts=4, place=8), row(LAMBDA, at, starts=4, place=8)])
    return at


async def test_figures_of_a_range_are_answered_by_the_minute(browser, store, task_states):
    at = await fill(store)

    told = (await browser.get("/trends?range=1h")).json()

    assert [
        (point["at"], point["started"], point["on_time"], point["ready"]) for point in told["points"]
    ] == [(at.timestamp(), 4, 100, None)]
    assert (told["step"], told["objective"], told["on_time_within"]) == (60, 95, 5)
    assert told["until"] - told["since"] == 3600


async def test_a_week_is_answered_by_the_hour_with_values_for_a_minute(browser, store, task_states):
    at = (await fill(store)).replace(minute=0)
    await trends.add_runs(store, [row("", at, starts=116)])
    await trends.sum_points(store, 60, 1, at, 10)

    told = (await browser.get(f"/trends?range=7d&lambda={LAMBDA}")).json()
    together = (await browser.get("/trends?range=7d")).json()

    assert told["step"] == 3600
    assert sum(point["started"] for point in told["points"]) == 4 / 60
    assert sum(point["started"] for point in together["points"]) in (
        2,
        116 / 60,
    )  # the turn of an hour may be between


async def test_the_pages_ask_for_the_range_of_their_address(browser, task_states):
    overview = (await browser.get("/?range=24h")).text
    of_lambda = (await browser.get(f"/lambdas/{LAMBDA}")).text
    unknown = await browser.get("/?range=1y")

    assert 'data-lambda="" data-range="24h"' in overview
    assert f'data-lambda="{LAMBDA}" data-range="1h"' in of_lambda
    assert 'href="/?range=7d#trends-title"' in overview
    assert unknown.status_code == 400
    assert "There is no range &#39;1y&#39;" in unknown.text
