"""The limit of a call that stores a task: a bare gRPC call with one insert behind it, one caller, one call at a time."""

import asyncio
import statistics
from pathlib import Path

import psycopg

from benchmarks.floor_latency import Part
from benchmarks.meter import Figures, Meter
from benchmarks.percentiles import percentile
from benchmarks.system import BenchmarkError
from duly_local.ports import LOOPBACK, free_ports
from duly_local.postgres.embedded import EmbeddedPostgres

_CALLS = 2_000
_WARM_UP = 50
_TABLE = "create table bench_call (task_id uuid primary key, payload bytea)"


async def floor_call(folder: Path, tasks: int) -> Figures:
    """Milliseconds from the call to its answer, calls a second, and microseconds of the insert, as its caller sees it (median).

    Raises:
        BenchmarkError: a process of it failed.
    """
    calls = min(_CALLS, tasks)
    (port,) = free_ports(1)
    with EmbeddedPostgres(folder / "data") as postgres:
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            connection.execute(_TABLE)
        told = {"dsn": postgres.dsn, "frontend": f"{LOOPBACK}:{port}", "every": 0}
        server = Part("inserter", told, folder)
        try:
            if await server.line() != "ready":
                raise BenchmarkError("the floor's server did not start: see its log")
            await _call(told | {"tasks": _WARM_UP}, folder)
            figures = await _call(told | {"tasks": calls}, folder)
            server.tell_to_stop()
            inserts = (await server.found())["took_us"]["insert"][-calls:]
        finally:
            await asyncio.to_thread(server.stop)
    figures.values["insert_us"] = statistics.median(inserts)
    return figures


async def _call(told: dict[str, object], folder: Path) -> Figures:
    client = Part("client", told, folder)
    try:
        await client.line()
        meter = Meter()
        found = await client.found()
        took = sorted(took / 1000 for took in found["took_us"]["call_of_the_frontend"])
        values = {f"p{round(part * 100)}_ms": percentile(took, part) for part in (0.5, 0.95, 0.99)}
        figures = meter.stop(len(took), values | {"rate": 1000 * len(took) / sum(took)})
    finally:
        await asyncio.to_thread(client.stop)
    figures.cpu_us_per_task["client"] = (
        found["cpu_s"] / len(took) * 1e6
    )  # it may have ended before the meter looked
    return figures
