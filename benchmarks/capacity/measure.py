"""Measures one load: CPU of each process, and what Postgres wrote."""

import asyncio
import os
import re
import statistics
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import psycopg

from benchmarks.calibration import calibrate
from benchmarks.capacity.cases import Case
from benchmarks.cpu import ended_seconds_by_process, scheduled_seconds_by_process
from benchmarks.duly_system import Duly, RunningDuly, Shape
from duly_local.options import FRONTEND, HSC

PROCESSES = ("postgres", "frontend", "store consumer", "hsc", "controller", "executor", "callbacks")
"""Whose CPU the model has; the client's and moto's are left out."""
_GIVE_UP = 60.0
_MANY, _SHORTER = 200, 2 / 3
"""Tasks a second of which there are enough in a shorter time."""
_TAIL = 0.4
"""Seconds in which the ends of the last tasks are written."""
_WARM = 0.7
_HELD_SETTLE = 2.0
_HELD_SECONDS = 6.0
"""Two heartbeats of each task: their period is 3 s here."""
_CHUNK = 1_000
_CHUNKS = 4
_WALL_SECONDS = 1.5
_WRITERS = 8


_GROUPS = re.compile(r'^duly_(schedule|hsc)_group_size_count(?:\{rpc="(\w+)"\})? ([\d.e+]+)$', re.MULTILINE)
"""Statements of a Frontend that write tasks, and of an HSC by RPC."""


class Reading(NamedTuple):
    """What has been used so far."""

    cpu: Counter[str]
    ended: Counter[str]
    groups: Counter[str]
    wal: int
    transactions: int
    at: float


class Store:
    """Postgres's own counters, on a connection of the bench."""

    def __init__(self, dsn: str, metrics: Sequence[str]) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._metrics = metrics

    def read(self) -> Reading:
        """Return what has been used so far."""
        row = self._connection.execute(
            "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn, pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
        ).fetchone()
        wal, transactions = row or (0, 0)
        root = os.getpid()
        cpu, ended = scheduled_seconds_by_process(root), ended_seconds_by_process(root)
        return Reading(cpu, ended, self._groups(), int(wal), int(transactions), time.monotonic())

    def _groups(self) -> Counter[str]:
        """Return how many statements there were, by RPC; those of a Frontend under `schedule`."""
        found: Counter[str] = Counter()
        for address in self._metrics:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
                text = answer.read().decode()
            for of, rpc, count in _GROUPS.findall(text):
                found["schedule" if of == "schedule" else rpc] += int(float(count))
        return found

    def settled_bytes(self) -> dict[str, int]:
        """Return the bytes of each table with its indexes and large values, after a vacuum; partitions together."""
        for table in ("task", "task_assoc"):
            self._connection.execute(f"vacuum (analyze) {table}")
        found: Counter[str] = Counter()
        for name, size in self._connection.execute(
            "select coalesce(parent.relname, own.relname), pg_total_relation_size(own.oid) from pg_class own "
            "left join pg_inherits on inhrelid = own.oid left join pg_class parent on parent.oid = inhparent "
            "where own.relkind = 'r' and own.relnamespace not in "
            "('pg_catalog'::regnamespace, 'information_schema'::regnamespace)"
        ):
            found[str(name)] += int(size)
        return dict(found)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Stack(NamedTuple):
    """An installation that is measured."""

    running: RunningDuly
    store: Store
    folder: Path


@asynccontextmanager
async def stack(queue: Literal["store", "sqs"], slots: int = 32) -> AsyncIterator[Stack]:
    """Start each service as a process of its own, with one host; stop them."""
    with tempfile.TemporaryDirectory(prefix="duly-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        duly = Duly(Shape(slots=slots, queue=queue, separate=True))
        async with duly.running(folder) as running:
            await running.start_workers()
            await running.warm_up(duly.processes)
            metrics = [running.stack.ports.metrics_address(name) for name in (FRONTEND, HSC)]
            store = Store(running.stack.dsn, metrics)
            try:
                yield Stack(running, store, folder)
            finally:
                store.close()


async def load(here: Stack, case: Case, seconds: float) -> dict[str, Any]:
    """Run a load for so long; return what it cost for each task."""
    await _steady(here, case, max(1, int(case.rate * _WARM)))
    await here.running.settled(_GIVE_UP)
    tasks = int(case.rate * (seconds if case.rate < _MANY else seconds * _SHORTER))
    before = here.store.read()
    sent_in = await _steady(here, case, tasks)
    await asyncio.sleep(_TAIL)
    after = here.store.read()
    await here.running.settled(_GIVE_UP)
    return {
        "case": case.name,
        "tasks": tasks,
        "rate": tasks / sent_in,
        "seconds": after.at - before.at,
        **_used(before, after, tasks),
        "calibration": calibrate(here.folder),
    }


async def _steady(here: Stack, case: Case, tasks: int) -> float:
    """Run so many; seconds that sending them took."""
    first = here.running.numbers(tasks)
    call = [first, tasks, case.rate, case.call]
    answer = await here.running.driver.ask("call", method="steady", arguments=call)
    if case.runs:
        await here.running.started(range(first, first + tasks), _GIVE_UP)
    return float(answer["returned"]["seconds"])


async def idle(here: Stack, seconds: float) -> dict[str, Any]:
    """Return CPU seconds a second, and bytes of WAL a second, with nothing to do and one host."""
    await asyncio.sleep(2.0)
    before = here.store.read()
    await asyncio.sleep(seconds)
    after = here.store.read()
    return _used(before, after, after.at - before.at, scale=1.0)


async def kept(here: Stack, payload: int) -> dict[str, Any]:
    """Run tasks to their ends in bulk; return what the store grows by for each, once it reuses what a vacuum frees."""
    case = Case("kept", 1e6, each=500, payload=payload)
    sizes, wal = [], []
    for _ in range(_CHUNKS):
        before = here.store.read().wal
        await _steady(here, case, _CHUNK)
        await here.running.settled(_GIVE_UP)
        wal.append((here.store.read().wal - before) / _CHUNK)
        sizes.append(here.store.settled_bytes())
    tasks = _CHUNK * (_CHUNKS - 1)
    grown = {name: (size - sizes[0].get(name, 0)) / tasks for name, size in sizes[-1].items()}
    return {
        "payload": payload,
        "tasks": tasks,
        "bytes_per_task": sum(grown.values()),
        "wal_bytes": statistics.median(wal),
        "by_table": {name: size for name, size in grown.items() if size >= 1},
    }


async def walls(here: Stack) -> dict[str, Any]:
    """Return how fast this Postgres writes, whatever Duly asks of it: WAL in bulk, and small commits side by side."""
    return await asyncio.to_thread(_walls, here.running.stack.dsn)


def _walls(dsn: str) -> dict[str, Any]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "create table wall as select decode(string_agg(md5(random()::text), ''), 'hex') as filler "
            "from generate_series(1, 2000) as number, generate_series(1, 60) group by number"
        )
        connection.execute("create table wall_copy (filler bytea)")
        began, bytes_before = time.monotonic(), _wal(connection)
        while time.monotonic() - began < _WALL_SECONDS:
            connection.execute("insert into wall_copy select filler from wall")
        bulk = (_wal(connection) - bytes_before) / (time.monotonic() - began)
    with ThreadPoolExecutor(_WRITERS) as writers:
        commits = sum(writers.map(_commit, [dsn] * _WRITERS)) / _WALL_SECONDS
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("drop table wall, wall_copy")
    return {"wal_bytes_per_s": bulk, "commits_per_s": commits, "writers": _WRITERS}


def _wal(connection: psycopg.Connection) -> int:
    row = connection.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    return int(row[0]) if row else 0


def _commit(dsn: str) -> int:
    """Return how many rows one writer commits, each by itself."""
    done = 0
    with psycopg.connect(dsn, autocommit=True) as connection:
        ends_at = time.monotonic() + _WALL_SECONDS
        while time.monotonic() < ends_at:
            connection.execute("insert into wall_copy values ('x')", prepare=True)
            done += 1
    return done


async def held(here: Stack, tasks: int) -> dict[str, Any]:
    """Return CPU seconds a second while so many tasks run: their heartbeats, and what is used anyway."""
    first = here.running.numbers(tasks)
    more = {"each": tasks, "callback": "bench.takes.10000ms"}
    await here.running.driver.ask("call", method="steady", arguments=[first, tasks, 1e6, more])
    await here.running.started(range(first, first + tasks), _GIVE_UP)
    await asyncio.sleep(_HELD_SETTLE)
    before = here.store.read()
    await asyncio.sleep(_HELD_SECONDS)
    after = here.store.read()
    await here.running.settled(_GIVE_UP)
    return {"running": tasks, **_used(before, after, after.at - before.at, scale=1.0)}


def _used(before: Reading, after: Reading, by: float, scale: float = 1e6) -> dict[str, Any]:
    """CPU, WAL and transactions, divided: us a task, or seconds a second."""
    cpu = {
        name: (after.cpu[name] - before.cpu[name] + after.ended[name] - before.ended[name]) / by * scale
        for name in PROCESSES
    }
    return {
        "cpu": cpu,
        "groups": {name: count / by for name, count in sorted((after.groups - before.groups).items())},
        "wal_bytes": (after.wal - before.wal) / by,
        "transactions": (after.transactions - before.transactions) / by,
    }
