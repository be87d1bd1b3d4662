"""`python -m benchmarks.time_tables`: 10,000 time tables fire in the same minute; CPU a tick, against plain schedules.

Both write as many tasks by the store's own functions, in turns, with no service between: a tick also decides, and moves
its time table on.
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import statistics
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from benchmarks.meter import Figures, Meter
from duly_core.lambdas import store as lambdas
from duly_core.postgres.pool import Store
from duly_core.postgres.schema.migrate import migrate
from duly_core.postgres.settings import StoreSettings
from duly_core.tasks import schedule
from duly_core.tasks.task import NewTask
from duly_core.time_tables import store as time_tables
from duly_core.time_tables import ticks
from duly_core.time_tables.time_table import Rhythm, TimeTable
from duly_local.postgres.embedded import EmbeddedPostgres
from duly_wire.ids import TaskId, new_task_id

LAMBDA = "bench.periodic"
GROUP = 500
_DUE = "update time_table set next_tick_at = date_trunc('minute', duly_now()), next_fire_at = date_trunc('minute', duly_now())"
_FORGET = "truncate task, task_assoc, idempotency_key"


async def measure(folder: Path, tables: int, rounds: int) -> dict[str, list[Figures]]:
    """Fire all tables, and schedule as many plain tasks, in turns."""
    found: dict[str, list[Figures]] = {"ticks, cron": [], "ticks, interval": [], "plain schedules": []}
    with EmbeddedPostgres(folder / "data") as postgres:
        await asyncio.to_thread(migrate, postgres.dsn)
        async with Store(StoreSettings(dsn=postgres.socket_dsn)) as store:
            await lambdas.register(store, [lambdas.LambdaPolicy(LAMBDA)])
            for _ in range(rounds):
                for name, rhythm in (
                    ("ticks, cron", Rhythm(cron="* * * * *", zone="Europe/Berlin")),
                    ("ticks, interval", Rhythm(every=timedelta(minutes=1))),
                ):
                    await _prepare(store, tables, rhythm)
                    found[name].append(await _fire(store, tables))
                await _execute(store, _FORGET)
                found["plain schedules"].append(await _schedule(store, tables))
    return found


async def _prepare(store: Store, tables: int, rhythm: Rhythm) -> None:
    for number in range(tables):
        table = TimeTable(f"table-{number}", LAMBDA, rhythm, payload=b"{}")
        await time_tables.put(store, table.name, lambda _, made=table: made)
    await _execute(store, _FORGET)
    await _execute(store, _DUE)
    await _execute(store, "vacuum (analyze) time_table")


async def _fire(store: Store, tables: int) -> Figures:
    meter, started, fired = Meter(), time.perf_counter(), 0
    while fired < tables:
        done = await ticks.fire_due(store, _new_id)
        fired += done.tasks
        if not done.tables:
            message = f"only {fired} of {tables} time tables fired"
            raise RuntimeError(message)
    return meter.stop(tables, {"seconds": time.perf_counter() - started}, own="python")


async def _schedule(store: Store, tasks: int) -> Figures:
    meter, started = Meter(), time.perf_counter()
    for first in range(0, tasks, GROUP):
        group = [NewTask(_new_id(), LAMBDA, b"{}") for _ in range(min(GROUP, tasks - first))]
        await schedule.schedule(store, group)
    return meter.stop(tasks, {"seconds": time.perf_counter() - started}, own="python")


async def _execute(store: Store, statement: str) -> None:
    async with store.connection() as connection:
        await connection.execute(statement.encode())


def _new_id() -> TaskId:
    return new_task_id().bytes


def main() -> None:
    """Measure, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(Path(folder), options.tables, options.rounds))
    print(f"{options.tables:,} at once, medians of {options.rounds}:")
    for name, figures in found.items():
        seconds = statistics.median(each.values["seconds"] for each in figures)
        cpu = {
            process: statistics.median(each.cpu_us_per_task.get(process, 0) for each in figures)
            for process in ("python", "postgres")
        }
        print(
            f"{name:<16} {seconds:6.2f} s  CPU each: {cpu['python']:5.0f} us Python, {cpu['postgres']:5.0f} us Postgres"
        )


if __name__ == "__main__":
    main()
