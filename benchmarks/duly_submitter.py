"""Duly's submitter: the SDK's async client."""

import os
from datetime import UTC, datetime

import psycopg

import duly
from benchmarks.marks import payload_of


class Submitter:
    """Single calls are sent together by the client as they come."""

    callers = 16
    bulk = 1000
    bulk_takes_times = True

    async def open(self) -> None:
        self._client = duly.AsyncClient(os.environ["DULY_BENCH_FRONTEND"])
        await self._client.open()
        self._store = await psycopg.AsyncConnection.connect(os.environ["DULY_BENCH_DSN"], autocommit=True)

    async def install(self) -> None:
        pass

    async def one(self, number: int, due_at: float | None = None) -> None:
        await self._client.schedule("bench.noop", payload_of(number), at=_time(due_at))

    async def many(self, numbers: range, due_at: list[float] | None = None) -> None:
        due = map(_time, due_at or [None] * len(numbers))
        await self._client.schedule_many(
            duly.NewTask("bench.noop", payload_of(number), at=at)
            for number, at in zip(numbers, due, strict=True)
        )

    async def left(self) -> int:
        # every task has its row here until it has ended
        cursor = await self._store.execute("select count(*) from task_assoc")
        row = await cursor.fetchone()
        return int(row[0]) if row else 0

    async def close(self) -> None:
        await self._store.close()
        await self._client.close()


def _time(at: float | None) -> datetime | None:
    return datetime.fromtimestamp(at, UTC) if at is not None else None
