"""Schedules a few tasks each second, so that open pages have something to show."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import duly

LAMBDA = "team-1/job.00001"


@asynccontextmanager
async def trickle(frontend: str, a_second: int) -> AsyncIterator[None]:
    """Do so meanwhile, one task a call; none: nothing happens."""
    if not a_second:
        yield
        return

    async def go_on() -> None:
        async with duly.AsyncClient(frontend) as client:
            while True:
                await client.schedule(LAMBDA, b"x" * 100)
                await asyncio.sleep(1 / a_second)

    going = asyncio.create_task(go_on())
    try:
        yield
    finally:
        going.cancel()
