"""What the tests of the sites share: the application of the worker, and the table of orders."""

from pathlib import Path

import psycopg
import pytest

import duly
from examples.web.lambdas import app


@pytest.fixture
def duly_app() -> duly.App:
    """What `duly_worker` runs."""
    return app


@pytest.fixture
def orders_dsn(duly_dsn: str, duly_client: duly.Client) -> str:
    """The database of the sites: Duly's, with a table of orders."""
    with psycopg.connect(duly_dsn) as connection:
        connection.execute((Path(__file__).parent / "tables.sql").read_text(encoding="utf-8"))
    return duly_dsn
