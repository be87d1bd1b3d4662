"""What a round of the incident board costs, computed in this process as a Frontend does."""

import asyncio
import os
from statistics import median

from benchmarks.cpu import scheduled_seconds_by_process
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_frontend.problems.board import ProblemBoard

_TIMES = 5


async def round_cost(dsn: str) -> dict[str, float]:
    """Return the CPU of a round in ms, medians: of the Frontend, and of Postgres; and how many problems it found."""
    frontend, postgres, problems = [], [], 0
    async with Store(StoreSettings(dsn=dsn)) as store:
        board = ProblemBoard(store)
        await board.find()  # causes are remembered, and connections are made
        for _ in range(_TIMES):
            before = scheduled_seconds_by_process(os.getpid())
            problems = len((await board.find()).problems)
            used = scheduled_seconds_by_process(os.getpid())
            frontend.append((used["bench"] - before["bench"]) * 1e3)
            postgres.append((used["postgres"] - before["postgres"]) * 1e3)
            await asyncio.sleep(1)
    return {"frontend": median(frontend), "postgres": median(postgres), "problems": problems}
