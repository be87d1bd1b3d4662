"""The limit of a call that stores a task: a bare gRPC call with one insert behind it, one caller, one call at a time."""

import asyncio
import statistics
from pathlib import Path

import psycopg

from benchmarks.floor_latency import Part
from benchmarks.meter import Figures
from benchmarks.percentiles import percentile
from benchmarks.system import BenchmarkError
from duly_local.ports import LOOPBACK, free_ports
from duly_local.postgres.embedded import EmbeddedPostgres

_CALLS = 2_000
_WARM_UP = 50
_TABLE = "create table bench_call (task_id uuid primary key, payload bytea)"


async def floor_call(folder: Path, tasks: int) -> Figures:
    """Milliseconds from the call to its answer, and microseconds of the insert, as its caller sees it (median).

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
            took = await _call(told | {"tasks": calls}, folder)
            server.tell_to_stop()
            inserts = (await server.found())["took_us"]["insert"][-calls:]
        finally:
            await asyncio.to_thread(server.stop)
    values = {f"p{round(part * 100)}_ms": percentile(took, part) for part in (0.5, 0.95, 0.99)}
    return Figures(values | {"insert_us": statistics.median(inserts)})


async def _call(told: dict[str, object], folder: Path) -> list[float]:
    """Milliseconds of each, in ascending order."""
    client = Part("client", told, folder)
    try:
        await client.line()
        found = await client.found()
    finally:
        await asyncio.to_thread(client.stop)
    return sorted(took / 1000 for took in found["took_us"]["call_of_the_frontend"])
