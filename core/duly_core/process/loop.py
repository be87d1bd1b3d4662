"""The one shape of every loop: do a round, wait for the time or a wake-up, survive a bad round."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

import structlog

from duly_core.errors import (
    BlobsUnavailableError,
    QueueUnavailableError,
    StoreRefusedError,
    StoreUnavailableError,
)

log = structlog.get_logger()

LONGEST_BACKOFF = timedelta(seconds=5)


async def wait_for(event: asyncio.Event, timeout: timedelta) -> bool:
    """Wait until the event is set, at most this long; True if it was."""
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, timeout.total_seconds())):
            await event.wait()
    return event.is_set()


def backoff(failures: int, longest: timedelta = LONGEST_BACKOFF) -> timedelta:
    """How long to wait after this many failures in a row: exponential from 50 ms, half of it random."""
    limit: timedelta = min(longest, timedelta(milliseconds=50) * (1 << min(failures, 10)))
    return limit * random.uniform(0.5, 1)  # noqa: S311 (spreads load; no secret)


def worth_logging(failures: int) -> bool:
    """Whether to log this one of many failures in a row: the first, the second, the fourth, the eighth ..."""
    return failures & (failures - 1) == 0


async def repeat(
    name: str, run_once: Callable[[], Awaitable[timedelta]], stop: asyncio.Event, wake: asyncio.Event
) -> None:
    """Run rounds until `stop`; each answers how long to wait before the next, `wake` cuts that short.

    A round that fails because the store or the queue is away is tried again after a backoff. So is any
    other failure, with its traceback in the log: one bad round must never end the service that promises
    to come back to every task.
    """
    failures = 0
    while not stop.is_set():
        wake.clear()
        try:
            pause = await run_once()
            if failures:
                log.info("works again", loop=name, after_failures=failures)
            failures = 0
        except (StoreUnavailableError, QueueUnavailableError, BlobsUnavailableError) as error:
            failures += 1
            pause = backoff(failures)
            if worth_logging(failures):
                tell = log.error if isinstance(error, StoreRefusedError) else log.warning
                tell("round failed", loop=name, failures=failures, reason=str(error))
        except Exception:
            # whatever it was: a loop that ends would leave a process that lives and does nothing
            failures += 1
            pause = backoff(failures)
            log.exception("round failed unexpectedly", loop=name, failures=failures)
        await wait_for_either(stop, wake, pause)


async def wait_for_either(stop: asyncio.Event, wake: asyncio.Event, pause: timedelta) -> None:
    """Wait until one of the events is set, at most this long."""
    if pause <= timedelta():
        await asyncio.sleep(0)
        return
    waits = [asyncio.ensure_future(event.wait()) for event in (stop, wake)]
    try:
        await asyncio.wait(waits, timeout=pause.total_seconds(), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiting in waits:
            waiting.cancel()
