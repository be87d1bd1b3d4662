"""Wakes receives that wait for a message in Postgres.

One connection of the process hears a notification for each send. Notifications may be lost
(pgbouncer, a broken connection), and none tells that a message's visibility ended; so the same
connection also looks once a second, for all waiting queues together. While it is broken, each try
to make it anew wakes everybody, to look for themselves.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from duly_core.connecting import hung_up_after
from duly_core.queues import events
from duly_core.queues.postgres_connection import reason_of
from duly_core.queues.postgres_notification import queues_of
from duly_core.queues.postgres_statements import LISTEN, READY
from duly_core.routing import Priority, QueueKey

_LOOK_INTERVAL: Final = 1.0
_LOOK_WAIT: Final = timedelta(seconds=8)
_FIRST_BACKOFF: Final = 0.1
_LONGEST_BACKOFF: Final = 2.0
_CLOSE_WAIT: Final = 0.3

Connect = Callable[[], Awaitable[AsyncConnection[TupleRow]]]


@dataclass(slots=True, eq=False)
class Watch:
    """What is known of one queue."""

    woken: asyncio.Event = field(default_factory=asyncio.Event)
    """Set: it may hold a message that nobody has looked for."""
    emptied_at: float = float("-inf")
    """When somebody took all that there was, on the loop's clock."""
    waiting: int = 0


class Wakeups:
    """What the receives of one process know of their queues, and the task that tells them."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._watches: dict[QueueKey, Watch] = {}
        self.hears = False
        """Whether what is sent will be told: not while the connection is away."""
        self._task = asyncio.create_task(self._run(), name="duly-queue-wakeups")

    @contextmanager
    def of(self, queue: QueueKey) -> Iterator[Watch]:
        """Lend what is known of a queue to one that waits for its messages; nobody is told of others."""
        watch = self._watches.setdefault(queue, Watch())
        watch.waiting += 1
        try:
            yield watch
        finally:
            watch.waiting -= 1

    async def close(self) -> None:
        """Stop, and wake everybody a last time."""
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=_CLOSE_WAIT)
        self._wake(self._watches)

    async def _run(self) -> None:
        backoff, lost = _FIRST_BACKOFF, False
        while True:
            try:
                async with await self._connect() as connection:
                    await connection.execute(LISTEN)
                    if lost:
                        events.listener_back()
                    backoff, lost, self.hears = _FIRST_BACKOFF, False, True
                    self._wake(self._watches)  # what was sent before we listened
                    await self._listen(connection)
            except Exception as error:  # noqa: BLE001 (whatever it was: without this loop, receives wait in vain)
                if not lost:
                    events.listener_lost(reason_of(error))
                lost = True
            self.hears = False
            self._wake(self._watches)
            await asyncio.sleep(random.uniform(backoff / 2, backoff))  # noqa: S311 (jitter is no secret)
            backoff = min(backoff * 2, _LONGEST_BACKOFF)

    async def _listen(self, connection: AsyncConnection[TupleRow]) -> None:
        """Hear and look, in turns, until the connection breaks."""
        while True:
            async for heard in connection.notifies(timeout=_LOOK_INTERVAL):
                self._wake(queues_of(heard.payload) or self._watches)
            await self._look(connection)

    async def _look(self, connection: AsyncConnection[TupleRow]) -> None:
        """Wake those whose queue holds a visible message, whether or not we heard of it."""
        waiting = [queue for queue, watch in self._watches.items() if watch.waiting]
        if not waiting:
            return
        parameters = {
            "lambdas": [queue.lambda_name for queue in waiting],
            "priorities": [int(queue.priority) for queue in waiting],
        }
        with hung_up_after(connection, _LOOK_WAIT):
            cursor = await connection.execute(READY, parameters, prepare=True, binary=True)
            rows = await cursor.fetchall()
        self._wake(QueueKey(lambda_name, Priority(priority)) for lambda_name, priority in rows)

    def _wake(self, queues: Iterable[QueueKey]) -> None:
        for queue in queues:
            if queue in self._watches:
                self._watches[queue].woken.set()
