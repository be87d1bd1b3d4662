"""The Controller's side of SQS: one thread for each long poll, ten receipts a call."""

import asyncio
import contextlib
import functools
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import structlog

from duly_core.errors import QueueUnavailableError
from duly_core.lambdas.names import QueueKey
from duly_core.queues.message import ForeignBodyError, unpack
from duly_core.queues.port import Received
from duly_core.queues.settings import QueueSettings
from duly_core.queues.sqs.batches import ENTRIES, NotDone, call_in_batches
from duly_core.queues.sqs.boto import LONGEST_POLL
from duly_core.queues.sqs.client import ClosedError, SqsClient
from duly_core.queues.sqs.names import check_prefix
from duly_core.queues.sqs.queues import SqsQueues, whole_seconds

log = structlog.get_logger()


class SqsReceiver:
    """A `QueueReceiver` over SQS; makes each queue when it is first listened to."""

    def __init__(self, client: SqsClient, settings: QueueSettings) -> None:
        self.client = client
        self._queues = SqsQueues(client, settings)
        self._visibility = whole_seconds(settings.visibility)
        self._closed = False
        self._forsaken: set[asyncio.Future[None]] = set()
        """Polls whose callers were cancelled; their threads go on, and may still receive."""

    @classmethod
    async def open(cls, settings: QueueSettings) -> "SqsReceiver":
        """Prepare; nothing is called yet.

        Raises:
            SettingsError: prefix, endpoint or region are unusable.
        """
        check_prefix(settings.prefix)
        return cls(await SqsClient.open(settings), settings)

    async def receive(self, queue: QueueKey, max_messages: int, wait: timedelta) -> list[Received]:
        """Long poll one queue for up to ten messages; SQS waits whole seconds, rounded up here, and 20 at most.

        When the caller is cancelled, what comes all the same is given back.

        Raises:
            QueueUnavailableError: SQS did not answer, or refused; or the receiver was closed before.
        """
        if self._closed:
            raise ClosedError
        polling = asyncio.ensure_future(self._poll(queue, max_messages, wait))
        try:
            return await asyncio.shield(polling)
        except asyncio.CancelledError:
            giving_back = asyncio.ensure_future(self._give_back_what_comes(polling))
            self._forsaken.add(giving_back)
            giving_back.add_done_callback(self._forsaken.discard)
            raise

    async def _poll(self, queue: QueueKey, max_messages: int, wait: timedelta) -> list[Received]:
        seconds = min(whole_seconds(wait), LONGEST_POLL)

        async def poll(url: str) -> dict[str, Any]:
            return await self.client.poll(
                QueueUrl=url,
                MaxNumberOfMessages=min(max_messages, ENTRIES),
                WaitTimeSeconds=seconds,
                VisibilityTimeout=self._visibility,
            )

        try:
            answer = await self._queues.use(queue, poll)
        except ClosedError:
            return []
        return await self._ours(queue, answer.get("Messages", ()))

    async def delete(self, messages: Sequence[Received]) -> None:
        """Delete for good; after a redelivery SQS may or may not delete by an old receipt, which is harmless."""
        not_done = await self._for_each("delete_message_batch", messages, {})
        if not_done:
            log.warning("messages not deleted", messages=len(not_done), reason=not_done[0].reason)

    async def give_back(self, messages: Sequence[Received]) -> None:
        """Make visible at once."""
        not_done = await self._for_each("change_message_visibility_batch", messages, {"VisibilityTimeout": 0})
        if not_done:
            log.warning("messages not given back", messages=len(not_done), reason=not_done[0].reason)

    async def close(self) -> None:
        """Let go of connections and of waiting receives at once; idempotent."""
        self._closed = True
        self.client.close()

    async def _give_back_what_comes(self, polling: "asyncio.Future[list[Received]]") -> None:
        with contextlib.suppress(QueueUnavailableError):  # then there is nothing to give back
            await self.give_back(await polling)

    async def _ours(self, queue: QueueKey, messages: Sequence[dict[str, Any]]) -> list[Received]:
        """Keep the messages that we wrote, and delete the others."""
        ours, foreign = [], []
        for message in messages:
            receipt = message["ReceiptHandle"]
            try:
                ours.append(Received(queue, unpack(message["Body"]), receipt))
            except ForeignBodyError as error:
                foreign.append(Received(queue, (), receipt))
                log.warning(
                    "foreign message dropped",
                    queue=str(queue),
                    message_id=message["MessageId"],
                    reason=str(error),
                )
        await self.delete(foreign)
        return ours

    async def _for_each(
        self, method: str, messages: Sequence[Received], change: dict[str, Any]
    ) -> list[NotDone]:
        """Call a batch method on messages of any queues."""
        by_queue: defaultdict[QueueKey, list[dict[str, Any]]] = defaultdict(list)
        for message in messages:
            by_queue[message.queue].append({"ReceiptHandle": message.receipt, **change})
        outcomes = await asyncio.gather(
            *(
                call_in_batches(self.client, method, entries, functools.partial(self._queues.look, queue))
                for queue, entries in by_queue.items()
            )
        )
        return [not_done for outcome in outcomes for not_done in outcome]
