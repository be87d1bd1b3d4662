"""The lambdas of a web shop: reserve, approve, charge, ship, set a price, a nightly report, and the
payment of suppliers.

duly up examples.shop.app:app
"""

from dataclasses import dataclass
from datetime import timedelta

import duly
from examples.shop.outside import CardRefusedError, outside

app = duly.App(owner="team-shop", version="1")


@dataclass
class Order:
    """What a customer bought."""

    number: str
    items: dict[str, int]
    total: int
    card: str = "valid"


app.resource("payments", capacity=10, note="the provider takes ten calls at a time")


@app.callback("order.reserve")
def reserve(order: Order) -> None:
    """Take the items out of the stock."""
    outside.reserve(order.number, order.items)


@app.callback("order.approve")
def approve(order: Order, ctx: duly.TaskContext) -> None:
    """Mail the boss a page with two buttons, and wait without a slot: for three days, then it is a no."""
    answer = f"{order.number}/approval"
    if ctx.checkpointed is None:
        outside.mails.append(("boss@example.org", ctx.event_address(answer, title="Ship it?").url))
        ctx.checkpoint("mailed")
    if not ctx.wait_for(answer, type=bool, timeout=timedelta(days=3), default=False):
        raise duly.FatalFailure("nobody approves it")


@app.callback(
    "order.charge",
    max_attempts=12,
    backoff=duly.Backoff(initial=timedelta(minutes=1), maximum=timedelta(hours=1)),
    fatal_exceptions=(CardRefusedError,),
    resources=["payments"],
)
def charge(order: Order, ctx: duly.TaskContext) -> None:
    """Charge the card. The task's id is the same in each attempt, so a card is charged once."""
    outside.charge(order.card, order.total, key=ctx.task_id)


@app.callback("order.ship")
def ship(order: Order) -> str:
    """Hand the parcel over."""
    outside.shipped.append(order.number)
    return f"parcel of {order.number}"


@app.callback("order.undo")
def undo(order: Order) -> None:
    """Nobody approves it, or nobody pays: the items are free again, and the customer hears of it."""
    outside.release(order.number)
    outside.mails.append(("customer@example.org", f"we cannot send {order.number}"))


@dataclass
class Price:
    """What an item costs from now on."""

    item: str
    amount: int


@app.callback("price.publish")
def publish(price: Price) -> None:
    """Show a price in the shop."""
    outside.prices.append((price.item, price.amount))


@app.callback("report.nightly")
def report(_: None, ctx: duly.TaskContext) -> str:
    """Count what was shipped, for the day that ends with the tick."""
    return f"{ctx.tick_at or ctx.due_at:%Y-%m-%d}: {len(outside.shipped)} parcels"


@app.callback("suppliers.pay")
def pay_suppliers(_: None, ctx: duly.TaskContext) -> None:
    """Pay the suppliers, for the month that ends with the tick."""
    outside.paid.append(f"{ctx.tick_at or ctx.due_at:%A, %Y-%m-%d}")


app.time_table("report.nightly", report, cron="0 2 * * *", zone="Europe/Berlin")
