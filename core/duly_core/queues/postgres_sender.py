"""The Store Consumer's side of the Postgres queue: many messages a statement."""

from collections.abc import Sequence
from datetime import timedelta

from duly_core.queues.message import pack
from duly_core.queues.port import Outgoing
from duly_core.queues.postgres_link import PostgresLink
from duly_core.queues.postgres_notification import notification
from duly_core.queues.postgres_statements import DEPTH, SEND
from duly_core.routing import Priority, QueueKey


class PostgresSender:
    """A `QueueSender` over the table `queue_message`."""

    depth_age = timedelta(milliseconds=10)  # each answer is a new one; a statement is not free

    def __init__(self, link: PostgresLink) -> None:
        self._link = link

    @classmethod
    async def open(cls, dsn: str) -> "PostgresSender":
        """Begin to connect, without waiting for it.

        Raises:
            SettingsError: the DSN cannot be read.
        """
        link = PostgresLink(dsn)
        await link.open()
        return cls(link)

    async def send(self, messages: Sequence[Outgoing]) -> list[Outgoing]:
        """Send all in one statement: all are sent or, by the error, none is known to be.

        Raises:
            QueueUnavailableError: Postgres did not answer, or refused.
        """
        if messages:
            await self._link.run(
                SEND,
                {
                    "lambdas": [message.queue.lambda_name for message in messages],
                    "priorities": [int(message.queue.priority) for message in messages],
                    "counts": [len(message.task_ids) for message in messages],
                    "bodies": [pack(message.task_ids) for message in messages],
                    "queues": notification(message.queue for message in messages),
                },
            )
        return []

    async def depth(self, queues: Sequence[QueueKey]) -> dict[QueueKey, int]:
        """Count the references in each queue, exactly.

        Raises:
            QueueUnavailableError: Postgres did not answer, or refused.
        """
        depths = dict.fromkeys(queues, 0)
        if depths:
            rows = await self._link.run(
                DEPTH,
                {
                    "lambdas": [queue.lambda_name for queue in depths],
                    "priorities": [int(queue.priority) for queue in depths],
                },
            )
            for lambda_name, priority, references in rows:
                depths[QueueKey(lambda_name, Priority(priority))] = references
        return depths

    async def close(self) -> None:
        """Let go of the connections; idempotent."""
        await self._link.close()
