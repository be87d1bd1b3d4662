"""The Store Consumer's side of SQS: ten messages a call, and an honest answer about each."""

import asyncio
import functools
from collections import defaultdict
from collections.abc import Sequence

import structlog

from duly_core.lambdas.names import QueueKey
from duly_core.queues.message import pack
from duly_core.queues.port import Outgoing
from duly_core.queues.settings import QueueSettings
from duly_core.queues.sqs.batches import NotDone, call_in_batches
from duly_core.queues.sqs.client import SqsClient
from duly_core.queues.sqs.depth import FRESH, DepthGauge
from duly_core.queues.sqs.names import check_prefix
from duly_core.queues.sqs.queues import SqsQueues

log = structlog.get_logger()


class SqsSender:
    """A `QueueSender` over SQS; makes each queue when it is first sent to."""

    depth_age = FRESH

    def __init__(self, client: SqsClient, settings: QueueSettings) -> None:
        self.client = client
        self._queues = SqsQueues(client, settings)
        self._gauge = DepthGauge(client, self._queues)

    @classmethod
    async def open(cls, settings: QueueSettings) -> "SqsSender":
        """Prepare; nothing is called yet.

        Raises:
            SettingsError: prefix, endpoint or region are unusable.
        """
        check_prefix(settings.prefix)
        return cls(await SqsClient.open(settings), settings)

    async def send(self, messages: Sequence[Outgoing]) -> list[Outgoing]:
        """Send, all queues at once; answer what SQS refused, and what it did not speak of in time.

        Raises:
            QueueUnavailableError: no call was answered.
        """
        by_queue: defaultdict[QueueKey, list[Outgoing]] = defaultdict(list)
        for message in messages:
            by_queue[message.queue].append(message)
        outcomes = await asyncio.gather(*(self._send(queue, batch) for queue, batch in by_queue.items()))
        not_sent = [
            (by_queue[queue][each.position], each)
            for queue, outcome in zip(by_queue, outcomes, strict=True)
            for each in outcome
        ]
        errors = [each.error for _, each in not_sent if each.error]
        if messages and len(errors) == len(messages):
            raise errors[0]
        return [message for message, _ in not_sent]

    async def depth(self, queues: Sequence[QueueKey]) -> dict[QueueKey, int]:
        """About how many references each queue holds: see `sqs_depth` for how rough that is.

        Raises:
            QueueUnavailableError: no queue answered.
        """
        return await self._gauge.depth(queues)

    async def close(self) -> None:
        """Let go of connections; idempotent."""
        self.client.close()

    async def _send(self, queue: QueueKey, messages: Sequence[Outgoing]) -> list[NotDone]:
        entries = [{"MessageBody": pack(message.task_ids)} for message in messages]
        with_url = functools.partial(self._queues.use, queue)
        not_sent = await call_in_batches(self.client, "send_message_batch", entries, with_url)
        if not_sent:
            log.warning(
                "messages not sent", queue=str(queue), messages=len(not_sent), reason=not_sent[0].reason
            )
        kept_back = {each.position for each in not_sent}
        sent = [len(m.task_ids) for position, m in enumerate(messages) if position not in kept_back]
        if sent:
            self._gauge.sent(queue, sent)
        return not_sent
