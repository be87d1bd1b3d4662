"""Tests of the site with Django; in a process of their own, because its settings belong to the process."""

from collections.abc import Iterator

import django
import psycopg
import pytest
from django.db import connections
from django.test import Client

import duly
from duly_local.testing import DulyWorker


@pytest.fixture
def site(orders_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("ORDERS_DSN", orders_dsn)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "examples.web.django_site.settings")
    django.setup()
    yield Client()
    connections.close_all()


def test_an_order_is_confirmed(site: Client, duly_client: duly.Client) -> None:
    placed = site.post("/orders", {"item": "pen"}, content_type="application/json")

    assert placed.status_code == 201
    found = duly_client.wait(placed.json()["task"])
    assert found.result == f"order {placed.json()['order']}: pen is on its way"


def test_a_refused_order_leaves_no_task(site: Client, duly_worker: DulyWorker, orders_dsn: str) -> None:
    assert site.post("/orders", {"item": ""}, content_type="application/json").status_code == 422

    assert duly_worker.run_due() == []
    with psycopg.connect(orders_dsn) as connection:
        assert connection.execute("select count(*) from orders").fetchone() == (0,)
