"""Call until there is a definite answer: an RPC that is idempotent under its caller's key is simply sent again."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import grpc

from duly_core.process.loop import backoff
from duly_wire.connection_advice import advice
from duly_wire.retry_info import pause_of

Answer = TypeVar("Answer")

TRANSIENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.CANCELLED,
    }
)
"""Statuses that leave the outcome open, or may pass; all others are definite."""

_LONGEST_PAUSE = timedelta(seconds=1)


def describe_status(error: grpc.aio.AioRpcError) -> str:
    """Return a status in a line, and what to do if TLS is the reason."""
    details = error.details() or ""
    remedy = advice(details)
    return f"{error.code().name}: {details}" + (f"; {remedy}" if remedy else "")


def is_overloaded(error: grpc.aio.AioRpcError) -> bool:
    """Tell whether the server has too much to do: the same request is served later."""
    return pause_of(error) is not None


async def until_definite(
    call: Callable[[float], Awaitable[Answer]],
    *,
    within: timedelta,
    attempt_timeout: timedelta,
    definite: frozenset[grpc.StatusCode] = frozenset(),
) -> Answer:
    """Send `call` (given its deadline in seconds) until it is answered, at the longest for `within` in all.

    An overloaded server says how long to wait before the next try.

    Args: `definite` are statuses that this caller takes for an answer, transient though they may be for others. That of
    an overloaded server is not one of them.

    Raises:
        grpc.aio.AioRpcError: a definite refusal, or the last transient one when the time was over.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + within.total_seconds()
    failures = 0
    while True:
        left = end - loop.time()
        try:
            return await call(max(0.001, min(left, attempt_timeout.total_seconds())))
        except grpc.aio.AioRpcError as error:
            failures += 1
            pause = backoff(failures, _LONGEST_PAUSE).total_seconds()
            now, told = loop.time(), pause_of(error)
            if told is not None:  # half of the time that is left at most: a last try follows
                pause = min(max(pause, told), max(pause, (end - now) / 2))
            is_transient = told is not None or error.code() in TRANSIENT - definite
            if not is_transient or now + pause >= end:
                raise
        await asyncio.sleep(pause)
