"""A client that watches all that happens: it goes on from its position whatever is killed, and sometimes from an earlier one."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from random import Random

from duly_core.process.clock import since_boot_ns
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import task_pb2, watches_pb2
from tests.chaos.calls import Calls
from tests.chaos.history import Told, WatchStretch

_WAIT = timedelta(seconds=1)
_KEEP_FOR = timedelta(hours=1)
"""Longer than any jump of the clock."""
_ONE_IN_REWOUND, _MOST_REWOUND = 8, 60
"""Calls that go on from so many events before, as a client does that was killed before it saved its position."""
_QUIET_CALLS = 2
"""So many without an event, after all has ended, and the stream is at its end."""
_KINDS = {
    watches_pb2.TASK_EVENT_KIND_RUN_ENDED: "run",
    watches_pb2.TASK_EVENT_KIND_TASK_ENDED: "task",
    watches_pb2.TASK_EVENT_KIND_GRAPH_FINISHED: "graph",
}


class Watcher:
    """Starts, and stops when all has ended."""

    def __init__(self, calls: Calls, random: Random) -> None:
        self._calls = calls
        self._random = random
        self._stopped_ns = 0
        self._stretches: list[WatchStretch] = []
        self._told: list[Told] = []
        self._loop: asyncio.Task[None] | None = None
        self.problems: list[str] = []
        """What it was told again, and not as before; errors that must not be."""

    def start(self) -> None:
        self._loop = asyncio.create_task(self._watch())

    async def stop(self, within: timedelta) -> None:
        """Read to the end, and stop.

        Raises:
            TimeoutError: there is no end.
        """
        self._stopped_ns = since_boot_ns()
        if self._loop is not None:
            await asyncio.wait_for(self._loop, within.total_seconds())
        await self._calls.close()

    def stretches(self) -> tuple[WatchStretch, ...]:
        return tuple(self._stretches)

    def told(self) -> tuple[Told, ...]:
        return tuple(self._told)

    async def _watch(self) -> None:
        while not self._stopped_ns:
            request = watches_pb2.WatchRequest(
                watch_id=self._random.randbytes(16), keep_for=to_duration(_KEEP_FOR)
            )
            answer, _ = await self._calls.call("Watch", request, "watches")
            stretch = WatchStretch(len(self._stretches), since_boot_ns(), since_boot_ns())
            if answer.error.code == task_pb2.ERROR_CODE_WATCH_LOST:  # an earlier try had begun it
                self._stretches.append(replace(stretch, lost=answer.error.message))
                continue
            if answer.HasField("error"):
                self.problems.append(f"no watch begins: {answer.error.message}")
                return
            lost = await self._follow(stretch.number, answer.position)
            until_ns = since_boot_ns() if lost else self._stopped_ns
            self._stretches.append(replace(stretch, until_ns=until_ns, lost=lost))

    async def _follow(self, number: int, beginning: str) -> str:
        """Read on until the run is over; return why it cannot."""
        positions, told = [beginning], list[Told]()
        place = quiet = 0
        request = watches_pb2.WatchRequest(
            after=beginning, keep_for=to_duration(_KEEP_FOR), wait=to_duration(_WAIT)
        )
        while quiet < _QUIET_CALLS:
            if self._random.randrange(_ONE_IN_REWOUND) == 0:
                place = max(0, len(told) - self._random.randint(1, _MOST_REWOUND))
                request.after = positions[place]
            answer, _ = await self._calls.call("Watch", request, "watches")
            if answer.error.code == task_pb2.ERROR_CODE_WATCH_LOST:
                self._told += told
                return str(answer.error.message)
            if answer.HasField("error"):
                self.problems.append(f"the watch does not go on: {answer.error.message}")
                self._told += told
                return ""
            for event in answer.events:
                seen = _told(number, event)
                if place == len(told):
                    told.append(seen)
                    positions.append(event.position)
                elif told[place] != seen:
                    self.problems.append(f"event {place} of watch {number} was {told[place]}, and is {seen}")
                place += 1
            request.after = answer.position
            over = self._stopped_ns and not answer.events and place == len(told)
            quiet = quiet + 1 if over else 0
        self._told += told
        return ""


def _told(number: int, event: watches_pb2.TaskEvent) -> Told:
    status = (
        task_pb2.TaskStatus.Name(event.status).removeprefix("TASK_STATUS_").lower() if event.status else ""
    )
    return Told(number, _KINDS[event.kind], event.task_id, event.graph_id, status, event.run)
