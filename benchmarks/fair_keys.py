"""`python -m benchmarks.fair_keys`: what turns by fair key cost, and how long a key waits beside a flood.

Each kind of load has a database of its own, and the kinds take turns, so that a machine that drifts hits all alike. The CPU is that
of Postgres's processes that serve the calls, counted to the nanosecond. A load is written, claimed and ended in groups.
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import json
import os
import statistics
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.arguments import in_range, new_file
from benchmarks.machine import machine
from benchmarks.store.__main__ import database
from benchmarks.tables import rows
from duly_core.fairness.cursors import TurnCursors
from duly_core.lambdas import store as lambdas
from duly_core.lambdas.names import QueueKey
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.results.store import set_results
from duly_core.tasks import claims, schedule
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.task import TOKEN_PREFIX_BYTES, ClaimedTask, NewTask, Result
from duly_local.postgres.embedded import EmbeddedPostgres
from duly_wire.enums import Outcome, Priority
from duly_wire.ids import new_task_id

LAMBDA = "bench.fair"
QUEUE = QueueKey(LAMBDA, Priority.NORMAL)
KEYS = 1_000
STEPS = ("schedule", "claim", "end")
_LEASE = LambdaPolicy(LAMBDA).max_runtime
_PIDS = (
    b"select pid from pg_stat_activity where datname = current_database() and backend_type = 'client backend'"
)
Answer = TypeVar("Answer")
KINDS: dict[str, Callable[[int], str | None]] = {
    "plain, without the index of keys": lambda _: None,
    "plain": lambda _: None,
    "one key": lambda _: "flood",
    "10 keys": lambda number: f"key-{number % 10}",
    f"{KEYS:,} keys": lambda number: f"key-{number % KEYS:04}",
}
"""The fair key of the n-th task of each kind of load."""


class Load:
    """One kind of load on a database of its own."""

    def __init__(self, store: Store, key: Callable[[int], str | None], group: int) -> None:
        self._store, self._key, self._group = store, key, group
        self._fair = {} if key(0) is None else {LAMBDA: False}
        self._cursors = TurnCursors()
        self._keys: dict[bytes, str | None] = {}
        self._pids: list[int] = []
        """Postgres's processes that serve the store."""
        self.spent: Counter[str] = Counter()

    async def prepare(self, *, without_index: bool) -> None:
        """Register the lambda."""
        await lambdas.register(self._store, [LambdaPolicy(LAMBDA)])
        if without_index:
            async with self._store.connection() as connection:
                await connection.execute(b"drop index task_assoc_fair")

    async def write(self, keys: list[str | None]) -> None:
        """Schedule tasks with these keys."""
        for first in range(0, len(keys), self._group):
            new = [
                NewTask(new_task_id().bytes, LAMBDA, b"x" * 100, fair_key=key)
                for key in keys[first : first + self._group]
            ]
            self._keys |= {task.task_id: task.fair_key for task in new}
            await self._counted("schedule", schedule.schedule(self._store, new))

    async def claim(self) -> list[ClaimedTask]:
        """Claim a group."""
        work = claims.claim_work(
            self._store,
            [Pick(QUEUE, self._group, 0)],
            [Caller("bench", os.urandom(TOKEN_PREFIX_BYTES))],
            self._group,
            _LEASE,
            fair=self._fair,
            cursors=self._cursors,
        )
        return (await self._counted("claim", work)).tasks

    async def end(self, tasks: list[ClaimedTask]) -> None:
        """End what was claimed."""
        results = [Result(task.task_id, task.token, Outcome.SUCCESS) for task in tasks]
        await self._counted("end", set_results(self._store, results))

    async def round(self, tasks: int) -> dict[str, float]:
        """Write, claim and end so many tasks; return microseconds of Postgres's CPU for a task, by step."""
        async with self._store.connection() as connection:
            await connection.execute(b"vacuum (analyze) task_assoc")
            found = await (await connection.execute(_PIDS)).fetchall()
        self._pids = [pid for (pid,) in found]
        self.spent.clear()
        await self.write([self._key(number) for number in range(tasks)])
        left = tasks
        while left:
            claimed = await self.claim()
            await self.end(claimed)
            left -= len(claimed)
        return {step: self.spent[step] / tasks / 1_000 for step in STEPS}

    async def wait_beside_flood(self, tasks: int) -> int:
        """Return how many tasks start until each of 999 keys had one, that come after a flood of another key."""
        await self.write(["flood"] * tasks)
        await self.write([f"key-{number:04}" for number in range(KEYS - 1)])
        started, waiting = 0, set(range(KEYS - 1))
        while waiting:
            claimed = await self.claim()
            await self.end(claimed)
            started += len(claimed)
            waiting -= {
                int(key[4:]) for task in claimed if (key := self._keys[task.task_id] or "flood") != "flood"
            }
        while claimed := await self.claim():
            await self.end(claimed)
        return started

    async def _counted(self, step: str, call: Awaitable[Answer]) -> Answer:
        before = self._nanoseconds()
        answer = await call
        self.spent[step] += self._nanoseconds() - before
        return answer

    def _nanoseconds(self) -> int:
        return sum(
            int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) for pid in self._pids
        )


async def measure(dsns: dict[str, str], options: argparse.Namespace) -> dict[str, Any]:
    """Let the kinds of load take turns."""
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    async with AsyncExitStack() as stack:
        loads = {}
        for kind, dsn in dsns.items():
            store = await stack.enter_async_context(Store(StoreSettings(dsn=dsn, connections=2)))
            loads[kind] = Load(store, KINDS[kind], options.group)
            await loads[kind].prepare(without_index="without" in kind)
        for number in range(options.rounds + 1):
            for kind, load in loads.items():
                spent = await load.round(options.tasks)
                if number:  # the first warms up
                    found[kind].append(spent)
        waited = await loads["one key"].wait_beside_flood(options.tasks)
    return {"machine": machine(), "us": found, "started_until_each_key_had_one": waited}


def table(measured: dict[str, Any]) -> str:
    """For people: medians, and each kind against plain tasks."""
    of = {
        kind: {step: statistics.median(each[step] for each in spent) for step in STEPS}
        | {"all": statistics.median(sum(each.values()) for each in spent)}
        for kind, spent in measured["us"].items()
    }
    body = [
        [
            kind,
            *(f"{spent[step]:.1f}" for step in (*STEPS, "all")),
            f"{spent['all'] / of['plain']['all']:.2f}",
        ]
        for kind, spent in of.items()
    ]
    head = ["us of Postgres's CPU a task", *STEPS, "all", "of plain"]
    return f"{rows(head, body)}\n\n{KEYS - 1} keys beside a flood: each had a task after {measured['started_until_each_key_had_one']:,} starts"


def main() -> None:
    """Measure, print, and write what was measured if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=in_range(1_000, 1_000_000), default=20_000, help="of a round")
    parser.add_argument("--group", type=in_range(1, 1_000), default=100, help="tasks of a call")
    parser.add_argument("--rounds", type=in_range(1, 100), default=5)
    parser.add_argument("--json", type=new_file)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        postgres = stack.enter_context(EmbeddedPostgres(Path(folder) / "postgres"))
        dsns = {kind: stack.enter_context(database(postgres.dsn)) for kind in KINDS}
        measured = asyncio.run(measure(dsns, options))
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1), encoding="utf-8")
    print(table(measured))


if __name__ == "__main__":
    main()
