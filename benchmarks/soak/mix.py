"""What a soak schedules: a fixed mix of kinds, the same in every hundred tasks."""

import random
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta

import duly
from benchmarks.soak.tally import Tally

SHARES = {
    "plain": 40,
    "keyed": 10,
    "delayed": 14,
    "session": 10,
    "resource": 10,
    "graph": 8,
    "fails once": 4,
    "cancelled": 3,
    "dead letter": 1,
}
"""Percent of all tasks."""
NODES = 4
"""Of each graph; every node is a task."""
RESOURCE = "soak.database"
TENANT = "soak.tenant"
CAPACITY = 2

_SESSIONS = 20
_LONGEST_DELAY_S = 30
_FAR = timedelta(seconds=60)
"""Due time of what is cancelled before."""


def kinds() -> Iterator[str]:
    """Yield kinds without end, in a fixed order; a graph counts as `NODES` tasks."""
    cycle = [
        kind for kind, share in SHARES.items() for _ in range(share // (NODES if kind == "graph" else 1))
    ]
    random.Random(1).shuffle(cycle)
    while True:
        yield from cycle


class Mix:
    """Schedules one item of a kind, and keeps the tally of it."""

    def __init__(self, client: duly.AsyncClient, tally: Tally, *, delays: bool = True) -> None:
        self._client = client
        self._tally = tally
        self._delays = delays
        self._kinds: dict[str, Callable[[int], Awaitable[str]]] = {
            "plain": self._plain,
            "keyed": self._keyed,
            "delayed": self._delayed,
            "session": self._session,
            "resource": self._resource,
            "graph": self._graph,
            "fails once": self._fails_once,
            "cancelled": self._cancelled,
            "dead letter": self._dead_letter,
        }

    async def declare(self) -> None:
        """Declare the resources that tasks name."""
        await self._client.put_resource(RESOURCE, CAPACITY)
        await self._client.put_resource(TENANT, CAPACITY, per_key=True)

    async def schedule(self, kind: str, number: int) -> str:
        """Schedule the task `number`; for a graph also the `NODES` - 1 next numbers. Returns the id of one task."""
        return await self._kinds[kind](number)

    async def _plain(self, number: int) -> str:
        task = await self._client.schedule("soak.plain", {"number": number, "due_at": time.time()})
        self._tally.expect(number)
        return task.task_id

    async def _keyed(self, number: int) -> str:
        payload = {"number": number, "due_at": time.time()}
        task = await self._client.schedule(
            "soak.plain", payload, idempotency_key=f"soak-{number}", priority=duly.Priority.HIGH
        )
        self._tally.expect(number)
        return task.task_id

    async def _delayed(self, number: int) -> str:
        delay = 1 + number % _LONGEST_DELAY_S if self._delays else 0
        payload = {"number": number, "due_at": time.time() + delay}
        task = await self._client.schedule(
            "soak.plain", payload, delay=timedelta(seconds=delay), collection=f"soak-{number // 1000}"
        )
        self._tally.expect(number)
        return task.task_id

    async def _session(self, number: int) -> str:
        # Half of the keys are new ones: rows of sessions come and go.
        key = f"soak-{number if number % 2 else number % _SESSIONS}"
        task = await self._client.schedule("soak.busy", {"number": number}, session=key)
        self._tally.expect(number)
        return task.task_id

    async def _resource(self, number: int) -> str:
        needs = (duly.ResourceNeed(RESOURCE), duly.ResourceNeed(TENANT, key=f"tenant-{number // 50}"))
        task = await self._client.schedule("soak.busy", {"number": number}, resources=needs)
        self._tally.expect(number)
        return task.task_id

    async def _graph(self, number: int) -> str:
        async with self._client.graph("soak") as graph:
            first = graph.task("soak.plain", {"number": number}, label="first")
            middle = [
                graph.task("soak.plain", {"number": number + more}, label=f"middle-{more}", after=first)
                for more in range(1, NODES - 1)
            ]
            graph.task("soak.plain", {"number": number + NODES - 1}, label="last", after=middle)
        for each in range(number, number + NODES):
            self._tally.expect(each)
        return first.task_id

    async def _fails_once(self, number: int) -> str:
        task = await self._client.schedule("soak.fails-once", {"number": number})
        self._tally.expect(number)
        return task.task_id

    async def _cancelled(self, number: int) -> str:
        task = await self._client.schedule("soak.plain", {"number": number}, delay=_FAR)
        self._tally.expect(number)
        if await self._client.cancel(task) is duly.TaskStatus.CANCELLED:
            self._tally.cancelled(number)
        return task.task_id

    async def _dead_letter(self, number: int) -> str:
        task = await self._client.schedule("soak.dies", {"number": number}, priority=duly.Priority.LOW)
        self._tally.expect(number)
        return task.task_id
