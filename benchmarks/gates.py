"""What gates cost: picks of many lambdas beside gates that hold none of their tasks, and parking what a gate holds.

python -m benchmarks.gates [--lambdas 500] [--rounds 5] [--parked 200000]

CPU of Postgres and of this process in ms a pick: with nothing due, with tasks due in each queue, and with all of these held and not parked.
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg

from benchmarks.arguments import in_range
from benchmarks.cpu import scheduled_seconds_by_process
from benchmarks.store.fill import fill_lambdas
from benchmarks.tables import rows, spread
from duly_core.gates.rules import Gate, GateScope, GateSet, Kind
from duly_core.gates.scans import GateScans
from duly_core.gates.store import NewGate, delete_gates, put_gate
from duly_core.gates.sweeps import release_parked, sweep
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.migrate import migrate
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.tasks.claims import Caller, Pick, claim_work
from duly_core.tasks.task import TOKEN_PREFIX_BYTES
from duly_local.postgres.embedded import EmbeddedPostgres
from duly_wire.enums import Priority

_NOTHING_DUE = "update task_assoc set next_trigger_at = now() + interval '1 d' where priority = 4 and next_trigger_at < now()"
_SALE = "sale"
_ONE_QUEUE = """
update task_assoc set lambda = 'sale', collection = 'sale', priority = 1, next_trigger_at = now() - interval '1 h'
where task_id in (select task_id from task_assoc where status = 'new' and next_trigger_at > now() limit %(tasks)s)
"""
_UNCLAIM = """
update task_assoc set status = 'new', next_trigger_at = due_at, token = null, holder = null, claimed_at = null
where status = 'claimed'
"""
_ALL_HELD = "tasks due, all held"
_GATES = (0, 1, 5, 20)
_PICKS = 20


def _gates(count: int, *, hold: bool) -> GateSet:
    """Return gates on a collection of each lambda: the last holds all tasks, or none as the others do."""
    now = datetime.now(UTC)
    return GateSet(
        Gate(
            number,
            f"gate-{number}",
            Kind.PAUSE,
            GateScope("*", "" if hold and number == count else f"none-{number}"),
            None,
            "",
            "",
            now,
            None,
        )
        for number in range(1, count + 1)
    )


async def _picks(store: Store, picks: list[Pick], gates: GateSet) -> tuple[float, float, float, int]:
    """Return ms of CPU of Postgres and of this process, and ms that it took, a pick; and how many tasks one found."""
    scans, found = GateScans(), 0
    caller = Caller("bench", os.urandom(TOKEN_PREFIX_BYTES))
    for _ in range(3):
        await claim_work(store, picks, [caller], 1, timedelta(minutes=5), gates, scans)
    before, started = scheduled_seconds_by_process(os.getpid()), time.perf_counter()
    for _ in range(_PICKS):
        caller = Caller("bench", os.urandom(TOKEN_PREFIX_BYTES))
        found += len(
            (await claim_work(store, picks, [caller], 100, timedelta(minutes=5), gates, scans)).tasks
        )
    passed, after = time.perf_counter() - started, scheduled_seconds_by_process(os.getpid())
    used = [(after[name] - before[name]) * 1000 / _PICKS for name in ("postgres", "bench")]
    return used[0], used[1], passed * 1000 / _PICKS, found // _PICKS


def _make_due_again(dsn: str) -> None:
    """Take back the claims of the last picks."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_UNCLAIM)
        connection.execute("vacuum task_assoc")


async def _measure(dsn: str, rounds: int) -> list[list[str]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_NOTHING_DUE)
        connection.execute("vacuum (analyze) task_assoc")
        names = [row[0] for row in connection.execute("select name from lambda order by name")]
    due = [Pick(QueueKey(name, Priority.HIGH), 100, 0) for name in names]
    cases = {
        "nothing due": [Pick(QueueKey(name, Priority.LOW), 100, 0) for name in names],
        "tasks due": due,
        _ALL_HELD: due,
    }
    found: dict[tuple[str, int], list[tuple[float, float, float, int]]] = {}
    async with Store(StoreSettings(dsn=dsn)) as store:
        for number in range(rounds):
            for case, picks in cases.items():
                for count in (*_GATES[number % len(_GATES) :], *_GATES[: number % len(_GATES)]):
                    if case == _ALL_HELD and not count:
                        continue
                    _make_due_again(dsn)
                    gates = _gates(count, hold=case == _ALL_HELD)
                    found.setdefault((case, count), []).append(await _picks(store, picks, gates))
    return [
        [
            case,
            f"{count}",
            *(spread([each[which] for each in of], 1) for which in range(3)),
            f"{statistics.median(each[3] for each in of)}",
        ]
        for (case, count), of in found.items()
    ]


async def _park(dsn: str, tasks: int) -> None:
    """Park due tasks of one queue on a gate, release them again, and print what each took."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_ONE_QUEUE, {"tasks": tasks})
        connection.execute("vacuum (analyze) task_assoc")
    async with Store(StoreSettings(dsn=dsn)) as store:
        scope = GateScope(_SALE, _SALE)
        asked = NewGate(_SALE, Kind.PAUSE, scope, None, "bench", "", None)
        done = await put_gate(store, _SALE, lambda _: asked)
        if done is None:
            raise SystemExit("the gate was refused")
        queues = [QueueKey(_SALE, Priority.URGENT)]

        async def park() -> int:
            return (await sweep(store, done.gate, queues, None)).tasks

        async def release() -> int:
            return sum((await release_parked(store))[0].values())

        await _until_none(f"park {tasks:,} tasks", park)
        await delete_gates(store, [_SALE])
        await _until_none("release them", release)


async def _until_none(name: str, step: Callable[[], Awaitable[int]]) -> None:
    before, started, done, longest = scheduled_seconds_by_process(os.getpid()), time.perf_counter(), 0, 0.0
    while True:
        began = time.perf_counter()
        if not (count := await step()):
            break
        done += count
        longest = max(longest, time.perf_counter() - began)
    passed, after = time.perf_counter() - started, scheduled_seconds_by_process(os.getpid())
    cpu = (after["postgres"] - before["postgres"]) * 1e6 / max(1, done)
    print(
        f"{name}: {done:,} in {passed:.1f} s, {cpu:.0f} us of Postgres's CPU each, longest batch {longest:.2f} s"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gates", description=__doc__)
    parser.add_argument("--lambdas", type=in_range(1, 10_000), default=500)
    parser.add_argument("--rounds", type=in_range(1, 100), default=5)
    parser.add_argument("--parked", type=in_range(1, 1_000_000), default=200_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="duly-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        with EmbeddedPostgres(folder / "postgres", settings={"fsync": "off"}) as postgres:
            migrate(postgres.dsn)
            fill_lambdas(postgres.dsn, options.lambdas, 2_000_000, 1_000)
            found = asyncio.run(_measure(postgres.dsn, options.rounds))
            asyncio.run(_park(postgres.dsn, options.parked))
    head = ["", "gates", "Postgres CPU ms", "own CPU ms", "ms", "tasks"]
    print(rows(head, found))


if __name__ == "__main__":
    main()
