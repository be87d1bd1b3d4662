"""dramatiq on Redis: the actor (workers are `dramatiq benchmarks.rivals.dramatiq_app`) and the submitter."""

import os
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.marks import mark, payload_of

broker = RedisBroker(url=os.environ["DULY_BENCH_REDIS"])
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(payload: str) -> None:
    mark(payload)


class Submitter:
    """One call at a time: its API blocks, and threads only get into one another's way."""

    callers = 1
    bulk = 0
    bulk_takes_times = False

    async def open(self) -> None:
        pass

    async def install(self) -> None:
        pass

    async def one(self, number: int, due_at: float | None = None) -> None:
        delay = max(0, round((due_at - time.time()) * 1000)) if due_at is not None else None
        noop.send_with_options(args=(payload_of(number).decode(),), delay=delay)

    async def many(self, numbers: range, due_at: list[float] | None = None) -> None:
        raise NotImplementedError

    async def left(self) -> int:
        # messages that are queued, or held by a worker until they are acknowledged
        return sum(int(broker.client.hlen(f"dramatiq:{queue}.msgs")) for queue in ("default", "default.DQ"))

    async def close(self) -> None:
        broker.close()
