"""The SQS queues of an installation: found or made when they are first needed, and again when they are gone."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import structlog

from duly_core.lambdas.names import QueueKey
from duly_core.queues.settings import QueueSettings
from duly_core.queues.sqs.boto import LONGEST_POLL
from duly_core.queues.sqs.client import NoQueueError, OtherAttributesError, SqsClient
from duly_core.queues.sqs.names import queue_name

log = structlog.get_logger()

Use = Callable[[str], Awaitable[dict[str, Any]]]
"""A call that is given a queue's URL."""


def whole_seconds(duration: timedelta) -> int:
    """A duration as SQS takes it: seconds, rounded up."""
    return math.ceil(duration.total_seconds())


class SqsQueues:
    """URLs of queues, remembered."""

    def __init__(self, client: SqsClient, settings: QueueSettings) -> None:
        self._client = client
        self._prefix = settings.prefix
        self._attributes = {
            "VisibilityTimeout": str(whole_seconds(settings.visibility)),
            "MessageRetentionPeriod": str(whole_seconds(settings.retention)),
            "ReceiveMessageWaitTimeSeconds": str(LONGEST_POLL),
        }
        self._urls: dict[QueueKey, str] = {}
        self._making: defaultdict[QueueKey, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def use(self, queue: QueueKey, call: Use) -> dict[str, Any]:
        """Call with the queue's URL; when somebody deleted the queue, make it and call once more.

        Raises:
            QueueUnavailableError: SQS did not answer, or refused.
        """
        try:
            return await call(await self._made(queue))
        except NoQueueError:
            self._urls.pop(queue, None)
            return await call(await self._made(queue))

    async def look(self, queue: QueueKey, call: Use) -> dict[str, Any] | None:
        """Call with the queue's URL if the queue exists; None if it does not.

        Raises:
            QueueUnavailableError: SQS did not answer, or refused.
        """
        try:
            return await call(await self._found(queue))
        except NoQueueError:
            self._urls.pop(queue, None)
            return None

    async def _found(self, queue: QueueKey) -> str:
        if queue not in self._urls:
            name = queue_name(self._prefix, queue)
            self._urls[queue] = (await self._client.call("get_queue_url", QueueName=name))["QueueUrl"]
        return self._urls[queue]

    async def _made(self, queue: QueueKey) -> str:
        async with self._making[queue]:  # many batches for a new queue make it once
            if queue not in self._urls:
                self._urls[queue] = await self._make(queue)
            return self._urls[queue]

    async def _make(self, queue: QueueKey) -> str:
        name = queue_name(self._prefix, queue)
        try:
            made = await self._client.call("create_queue", QueueName=name, Attributes=self._attributes)
        except OtherAttributesError:  # the settings have changed since it was made
            url: str = (await self._client.call("get_queue_url", QueueName=name))["QueueUrl"]
            await self._client.call("set_queue_attributes", QueueUrl=url, Attributes=self._attributes)
            return url
        log.debug("queue ready", queue=str(queue), name=name)
        return str(made["QueueUrl"])
