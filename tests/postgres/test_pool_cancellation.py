"""Who is cancelled while a pool has no connection for it ends, also when one comes free at that very moment."""

import asyncio
from datetime import timedelta

import psycopg_pool
import pytest

from duly_core.postgres.connection import connection_of
from tests.fixtures.waiting import until

SECOND = timedelta(seconds=1)


@pytest.fixture
async def pool(dsn):
    async with psycopg_pool.AsyncConnectionPool(dsn, min_size=1, max_size=1, open=False) as opened:
        await opened.wait()
        yield opened


@pytest.mark.parametrize("turns", range(8))
async def test_a_cancellation_is_heard_however_soon_it_follows_the_connection(pool, turns):
    async def takes_one_and_waits_for_ever():
        connection = await connection_of(pool, 5 * SECOND)
        try:
            await asyncio.Event().wait()
        finally:
            await pool.putconn(connection)

    held = await connection_of(pool, SECOND)
    waiting = asyncio.ensure_future(takes_one_and_waits_for_ever())
    await until(lambda: pool.get_stats()["requests_waiting"])

    returning = asyncio.ensure_future(pool.putconn(held))
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()

    done, _ = await asyncio.wait({waiting}, timeout=5)
    assert done
    assert waiting.cancelled()
    await returning
    await pool.putconn(await connection_of(pool, SECOND))  # nothing was lost


async def test_who_cleans_up_after_a_cancellation_is_given_a_connection(pool):
    cleaned = asyncio.Event()

    async def cleans_up():
        try:
            await asyncio.Event().wait()
        finally:
            await pool.putconn(await connection_of(pool, SECOND))
            cleaned.set()

    cleaning = asyncio.ensure_future(cleans_up())
    await asyncio.sleep(0)
    cleaning.cancel()

    with pytest.raises(asyncio.CancelledError):
        await cleaning
    assert cleaned.is_set()
