"""The limit: the statements that a task costs Duly, run over groups with no service between them.

A task is written, claimed and finished, each a statement over a group and a commit of its own, on as many connections
as the machine has cores. No wire, no callback: no system on these statements can be quicker.
"""

import asyncio
import os
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

from benchmarks.marks import payload_of
from benchmarks.meter import Figures, Meter
from benchmarks.system import BenchmarkError
from duly_core.lambdas import store as lambdas
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.pool import Store
from duly_core.postgres.schema.migrate import migrate
from duly_core.postgres.settings import StoreSettings
from duly_core.results import store as results
from duly_core.tasks import claims, schedule
from duly_core.tasks.task import TOKEN_PREFIX_BYTES, Encoding, NewTask, Result
from duly_local.postgres.embedded import EmbeddedPostgres
from duly_wire.enums import Outcome, Priority
from duly_wire.ids import TaskId, new_task_id

GROUP = 200
_TIMEOUT = timedelta(minutes=1)
_WARM_UP = 2_000


async def floor(folder: Path, tasks: int) -> Figures:
    """Tasks a second through the store alone, and how long each statement took of its connection's time."""
    postgres = EmbeddedPostgres(folder / "data")
    with postgres:
        await asyncio.to_thread(migrate, postgres.dsn)
        async with Store(StoreSettings(dsn=postgres.socket_dsn)) as store:
            await lambdas.register(store, [lambdas.LambdaPolicy(name) for name in _lambdas()])
            await _lanes(store, _WARM_UP)
            meter = Meter()
            started = time.perf_counter()
            tasks, spent = await _lanes(store, tasks)
            seconds = time.perf_counter() - started
            shares = {f"{name}_us": taken / tasks * 1e6 for name, taken in spent.items()}
            return meter.stop(tasks, {"rate": tasks / seconds, **shares}, own="client")


async def _lanes(store: Store, tasks: int) -> tuple[int, Counter[str]]:
    """How many it was: as many in each lane; and seconds by statement."""
    lanes = _lambdas()
    each = -(-tasks // len(lanes))
    spent: Counter[str] = Counter()
    await asyncio.gather(*(_lane(store, name, each, spent) for name in lanes))
    return each * len(lanes), spent


def _lambdas() -> list[str]:
    """One for each connection, so that none takes another's tasks."""
    return [f"bench.floor.{number}" for number in range(os.cpu_count() or 1)]


async def _lane(store: Store, name: str, tasks: int, spent: Counter[str]) -> None:
    for first in range(0, tasks, GROUP):
        await _group(store, name, min(GROUP, tasks - first), spent)


async def _group(store: Store, name: str, size: int, spent: Counter[str]) -> None:
    clock = time.perf_counter
    before = clock()
    tasks = [NewTask(new_id(), name, payload_of(number), Encoding.RAW) for number in range(size)]
    await schedule.schedule(store, tasks)
    spent["schedule"] += clock() - before
    before = clock()
    caller = claims.Caller("floor", os.urandom(TOKEN_PREFIX_BYTES))
    picks = [claims.Pick(QueueKey(name, Priority.NORMAL), size, 0)]
    claimed = (await claims.claim_work(store, picks, [caller], size, _TIMEOUT)).tasks
    spent["claim_work"] += clock() - before
    before = clock()
    await results.set_results(store, [Result(task.task_id, task.token, Outcome.SUCCESS) for task in claimed])
    spent["finish"] += clock() - before
    if len(claimed) != size:
        raise BenchmarkError(f"the floor claimed {len(claimed)} of {size} tasks that it had scheduled")


def new_id() -> TaskId:
    """A task's id as the store wants it."""
    return new_task_id().bytes
