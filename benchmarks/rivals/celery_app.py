"""Celery on Redis: the application (workers are `celery -A benchmarks.rivals.celery_app worker`) and the submitter."""

import os
from datetime import UTC, datetime

import celery
import redis

from benchmarks.marks import mark, payload_of

_URL = os.environ["DULY_BENCH_REDIS"]

app = celery.Celery("bench", broker=_URL)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=64,
    worker_send_task_events=False,
    broker_transport_options={"visibility_timeout": 3600},
    broker_connection_retry_on_startup=True,
)


@app.task(name="noop")
def noop(payload: str) -> None:
    mark(payload)


class Submitter:
    """One call at a time: its API blocks, and threads only get into one another's way."""

    callers = 1
    bulk = 0
    bulk_takes_times = False

    async def open(self) -> None:
        self._redis = redis.Redis.from_url(_URL)

    async def install(self) -> None:
        pass

    async def one(self, number: int, due_at: float | None = None) -> None:
        eta = datetime.fromtimestamp(due_at, UTC) if due_at is not None else None
        noop.apply_async((payload_of(number).decode(),), eta=eta)

    async def many(self, numbers: range, due_at: list[float] | None = None) -> None:
        raise NotImplementedError

    async def left(self) -> int:
        return int(self._redis.llen("celery")) + int(self._redis.hlen("unacked"))

    async def close(self) -> None:
        self._redis.close()
