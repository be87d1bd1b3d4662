"""The floor of a lone task does the work that it claims to measure: every task is written, claimed and started."""

import asyncio
from typing import Any

import psycopg

from benchmarks.hops.roles import ROLES
from benchmarks.hops.wire import LAMBDA
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.lambdas.store import register
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_local.ports import LOOPBACK, free_ports

TASKS = 5


async def test_each_task_of_the_chain_is_claimed_and_starts_after_its_call(dsn: str) -> None:
    async with Store(StoreSettings(dsn=dsn)) as store:
        await register(store, [LambdaPolicy(LAMBDA)])
    frontend, hsc = (f"{LOOPBACK}:{port}" for port in free_ports(2))
    told = {
        "dsn": dsn,
        "tasks": TASKS,
        "every": 0.0,
        "frontend": frontend,
        "hsc": hsc,
    }

    found = await _played(told)

    called, started = found["client"]["called"], found["executor"]["started"]
    assert len(called) == TASKS
    assert all(started[task] > at for task, at in called.items())
    assert found["hsc"]["took_us"]["claim_work"]  # one look may claim several on a busy machine
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        cursor = await connection.execute("select status::text, count(*) from task_assoc group by 1")
        assert await cursor.fetchall() == [("claimed", TASKS)]


async def _played(told: dict[str, Any]) -> dict[str, Any]:
    """What each role found, all of them in this process."""
    stop, found = asyncio.Event(), {}

    async def play(role: str) -> None:
        found[role] = await ROLES[role](told, ready[role].set, stop)

    ready = {role: asyncio.Event() for role in ROLES}
    async with asyncio.timeout(30), asyncio.TaskGroup() as players:
        for role in ROLES:
            players.create_task(play(role))
            await ready[role].wait()
    return found
