"""Duly's submitter: the SDK's async client."""

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

import duly
from benchmarks.marks import DIGITS, payload_of
from benchmarks.noop import LAMBDAS

SIZE = "DULY_BENCH_PAYLOAD"
"""Bytes of each payload."""
JSON = "DULY_BENCH_JSON"
"""Whether payloads are JSON that the callback's signature says, and not raw bytes."""

_LOOKUPS = "-c enable_seqscan=off -c plan_cache_mode=force_custom_plan"

# What is under way, or will be within the hour: what waits for another day is not to run. Every live task has its
# row in task_assoc, until its end is stored.
_LEFT = """
select (
    select count(*) from task_assoc where status in ('enqueued', 'claimed', 'processing')
) + (
    select count(*) from lambda cross join generate_series(1, 4) as priority cross join lateral (
        select from task_assoc as assoc
        where assoc.lambda = lambda.name and assoc.priority = priority
            and assoc.status in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= now() + interval '1 hour'
        limit 1
    ) as waiting
)
"""


class Submitter:
    """Single calls are sent together by the client as they come."""

    callers = 16
    bulk = 1000
    bulk_takes_times = True

    async def open(self) -> None:
        self._lambdas = int(os.environ.get(LAMBDAS, "0"))
        self._json = JSON in os.environ
        self._size = int(os.environ.get(SIZE, "100"))
        self._client = duly.AsyncClient(os.environ["DULY_BENCH_FRONTEND"])
        await self._client.open()
        self._store = await connect_to_count()

    async def one(self, number: int, due_at: float | None = None) -> None:
        name, priority = self._queue(number)
        await self._client.schedule(name, self._payload(number), priority=priority, at=_time(due_at))

    async def many(self, numbers: range, due_at: list[float] | None = None) -> None:
        due = map(_time, due_at or [None] * len(numbers))
        await self._client.schedule_many(
            duly.NewTask(name, self._payload(number), priority, at=at)
            for number, at in zip(numbers, due, strict=True)
            for name, priority in [self._queue(number)]
        )

    async def left(self) -> int:
        return await left_in(self._store)

    async def tidy(self) -> None:
        """What a store that has had its load for a while has had: a vacuum, statistics, and a checkpoint."""
        await self._store.execute("vacuum (analyze) task_assoc")
        await self._store.execute("vacuum (analyze) task")
        await self._store.execute("checkpoint")

    async def mix(
        self, first: int, seconds: float, rates: dict[str, float]
    ) -> dict[str, list[tuple[int, int]]]:
        """Tasks of several lambdas, each at its rate a second; (number, nanoseconds of the call) by lambda."""
        called: dict[str, list[tuple[int, int]]] = {name: [] for name in rates}
        numbers = iter(range(first, first + 10**7))
        ends_at = time.monotonic() + seconds

        async def keep(name: str, every: float) -> None:
            while time.monotonic() < ends_at:
                number = next(numbers)
                called[name].append((number, time.time_ns()))
                await self._client.schedule(name, payload_of(number))
                await asyncio.sleep(every)

        await asyncio.gather(*(keep(name, 1 / rate) for name, rate in rates.items()))
        return called

    async def steady(self, first: int, tasks: int, rate: float, more: dict[str, Any]) -> dict[str, float]:
        """Calls at fixed instants, whether or not earlier ones have their answers; see `_Steady`."""
        steady = _Steady(first, tasks, rate, **more)
        async with AsyncExitStack() as opened:
            address = os.environ["DULY_BENCH_FRONTEND"]
            clients = [
                await opened.enter_async_context(duly.AsyncClient(address)) for _ in range(steady.clients)
            ]
            if steady.resources:
                await clients[0].put_resource("bench", 1_000, per_key=True)
            began = time.monotonic()
            await steady.send(clients)
            return {"seconds": time.monotonic() - began}

    async def close(self) -> None:
        await self._store.close()
        await self._client.close()

    def _payload(self, number: int) -> object:
        """Bytes as they are, or what becomes as many bytes of JSON."""
        return json_of(number, self._size) if self._json else payload_of(number, self._size)

    def _queue(self, number: int) -> tuple[str, duly.Priority]:
        if not self._lambdas:
            return "bench.json" if self._json else "bench.noop", duly.Priority.NORMAL
        return f"bench.many.{number % self._lambdas}", duly.Priority(1 + number // self._lambdas % 4)


@dataclass(frozen=True, slots=True)
class _Steady:
    """So many tasks a second."""

    first: int
    tasks: int
    rate: float
    clients: int = 16
    """Each with a connection of its own, in turns: the calls of one client would be sent together."""
    each: int = 1
    """Tasks of a call."""
    payload: int = 100
    """Bytes, random behind the number: Postgres would compress others."""
    later: bool = False
    """Whether each is due 2 to 3 s after its call."""
    runs: bool = True
    """Else each is due a day later."""
    sessions: int = 0
    """Tasks of a session; 0: of none."""
    resources: bool = False
    """Whether each takes a unit of one of 1,000 keys."""
    callback: str = "bench.noop"

    async def send(self, clients: Sequence[duly.AsyncClient]) -> None:
        began, padding = time.monotonic(), os.urandom(max(0, self.payload - DIGITS))
        calls = set()
        for place, start in enumerate(range(0, self.tasks, self.each)):
            await asyncio.sleep(max(0.0, began + start / self.rate - time.monotonic()))
            numbers = range(self.first + start, self.first + min(start + self.each, self.tasks))
            client = clients[place % len(clients)]
            calls.add(asyncio.ensure_future(client.schedule_many([self._task(n, padding) for n in numbers])))
        await asyncio.gather(*calls)

    def _task(self, number: int, padding: bytes) -> duly.NewTask:
        ahead = timedelta(seconds=2 + number % 100 / 100, days=0 if self.runs else 1)
        return duly.NewTask(
            self.callback,
            b"%0*d" % (DIGITS, number) + padding,
            at=datetime.now(UTC) + ahead if self.later or not self.runs else None,
            session=f"bench-{number // self.sessions}" if self.sessions else None,
            resources=[duly.ResourceNeed("bench", str(number % 1_000))] if self.resources else (),
        )


def json_of(number: int, size: int) -> dict[str, object]:
    """What becomes so many bytes of JSON."""
    return {"number": number, "padding": "x" * (size - len(f'{{"number":{number},"padding":""}}'))}


async def connect_to_count() -> psycopg.AsyncConnection:
    """A connection for `left_in`."""
    dsn = os.environ["DULY_BENCH_DSN"]
    return await psycopg.AsyncConnection.connect(dsn, autocommit=True, options=_LOOKUPS)


async def left_in(store: psycopg.AsyncConnection) -> int:
    """How many tasks are still to run."""
    cursor = await store.execute(_LEFT)
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


def _time(at: float | None) -> datetime | None:
    return datetime.fromtimestamp(at, UTC) if at is not None else None
