"""Calls to SQS that take up to ten entries, and tell of each whether it was done."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from duly_core.errors import QueueUnavailableError
from duly_core.queues.sqs.client import SqsClient
from duly_core.queues.sqs.queues import Use

ENTRIES: Final = 10
"""SQS allows no more in one call; ten full messages are far from its limit on bytes (a unit test knows)."""


@dataclass(frozen=True, slots=True)
class NotDone:
    """An entry that was not, or perhaps not, done."""

    position: int
    """Its index in what was asked."""
    reason: str
    error: QueueUnavailableError | None
    """Set when it shares the fate of a whole call."""


async def call_in_batches(
    client: SqsClient,
    method: str,
    entries: Sequence[dict[str, Any]],
    with_url: Callable[[Use], Awaitable[dict[str, Any] | None]],
) -> list[NotDone]:
    """Call a batch method for all entries of one queue, ten at a time and at once; answer what was not done."""

    async def one(start: int) -> list[NotDone]:
        positions = range(start, min(start + ENTRIES, len(entries)))
        numbered = [{"Id": str(position), **entries[position]} for position in positions]
        try:
            answer = await with_url(lambda url: client.call(method, QueueUrl=url, Entries=numbered))
        except QueueUnavailableError as error:
            return [NotDone(position, str(error), error) for position in positions]
        if answer is None:  # there is no queue: nothing to do
            return []
        done = {entry["Id"] for entry in answer.get("Successful", ())}
        reasons = {entry["Id"]: entry.get("Code", "") for entry in answer.get("Failed", ())}
        return [
            NotDone(position, reasons.get(str(position), "SQS did not speak of it"), None)
            for position in positions
            if str(position) not in done
        ]

    outcomes = await asyncio.gather(*(one(start) for start in range(0, len(entries), ENTRIES)))
    return [not_done for outcome in outcomes for not_done in outcome]
