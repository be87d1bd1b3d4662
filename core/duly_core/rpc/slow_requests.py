"""Ends calls whose requests do not arrive: a caller that sends half of one would hold its memory for ever."""

import asyncio
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

import grpc

_LOOKS = 4
"""Within the time that a request may take."""


class HalfSentRequests:
    """The unary calls that began and were not read yet."""

    def __init__(self, longest: timedelta) -> None:
        """Make one: a request may take `longest` from its metadata to its last byte."""
        self._longest = longest.total_seconds()
        self._began: dict[Any, float] = {}
        """By context; the oldest first, as a dict keeps its order."""
        self._watch: asyncio.Task[None] | None = None

    async def read(self, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """Return the request of a call as bytes; ends the call if it has none."""
        self._began[context] = time.monotonic()
        try:
            data = await context.read()
        finally:
            self._began.pop(context, None)
        if data is grpc.aio.EOF:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request")
        return data

    def start(self) -> None:
        """Begin to look."""
        self._watch = asyncio.get_running_loop().create_task(self._look())

    def stop(self) -> None:
        """Look no more."""
        if self._watch is not None:
            self._watch.cancel()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._longest / _LOOKS)
            before = time.monotonic() - self._longest
            for context, began in list(self._began.items()):
                if began > before:
                    break
                # AbortError: it was ended, or ended by itself meanwhile
                with suppress(Exception):
                    await context.abort(
                        grpc.StatusCode.DEADLINE_EXCEEDED,
                        f"the request did not arrive completely within {self._longest:g} s (rpc.request_timeout)",
                    )
