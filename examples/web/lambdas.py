"""What happens after an order: the worker runs this, whatever framework the web site has.

duly worker examples.web.lambdas:app      beside the web site; `duly up examples.web.lambdas:app` on your machine
"""

from dataclasses import dataclass

import duly

app = duly.App(owner="team-shop", version="1")


@dataclass
class Placed:
    """An order that a customer placed."""

    order: int
    item: str


@app.callback("orders.confirm", max_attempts=5)
def confirm(placed: Placed) -> str:
    """Confirm an order. It may run again: a mail would carry the order's number as its idempotency key."""
    return f"order {placed.order}: {placed.item} is on its way"
