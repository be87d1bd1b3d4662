"""A web site with Flask.

ORDERS_DSN=postgresql://... flask --app examples.web.flask_site:create_app run
"""

import os
from typing import Any

import psycopg
from flask import Flask, abort, request

from duly import transactional
from examples.web.lambdas import Placed, confirm


def create_app(dsn: str | None = None) -> Flask:
    """Make the site; `dsn` names the database that has Duly's tables, too."""
    app = Flask(__name__)
    address = dsn or os.environ["ORDERS_DSN"]

    @app.post("/orders")
    def place() -> tuple[dict[str, Any], int]:
        item = request.get_json()["item"]
        with psycopg.connect(address) as connection:  # commits at its end; `abort` inside of it rolls back
            row = connection.execute("insert into orders (item) values (%s) returning id", [item]).fetchone()
            order = row[0] if row else 0
            task = transactional.schedule(connection, confirm, Placed(order, item))
            if not item:
                abort(422, "an order needs an item")  # neither the order nor the task is written
        return {"order": order, "task": task}, 201

    return app
