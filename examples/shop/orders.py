"""What the web site does: it places orders, and changes prices.

`set_up` is what the team runs once.
"""

from datetime import date, timedelta

import duly
from examples.shop.app import Order, Price, approve, charge, pay_suppliers, publish, reserve, ship, undo

LARGE = 1_000
"""A person approves orders from this total on."""


def place(client: duly.Client, order: Order) -> str:
    """Schedule the steps of an order, all or none; return the id of the graph."""
    with client.graph("order") as graph:
        ready = graph.task(reserve, order)
        undone = []
        if order.total >= LARGE:
            ready = graph.task(approve, order, after=ready)
            undone.append(ready.failed)
        paid = graph.task(charge, order, after=ready)
        graph.task(ship, order, after=paid)
        graph.task(undo, order, after=duly.any_of(*undone, paid.failed))
    return graph.graph_id


def change_price(client: duly.Client, price: Price) -> None:
    """Publish a price when nobody has changed it for ten seconds, at the latest after a minute: the latest wins."""
    settled = duly.Debounce(price.item, wait=timedelta(seconds=10), at_most=timedelta(minutes=1))
    client.schedule(publish, price, debounce=settled)


def set_up(client: duly.Client) -> None:
    """Pay suppliers on the first of each month at eight, or on the next working day."""
    client.put_calendar("office", closed=[date(2037, 12, 25), date(2038, 1, 1)])
    client.create_table(
        "suppliers.monthly",
        pay_suppliers,
        cron="0 8 1 * *",
        zone="Europe/Berlin",
        calendar="office",
        on_closed=duly.OnClosed.NEXT,
    )
