"""Events that tasks wait for: the client of a task sends one, and the run itself if the traffic ended before that."""

import asyncio
from collections.abc import Collection, Iterable
from contextlib import suppress

from duly_wire.v1 import events_pb2, task_pb2
from tests.chaos.calls import Calls
from tests.chaos.kinds import EVENT_KEY

_WITHIN_S = 5.0


def sent_to(task_ids: Iterable[str]) -> events_pb2.SendEventsRequest:
    """Return the request with the event of each task, which is the same each time."""
    return events_pb2.SendEventsRequest(
        events=[
            events_pb2.NewEvent(
                key=EVENT_KEY.format(task_id),
                value=b'"sent"',
                value_encoding=task_pb2.ENCODING_JSON,
                event_id="1",
            )
            for task_id in task_ids
        ]
    )


class LateEvents:
    """Sends the events of tasks whose client is gone: it never had an answer to the task, or to its event."""

    def __init__(self, calls: Calls, told: Collection[str]) -> None:
        """Make them; `told`: tasks whose event was acknowledged, which must not need another."""
        self._calls = calls
        self._told = told

    async def send(self, waiting: Iterable[str]) -> None:
        """Send them to those of these tasks; what is not answered soon is left to the next time."""
        late = [task_id for task_id in waiting if task_id not in self._told]
        if late:
            with suppress(TimeoutError):
                async with asyncio.timeout(_WITHIN_S):
                    await self._calls.call("SendEvents", sent_to(late), "events")
