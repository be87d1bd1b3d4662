"""Tests of the site with Flask."""

import psycopg
import pytest
from flask.testing import FlaskClient

import duly
from duly_local.testing import DulyWorker
from examples.web.flask_site import create_app


@pytest.fixture
def site(orders_dsn: str) -> FlaskClient:
    return create_app(orders_dsn).test_client()


def test_an_order_is_confirmed(site: FlaskClient, duly_client: duly.Client) -> None:
    placed = site.post("/orders", json={"item": "pen"})

    assert placed.status_code == 201
    found = duly_client.wait(placed.get_json()["task"])
    assert found.result == f"order {placed.get_json()['order']}: pen is on its way"


def test_a_refused_order_leaves_no_task(site: FlaskClient, duly_worker: DulyWorker, orders_dsn: str) -> None:
    assert site.post("/orders", json={"item": ""}).status_code == 422

    assert duly_worker.run_due() == []
    with psycopg.connect(orders_dsn) as connection:
        assert connection.execute("select count(*) from orders").fetchone() == (0,)
