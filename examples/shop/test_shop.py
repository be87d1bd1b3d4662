"""The tests of the shop, as its team writes them: a real Duly in the test's process, and no waiting (docs/testing.md)."""

from datetime import UTC, datetime, timedelta

import pytest

import duly
from duly_local.testing import DulyClock, DulyWorker
from examples.shop import orders
from examples.shop.app import Order, Price, app
from examples.shop.outside import Outside, outside

SMALL = Order("A-1", {"pen": 2}, total=4)
LARGE = Order("A-2", {"desk": 1}, total=1_200)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def duly_app() -> duly.App:
    """What `duly_worker` runs; a suite of one application names it in pyproject.toml instead."""
    return app


@pytest.fixture(autouse=True)
def _full_stock() -> None:
    vars(outside).update(vars(Outside(stock={"pen": 10, "desk": 5})))


def test_a_small_order_is_shipped_at_once(duly_client: duly.Client, duly_worker: DulyWorker) -> None:
    graph_id = orders.place(duly_client, SMALL)
    duly_worker.run_due()

    assert outside.shipped == ["A-1"]
    assert outside.stock["pen"] == 8
    assert duly_client.get_graph(graph_id).status is duly.GraphStatus.SUCCEEDED


def test_the_payment_provider_gets_ten_calls_at_a_time(
    duly_client: duly.Client, duly_worker: DulyWorker
) -> None:
    orders.place(duly_client, SMALL)
    duly_worker.run_due()

    (payments,) = duly_client.resources()
    assert (payments.capacity, payments.declared_by, payments.used) == (10, "team-shop", 0)


def test_a_large_order_waits_for_the_boss(duly_client: duly.Client, duly_clock: DulyClock) -> None:
    orders.place(duly_client, LARGE)
    duly_clock.advance(2 * DAY)
    ((to, address),) = outside.mails
    assert (to, address.startswith("https://")) == ("boss@example.org", True)
    assert outside.charged == {}

    duly_client.send_event("A-2/approval", True)  # as the buttons of the page do
    duly_clock.advance(timedelta())

    assert list(outside.charged.values()) == [1_200]
    assert outside.shipped == ["A-2"]


@pytest.mark.parametrize("says_no", [True, False])
def test_a_large_order_that_nobody_approves_is_undone(
    duly_client: duly.Client, duly_worker: DulyWorker, duly_clock: DulyClock, says_no: bool
) -> None:
    orders.place(duly_client, LARGE)
    duly_worker.run_due()
    assert outside.stock["desk"] == 4

    if says_no:
        duly_client.send_event("A-2/approval", False)
    duly_clock.advance(3 * DAY)

    assert (outside.charged, outside.shipped, outside.stock["desk"]) == ({}, [], 5)
    assert ("customer@example.org", "we cannot send A-2") in outside.mails


def test_a_card_is_charged_once_though_the_provider_is_away_and_a_worker_dies(
    duly_client: duly.Client, duly_worker: DulyWorker, duly_clock: DulyClock
) -> None:
    orders.place(duly_client, SMALL)
    duly_worker.fail_next(ConnectionError("the provider is away"), of="order.charge", times=6)
    duly_worker.crash_next(of="order.charge", after_callback=True)
    runs = duly_clock.advance(DAY)

    assert len([run for run in runs if run.lambda_name == "order.charge"]) == 8
    assert list(outside.charged.values()) == [4]
    assert outside.shipped == ["A-1"]


def test_a_refused_card_is_not_tried_again(duly_client: duly.Client, duly_clock: DulyClock) -> None:
    orders.place(duly_client, Order("A-3", {"pen": 1}, total=2, card="expired"))
    runs = duly_clock.advance(DAY)

    assert [run.lambda_name for run in runs if run.lambda_name.startswith("order")] == [
        "order.reserve",
        "order.charge",
        "order.undo",
    ]
    assert outside.stock["pen"] == 10


def test_of_many_price_changes_the_latest_is_published(
    duly_client: duly.Client, duly_clock: DulyClock
) -> None:
    for amount in range(1, 11):
        orders.change_price(duly_client, Price("pen", amount))
        duly_clock.advance(timedelta(seconds=2))
    duly_clock.advance(timedelta(minutes=2))

    assert outside.prices == [("pen", 10)]


def test_a_report_is_made_each_night(duly_worker: DulyWorker, duly_clock: DulyClock) -> None:
    runs = duly_clock.advance(7 * DAY)

    assert [run.lambda_name for run in runs] == ["report.nightly"] * 7


@pytest.mark.parametrize("duly_begins_at", [datetime(2037, 12, 30, tzinfo=UTC)])
def test_suppliers_are_paid_on_the_first_working_day_of_the_month(
    duly_client: duly.Client, duly_clock: DulyClock, duly_begins_at: datetime
) -> None:
    orders.set_up(duly_client)
    duly_clock.advance(6 * DAY)

    assert outside.paid == ["Monday, 2038-01-04"]  # the first is a holiday, and a Friday
