"""Tests of the site with FastAPI."""

import asyncio

import httpx
import psycopg
import pytest
from fastapi import FastAPI

import duly
from duly_local.testing import DulyWorker
from examples.web.fastapi_site import create_app


@pytest.fixture
def site(orders_dsn: str) -> FastAPI:
    return create_app(orders_dsn)


def post(site: FastAPI, order: dict[str, str]) -> httpx.Response:
    """Send an order, without a port."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=site)
        async with httpx.AsyncClient(transport=transport, base_url="http://site") as client:
            return await client.post("/orders", json=order)

    return asyncio.run(send())


def test_an_order_is_confirmed(site: FastAPI, duly_client: duly.Client) -> None:
    placed = post(site, {"item": "pen"})

    assert placed.status_code == 201
    found = duly_client.wait(placed.json()["task"])
    assert found.result == f"order {placed.json()['order']}: pen is on its way"


def test_a_refused_order_leaves_no_task(site: FastAPI, duly_worker: DulyWorker, orders_dsn: str) -> None:
    assert post(site, {"item": ""}).status_code == 422

    assert duly_worker.run_due() == []
    with psycopg.connect(orders_dsn) as connection:
        assert connection.execute("select count(*) from orders").fetchone() == (0,)
