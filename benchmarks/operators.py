"""What the questions of operators cost: calls and pages of the console, beside many lambdas and tasks.

python -m benchmarks.operators [--lambdas 10000] [--waiting 10000000] [--finished 2000000] [--rounds 20]

CPU is of the server (`duly up`: all services and the console) and of Postgres, in ms a call, less what both use idle.
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg

import duly
from benchmarks.arguments import in_range
from benchmarks.console import Stack
from benchmarks.cpu import memory_by_process, scheduled_seconds_by_process
from benchmarks.store.fill import fill_lambdas
from benchmarks.tables import rows
from duly_core.postgres.schema.migrate import migrate
from duly_local.postgres.embedded import EmbeddedPostgres

_PAGES = (
    "/", "/live", "/tasks", "/tasks?status=new", "/tasks?status=success", "/tasks?lambda={lambda_name}", "/dead-letters",
    "/lambdas", "/lambdas?name=7", "/lambdas/{lambda_name}", "/queues", "/hosts", "/gates", "/time-tables", "/resources",
    "/settings", "/audit", "/tasks/{task_id}",
)  # fmt: skip
_SAMPLES = {
    "due, nobody serves it": "select task_id from task_assoc where next_trigger_at < now() limit 1",
    "scheduled for later": "select task_id from task_assoc where next_trigger_at > now() + interval '1 h' limit 1",
    "ended": "select task_id from task where status = 'success' limit 1",
    "dead letter": "select task_id from task where status = 'fatal_failure' limit 1",
}
_IDLE_SECONDS = 20.0
_PATIENCE = 180.0
_KEPT = 31.0
"""Seconds after which no count of queues is kept any longer."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one call."""

    name: str
    median_ms: float
    worst_ms: float
    server_ms: float
    postgres_ms: float
    note: str = ""

    def cells(self) -> list[str]:
        """Return it as a row."""
        figures = (self.median_ms, self.worst_ms, self.server_ms, self.postgres_ms)
        return [self.name, *(f"{each:,.1f}" for each in figures), self.note]


class Meter:
    """Times calls, and counts the CPU of the stack meanwhile."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._idle = (0.0, 0.0)
        before, started = _used(), time.monotonic()
        time.sleep(_IDLE_SECONDS)
        passed = time.monotonic() - started
        self._idle = tuple((after - then) / passed for after, then in zip(_used(), before, strict=True))
        print(f"idle: server {self._idle[0]:.2%}, Postgres {self._idle[1]:.2%} of a core", flush=True)

    def cost(self, name: str, call: Callable[[], object], *, note: str = "", apart: float = 0.0) -> Cost:
        """Call it often, `apart` seconds apart."""
        rounds = self._rounds if not apart else 3
        call()
        taken, used = [], [0.0, 0.0]
        for _ in range(rounds):
            time.sleep(apart)
            before, started = _used(), time.perf_counter()
            call()
            passed = time.perf_counter() - started
            taken.append(passed * 1000)
            for which, (after, then) in enumerate(zip(_used(), before, strict=True)):
                used[which] += (after - then - self._idle[which] * passed) * 1000
        server, postgres = (max(0.0, each) / rounds for each in used)
        found = Cost(name, statistics.median(taken), max(taken), server, postgres, note)
        print("  ", *found.cells(), flush=True)
        return found


def _used() -> tuple[float, float]:
    used = scheduled_seconds_by_process(os.getpid())
    return used["server"], used["postgres"]


@contextmanager
def _stack(options: argparse.Namespace) -> Iterator[tuple[Stack, str]]:
    """A stack beside a filled store, and the DSN of the store."""
    with tempfile.TemporaryDirectory(prefix="duly-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        # nothing here is about the disk: fsync only takes time
        settings = {"fsync": "off", "max_wal_size": "4GB"}
        with EmbeddedPostgres(folder / "postgres", settings=settings) as postgres:
            migrate(postgres.dsn)
            started = time.monotonic()
            fill_lambdas(postgres.dsn, options.lambdas, options.waiting, options.finished)
            print(f"filled in {time.monotonic() - started:.0f} s", flush=True)
            stack = Stack(folder, "--dsn", postgres.dsn)
            try:
                yield stack, postgres.dsn
            finally:
                stack.stop()


def _calls(meter: Meter, client: duly.Client, samples: dict[str, str], lambda_name: str) -> Iterator[Cost]:
    for name, task in samples.items():
        yield meter.cost(f"ExplainTask: {name}", lambda task=task: client.explain(task))  # type: ignore[misc]
    yield meter.cost("GetTasks (one)", lambda: client.get(next(iter(samples.values()))))
    yield meter.cost("ListQueues, first page, counted anew", lambda: _queues(client), apart=_KEPT)
    yield meter.cost("ListQueues, first page, count kept", lambda: _queues(client))
    yield meter.cost("ListQueues of a lambda, count kept", lambda: list(client.queues([lambda_name])))
    yield meter.cost("ListHosts", lambda: list(client.hosts()))
    yield meter.cost("gate_hits of a lambda", lambda: client.gate_hits(lambda_name))
    yield meter.cost("gate_hits of all", lambda: client.gate_hits("*"))


def _queues(client: duly.Client) -> object:
    return next(iter(client.queues(order=duly.QueueOrder.BACKLOG, page_size=50)))


def _page(browser: httpx.Client, path: str) -> None:
    answer = browser.get(path)
    answer.raise_for_status()
    if "took longer than" in answer.text:
        message = f"{path} says that it took too long"
        raise SystemExit(message)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators", description=__doc__)
    parser.add_argument("--lambdas", type=in_range(10, 100_000), default=10_000)
    parser.add_argument("--waiting", type=in_range(1_000, 50_000_000), default=10_000_000)
    parser.add_argument("--finished", type=in_range(1_000, 50_000_000), default=2_000_000)
    parser.add_argument("--rounds", type=in_range(1, 1_000), default=20)
    options = parser.parse_args()
    with _stack(options) as (stack, dsn):
        with psycopg.connect(dsn, autocommit=True) as connection:
            samples = {
                name: str(row[0])
                for name, query in _SAMPLES.items()
                if (row := connection.execute(query.encode()).fetchone())
            }
            ((lambda_name,),) = connection.execute("select name from lambda order by name offset 7 limit 1")
        address, url = stack.address(), stack.console()
        time.sleep(10)
        meter = Meter(options.rounds)
        with duly.Client(address) as client:
            found = list(_calls(meter, client, samples, lambda_name))
        with httpx.Client(base_url=url, timeout=_PATIENCE) as browser:
            for path in _PAGES:
                shown = path.format(lambda_name=lambda_name, task_id=samples["dead letter"])
                found.append(meter.cost(path, lambda shown=shown: _page(browser, shown)))  # type: ignore[misc]
        memory = memory_by_process(os.getpid())
    print(
        rows(["", "median ms", "worst ms", "server ms", "Postgres ms", ""], [each.cells() for each in found])
    )
    print(f"memory of the server afterwards: {memory['server']:.0f} MiB")


if __name__ == "__main__":
    main()
