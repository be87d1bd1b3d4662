"""The client of a soak: schedules at a steady rate, reads and cancels (run by benchmarks.driver)."""

import asyncio
import os
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

import duly
from benchmarks.soak.app import NOTES
from benchmarks.soak.mix import NODES, Mix, kinds
from benchmarks.soak.tally import Fate, Tally

_TICK = 0.02
_MOST_CALLS = 400
_READ_EVERY = 20
"""Tasks, of which one is read; one in five of those is waited for."""
_LIST_EVERY = 500
_WAIT_ONE_OF = 5
_WAIT = timedelta(seconds=2)
_CALIBRATED_AT_ONCE = 64


class Submitter:
    """Commands: `calibrate`, `start`, `sample`, `stop`."""

    callers, bulk, bulk_takes_times = 1, 0, False

    async def open(self) -> None:
        self._client = duly.AsyncClient(os.environ["DULY_BENCH_FRONTEND"])
        await self._client.open()
        self._store = await psycopg.AsyncConnection.connect(os.environ["DULY_BENCH_DSN"], autocommit=True)
        self._tally = Tally(Path(os.environ[NOTES]))
        self._mix = Mix(self._client, self._tally)
        self._next = 0
        self._errors: Counter[str] = Counter()
        self._held_back = 0
        self._calls: set[asyncio.Task[None]] = set()
        self._pacing: asyncio.Task[None] | None = None
        await self._mix.declare()

    async def one(self, number: int, due_at: float | None = None) -> None:
        raise NotImplementedError

    async def many(self, numbers: range, due_at: list[float] | None = None) -> None:
        raise NotImplementedError

    async def left(self) -> int:
        """How many tasks have not ended."""
        cursor = await self._store.execute("select count(*) from task_assoc")
        row = await cursor.fetchone()
        return int(row[0]) if row else 0

    async def calibrate(self, tasks: int) -> float:
        """Schedule the mix without delays as fast as the stack takes it; tasks a second, from the first call to the last end."""
        mix = Mix(self._client, self._tally, delays=False)
        began, first, kind = time.monotonic(), self._next, kinds()

        async def caller() -> None:
            while self._next < first + tasks:
                await self._schedule(mix, next(kind))

        await asyncio.gather(*(caller() for _ in range(_CALIBRATED_AT_ONCE)))
        while await self.left():  # noqa: ASYNC110 (the store is asked, nobody tells)
            await asyncio.sleep(_TICK)
        self._tally.read()
        self._tally.take_lateness()
        return (self._next - first) / (time.monotonic() - began)

    async def start(self, rate: float) -> None:
        """Begin to schedule so many tasks a second."""
        self._pacing = asyncio.create_task(self._pace(rate))

    async def sample(self) -> dict[str, Any]:
        """Return what happened so far, and the lateness since the last sample."""
        self._tally.read()
        return {
            "scheduled": self._next,
            "expected": self._tally.count(Fate.EXPECTED),
            "cancelled": self._tally.count(Fate.CANCELLED),
            "started": self._tally.count(Fate.STARTED),
            "started_again": self._tally.started_again,
            "started_though_cancelled": self._tally.started_though_cancelled,
            "held_back": self._held_back,
            "calls": len(self._calls),
            "lateness_ms": self._tally.take_lateness(),
            "errors": dict(self._errors),
            "missing": self._tally.missing(),
        }

    async def stop(self) -> None:
        """Stop scheduling, and wait for the calls that are under way."""
        if self._pacing is not None:
            self._pacing.cancel()
            await asyncio.gather(self._pacing, return_exceptions=True)
        await asyncio.gather(*self._calls)

    async def close(self) -> None:
        await self.stop()
        await self._store.close()
        await self._client.close()

    async def _pace(self, rate: float) -> None:
        began, first, kind = time.monotonic(), self._next, kinds()
        while True:
            due = (time.monotonic() - began) * rate
            while self._next - first < due:
                if len(self._calls) >= _MOST_CALLS:  # the stack does not keep up; the pace is not made up for
                    self._held_back += 1
                    began, first = time.monotonic(), self._next
                    break
                call = asyncio.create_task(self._schedule(self._mix, next(kind)))
                self._calls.add(call)
                call.add_done_callback(self._calls.discard)
                await asyncio.sleep(0)  # so that it takes its numbers
            await asyncio.sleep(_TICK)

    async def _schedule(self, mix: Mix, kind: str) -> None:
        number = self._next
        self._next += NODES if kind == "graph" else 1
        try:
            task_id = await mix.schedule(kind, number)
            if number % _READ_EVERY == 0:
                await self._read(task_id, number)
        except duly.DulyError as error:
            self._errors[f"{kind}: {type(error).__name__}"] += 1

    async def _read(self, task_id: str, number: int) -> None:
        if number % _LIST_EVERY == 0:
            async for page in self._client.list_pages(page_size=50):
                del page
                break
        if number % (_READ_EVERY * _WAIT_ONE_OF) == 0:
            try:
                await self._client.wait(task_id, _WAIT)
            except duly.WaitTimeoutError:
                pass  # it is a delayed one
        else:
            await self._client.get(task_id)
