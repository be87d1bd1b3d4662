"""The Controller's side of the Postgres queue: long polls, and receipts that a redelivery makes void."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from psycopg.rows import TupleRow

from duly_core.errors import QueueUnavailableError
from duly_core.queues import events
from duly_core.queues.closed import ClosedError
from duly_core.queues.message import ForeignBodyError, unpack
from duly_core.queues.port import Received
from duly_core.queues.postgres_link import PostgresLink
from duly_core.queues.postgres_notification import notification
from duly_core.queues.postgres_statements import DELETE, GIVE_BACK, RECEIVE
from duly_core.queues.postgres_wakeups import Wakeups, Watch
from duly_core.routing import QueueKey

_CLOSE_WAIT: Final = 0.5
_BELIEVED: Final = timedelta(seconds=1)
"""So long a queue counts as empty unless something is told of it: who waits hears within that time of what was not."""


class PostgresReceiver:
    """A `QueueReceiver` over the table `queue_message`."""

    def __init__(self, link: PostgresLink, visibility: timedelta) -> None:
        self._link = link
        self._visibility = visibility
        self._wakeups = Wakeups(link.connect)
        self._forsaken: set[asyncio.Task[None]] = set()
        """They give back what came to a receive that nobody waits for any more."""
        self._closed = False

    @classmethod
    async def open(cls, dsn: str, visibility: timedelta) -> "PostgresReceiver":
        """Begin to connect, without waiting for it.

        Raises:
            SettingsError: the DSN cannot be read.
        """
        link = PostgresLink(dsn)
        await link.open()
        return cls(link, visibility)

    async def receive(self, queue: QueueKey, max_messages: int, wait: timedelta) -> list[Received]:
        """Long poll one queue, the oldest message first.

        When the caller is cancelled, what comes all the same is given back.

        Raises:
            QueueUnavailableError: Postgres did not answer, or refused; or the receiver was closed before.
        """
        if self._closed:
            raise ClosedError
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait.total_seconds()
        with self._wakeups.of(queue) as watch:
            # who has just taken all that there was need not look for more: what comes is told
            looks = not self._wakeups.hears or watch.woken.is_set() or wait < _BELIEVED
            looks = looks or loop.time() - watch.emptied_at > _BELIEVED.total_seconds()
            while not self._closed:
                if looks:
                    try:
                        rows = await self._look(watch, queue, max_messages)
                    except ClosedError:
                        break
                    if received := await self._ours(queue, rows):
                        return received
                    if rows:
                        continue  # none was ours, and there may be one behind them
                try:
                    async with asyncio.timeout_at(deadline):
                        await watch.woken.wait()
                except TimeoutError:
                    break
                looks = True
        return []

    async def _look(self, watch: Watch, queue: QueueKey, max_messages: int) -> list[TupleRow]:
        """Take what there is, and remember whether it was all."""
        watch.woken.clear()
        taking = asyncio.ensure_future(self._take(queue, max_messages))
        try:
            rows = await asyncio.shield(taking)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                giving_back = asyncio.ensure_future(self._give_back_what_comes(queue, taking))
                self._forsaken.add(giving_back)
                giving_back.add_done_callback(self._forsaken.discard)
            watch.woken.set()
            raise
        if len(rows) == max_messages:
            watch.woken.set()
        elif not watch.woken.is_set():
            watch.emptied_at = asyncio.get_running_loop().time()
        return rows

    async def _give_back_what_comes(self, queue: QueueKey, taking: asyncio.Future[list[TupleRow]]) -> None:
        with suppress(QueueUnavailableError, ClosedError):
            await self.give_back(await self._ours(queue, await taking))

    async def delete(self, messages: Sequence[Received]) -> None:
        """Delete for good, in one statement, those that were not delivered again since."""
        if not messages:
            return
        try:
            await self._link.run(DELETE, _receipts(messages), prepare=False)
        except QueueUnavailableError as error:
            events.messages_not_deleted(len(messages), str(error))

    async def give_back(self, messages: Sequence[Received]) -> None:
        """Make visible at once, in one statement, those that were not delivered again since."""
        if not messages:
            return
        queues = notification(message.queue for message in messages)
        try:
            await self._link.run(GIVE_BACK, {**_receipts(messages), "queues": queues}, prepare=False)
        except QueueUnavailableError as error:
            events.messages_not_given_back(len(messages), str(error))

    async def close(self) -> None:
        """Let go of connections and of waiting receives, within a second; idempotent."""
        self._closed = True
        await self._wakeups.close()
        if self._forsaken:
            await asyncio.wait(set(self._forsaken), timeout=_CLOSE_WAIT)
        await self._link.close()

    async def _take(self, queue: QueueKey, max_messages: int) -> list[TupleRow]:
        return await self._link.run(
            RECEIVE,
            {
                "lambda": queue.lambda_name,
                "priority": int(queue.priority),
                "max_messages": max_messages,
                "visibility": self._visibility,
            },
        )

    async def _ours(self, queue: QueueKey, rows: list[TupleRow]) -> list[Received]:
        """Keep the messages that we wrote, oldest first, and delete the others."""
        ours, foreign = [], []
        for message_id, visible_at, body in sorted(rows):
            receipt = f"{message_id} {visible_at.isoformat()}"
            try:
                ours.append(Received(queue, unpack(body), receipt))
            except ForeignBodyError as error:
                foreign.append(Received(queue, (), receipt))
                events.foreign_message_dropped(queue, str(message_id), str(error))
        await self.delete(foreign)
        return ours


def _receipts(messages: Sequence[Received]) -> dict[str, object]:
    """The receipts as parameters of a statement."""
    receipts = [message.receipt.split(" ") for message in messages]
    return {
        "message_ids": [int(message_id) for message_id, _ in receipts],
        "visible_ats": [datetime.fromisoformat(visible_at) for _, visible_at in receipts],
    }
