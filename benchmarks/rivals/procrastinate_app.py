"""procrastinate: the task, a worker (`python -m benchmarks.rivals.procrastinate_app`), and the submitter."""

import asyncio
import os
from datetime import UTC, datetime

import procrastinate
import uvloop

from benchmarks.marks import mark, payload_of

_CONCURRENCY = 8

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=os.environ["DULY_BENCH_DSN"], min_size=1, max_size=20)
)


@app.task(name="noop")
async def noop(payload: str) -> None:
    mark(payload)


class Submitter:
    """Through the async API."""

    callers = 16
    bulk = 1000
    bulk_takes_times = False

    async def open(self) -> None:
        await app.open_async()

    async def install(self) -> None:
        await app.schema_manager.apply_schema_async()

    async def one(self, number: int, due_at: float | None = None) -> None:
        await noop.configure(schedule_at=_time(due_at)).defer_async(payload=payload_of(number).decode())

    async def many(self, numbers: range, due_at: list[float] | None = None) -> None:
        due = due_at[0] if due_at else None
        if due_at and set(due_at) != {due}:  # its bulk call takes one time for all
            message = "procrastinate schedules in bulk for one instant only"
            raise ValueError(message)
        task = noop.configure(schedule_at=_time(due))
        for first in range(numbers.start, numbers.stop, self.bulk):
            part = range(first, min(first + self.bulk, numbers.stop))
            await task.batch_defer_async(*({"payload": payload_of(number).decode()} for number in part))

    async def left(self) -> int:
        row = await app.connector.execute_query_one_async("select count(*) as jobs from procrastinate_jobs")
        return int(row["jobs"])

    async def close(self) -> None:
        await app.close_async()


def _time(at: float | None) -> datetime | None:
    return datetime.fromtimestamp(at, UTC) if at is not None else None


async def work() -> None:
    async with app.open_async():
        await app.run_worker_async(
            concurrency=_CONCURRENCY, fetch_job_polling_interval=0.1, delete_jobs="always", listen_notify=True
        )


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())
