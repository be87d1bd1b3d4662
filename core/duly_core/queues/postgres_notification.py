"""What a Postgres notification says: which queues to look at."""

from collections.abc import Iterable
from typing import Final

from duly_core.routing import Priority, QueueKey

_PAYLOAD_LIMIT: Final = 7_900
"""Bytes; Postgres allows 8,000."""


def notification(queues: Iterable[QueueKey]) -> str:
    """Name the queues, or nothing when there are too many: it may be any of them."""
    payload = "\n".join(sorted({f"{queue.lambda_name}/{queue.priority:d}" for queue in queues}))
    return payload if len(payload) <= _PAYLOAD_LIMIT else ""


def queues_of(payload: str) -> set[QueueKey]:
    """Read what `notification` wrote; empty if it may be any queue, or somebody else wrote it."""
    queues = set()
    for line in payload.splitlines():
        lambda_name, _, priority = line.rpartition("/")
        try:
            queues.add(QueueKey(lambda_name, Priority(int(priority))))
        except ValueError:
            return set()
    return queues
