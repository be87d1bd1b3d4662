"""pgqueuer: a worker (`python -m benchmarks.rivals.pgqueuer_app`), and the submitter."""

import asyncio
import os
import signal
import time
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import AsyncpgPoolDriver, PgQueuer
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.marks import mark, payload_of

_BATCH = 500


class Submitter:
    """Through asyncpg, on a pool of one connection a caller."""

    callers = 16
    bulk = 1000
    bulk_takes_times = True

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(
            os.environ["DULY_BENCH_DSN"], min_size=1, max_size=self.callers
        )
        self._queries = Queries(AsyncpgPoolDriver(self._pool))

    async def install(self) -> None:
        await self._queries.install()  # durable: all of its tables are logged ones

    async def one(self, number: int, due_at: float | None = None) -> None:
        after = timedelta(seconds=max(0.0, due_at - time.time())) if due_at is not None else None
        await self._queries.enqueue("noop", payload_of(number), 0, after)

    async def many(self, numbers: range, due_at: list[float] | None = None) -> None:
        for first in range(numbers.start, numbers.stop, self.bulk):
            part = range(first, min(first + self.bulk, numbers.stop))
            after = None
            if due_at:
                now = time.time()
                due = due_at[first - numbers.start :][: len(part)]
                after = [timedelta(seconds=max(0.0, at - now)) for at in due]
            payloads = [payload_of(number) for number in part]
            await self._queries.enqueue(["noop"] * len(part), payloads, [0] * len(part), after)

    async def left(self) -> int:
        return int(await self._pool.fetchval("select count(*) from pgqueuer"))

    async def close(self) -> None:
        await self._pool.close()


async def work() -> None:
    pool = await asyncpg.create_pool(os.environ["DULY_BENCH_DSN"], min_size=2, max_size=10)
    worker = PgQueuer(AsyncpgPoolDriver(pool))

    @worker.entrypoint("noop")
    async def noop(job: Job) -> None:
        mark(job.payload or b"")

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.shutdown.set)
    await worker.run(dequeue_timeout=timedelta(seconds=0.1), batch_size=_BATCH)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())
