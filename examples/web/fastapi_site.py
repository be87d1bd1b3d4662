"""A web site with FastAPI.

ORDERS_DSN=postgresql://... uvicorn --factory examples.web.fastapi_site:create_app
"""

import os
from collections.abc import Iterator
from typing import Annotated, Any

import psycopg
from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel

from duly import transactional
from examples.web.lambdas import Placed, confirm


class NewOrder(BaseModel):
    """The body of a request."""

    item: str


def create_app(dsn: str | None = None) -> FastAPI:
    """Make the site; `dsn` names the database that has Duly's tables, too."""
    app = FastAPI()
    address = dsn or os.environ["ORDERS_DSN"]

    def transaction() -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(address) as connection:  # commits at the end, or rolls back
            yield connection

    # Without this scope FastAPI would commit after the answer: a client would be told of an order that does not exist.
    Transaction = Annotated[psycopg.Connection[Any], Depends(transaction, scope="function")]  # noqa: N806 (a type)

    @app.post("/orders", status_code=201)
    def place(new: NewOrder, connection: Transaction) -> dict[str, Any]:
        row = connection.execute("insert into orders (item) values (%s) returning id", [new.item]).fetchone()
        order = row[0] if row else 0
        task = transactional.schedule(connection, confirm, Placed(order, new.item))
        if not new.item:
            raise HTTPException(422, "an order needs an item")  # neither the order nor the task is written
        return {"order": order, "task": task}

    return app
