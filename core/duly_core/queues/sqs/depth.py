"""About how deep the SQS queues are.

SQS counts messages, not references, and its count settles up to a minute late. We multiply it by
the references a message carries on average, learnt from what this process sends, and add what this
process sent since the last answer. Good enough to bound a queue, and no more.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import structlog

from duly_core.errors import QueueUnavailableError
from duly_core.lambdas.names import QueueKey
from duly_core.queues.port import FULL
from duly_core.queues.sqs.client import SqsClient
from duly_core.queues.sqs.queues import SqsQueues

log = structlog.get_logger()

FRESH: Final = timedelta(milliseconds=250)
"""How long an answer holds."""

_WEIGHT: Final = 0.2
"""Of the newest send in the average of references a message carries."""

_ATTRIBUTES: Final = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")


@dataclass(slots=True)
class _Queue:
    references_per_message: float | None = None
    depth: int = 0
    fresh_until: float = 0.0


class DepthGauge:
    """What is known of each queue's depth."""

    def __init__(self, client: SqsClient, queues: SqsQueues) -> None:
        self._client = client
        self._queues = queues
        self._known: dict[QueueKey, _Queue] = {}

    def sent(self, queue: QueueKey, references: Sequence[int]) -> None:
        """Learn that messages with so many references each were sent."""
        known = self._known.setdefault(queue, _Queue())
        mean = sum(references) / len(references)
        before = known.references_per_message or mean
        known.references_per_message = before + _WEIGHT * (mean - before)
        known.depth += sum(references)

    async def depth(self, queues: Iterable[QueueKey]) -> dict[QueueKey, int]:
        """About how many references each queue holds; FULL for one that does not tell.

        Raises:
            QueueUnavailableError: none of those that were asked answered.
        """
        now = asyncio.get_running_loop().time()
        depths = {queue: self._known.setdefault(queue, _Queue()) for queue in queues}
        stale = [queue for queue, known in depths.items() if known.fresh_until <= now]
        failures = [failure for failure in await asyncio.gather(*map(self._refresh, stale)) if failure]
        if failures and len(failures) == len(depths):
            raise failures[0]
        return {queue: known.depth for queue, known in depths.items()}

    async def _refresh(self, queue: QueueKey) -> QueueUnavailableError | None:
        """Ask for one queue's depth; answer why it is not known."""
        known = self._known[queue]
        try:
            counted = await self._count(queue)
        except QueueUnavailableError as error:
            log.warning("queue depth unknown", queue=str(queue), reason=str(error))
            known.depth = FULL
            return error
        known.depth = round(counted * (known.references_per_message or 1))
        known.fresh_until = asyncio.get_running_loop().time() + FRESH.total_seconds()
        return None

    async def _count(self, queue: QueueKey) -> int:
        """Count the messages, hidden ones too; none if there is no such queue."""

        async def ask(url: str) -> dict[str, Any]:
            return await self._client.call(
                "get_queue_attributes", QueueUrl=url, AttributeNames=list(_ATTRIBUTES)
            )

        answer = await self._queues.look(queue, ask)
        return sum(int(answer["Attributes"][name]) for name in _ATTRIBUTES) if answer else 0
