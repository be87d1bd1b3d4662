"""Duly's other submitter: `duly.transactional` on a connection in autocommit mode, as a program that shares Duly's Postgres."""

import os
from datetime import UTC, datetime

import psycopg

from benchmarks.duly_submitter import connect_to_count, json_of, left_in
from duly import transactional

_SIZE = 100


class Submitter:
    """One blocking call at a time; each is a transaction."""

    callers = 1
    bulk = 0
    bulk_takes_times = True

    async def open(self) -> None:
        self._connection = psycopg.connect(os.environ["DULY_BENCH_DSN"], autocommit=True)
        self._store = await connect_to_count()

    async def one(self, number: int, due_at: float | None = None) -> None:
        at = datetime.fromtimestamp(due_at, UTC) if due_at is not None else None
        transactional.schedule(self._connection, "bench.json", json_of(number, _SIZE), at=at)

    async def many(self, numbers: range, due_at: list[float] | None = None) -> None:
        raise NotImplementedError

    async def left(self) -> int:
        return await left_in(self._store)

    async def close(self) -> None:
        await self._store.close()
        self._connection.close()
