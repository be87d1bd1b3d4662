"""The cost of a task at each step of its way, by how many tasks wait and how many are finished."""

import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import statements
from benchmarks.store.cases import Case, cases
from benchmarks.store.fill import Filled
from benchmarks.store.touched import connect, connect_in_binary, touched
from duly_core.postgres.session_options import PLANNED_ANEW

_EXPLAINED = 15
_WARM_UP = 20
_SLICES = 10
"""The least of them counts: other work on the machine takes its caches."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one execution."""

    of: int
    """Tasks that share it."""
    pages: int
    execution_ms: float
    """By EXPLAIN: how long the plan ran."""
    cpu_ms: float | None
    """Of the server's process, planning and all; None: it runs on another machine."""


@dataclass(frozen=True, slots=True)
class _Store:
    """One of those that take turns, with a connection for each of the two ways to look at a statement."""

    cases: dict[str, Case]
    explaining: psycopg.Connection[Any]
    timing: psycopg.Connection[Any]


def measure(stores: Sequence[tuple[str, Filled]], rounds: int) -> list[list[dict[str, Cost]]]:
    """Of each store (DSN) and each round what each case cost.

    The stores take turns case by case, and within a case slice by slice, so that a machine whose speed changes changes it for
    all. What is done is taken back, and left to vacuum: no case finds the index entries of one before it in its way.
    """
    with ExitStack() as stack:
        opened = [
            _Store(
                {case.name: case for case in cases(filled)},
                stack.enter_context(connect(dsn)),
                stack.enter_context(connect_in_binary(dsn)),
            )
            for dsn, filled in stores
        ]
        costs: list[list[dict[str, Cost]]] = [[{} for _ in range(rounds)] for _ in opened]
        for name in dict.fromkeys(name for store in opened for name in store.cases):
            of_case = [
                (store, of_store)
                for store, of_store in zip(opened, costs, strict=True)
                if name in store.cases
            ]
            plans = [_explained(store.explaining, store.cases[name]) for store, _ in of_case]
            clocks = [_Clock(store.timing, store.cases[name]) for store, _ in of_case]
            for number in range(rounds):
                for clock in clocks * _SLICES:
                    clock.count_slice()
                for (store, of_store), plan, clock in zip(of_case, plans, clocks, strict=True):
                    of_store[number][name] = Cost(store.cases[name].of, *plan, clock.take_ms())
            print(f"  {name}: done", flush=True)
        return costs


def _explained(connection: psycopg.Connection[Any], case: Case) -> tuple[int, float]:
    """Medians of its pages and of its time."""
    runs = [touched(connection, case.statement, case.parameters(), anew=case.anew) for _ in range(_EXPLAINED)]
    if any(run.rows != case.rows for run in runs):
        message = f"{case.name} answered with {[run.rows for run in runs]} rows, not {case.rows} each"
        raise RuntimeError(message)
    return round(statistics.median(run.pages for run in runs)), statistics.median(
        run.execution_ms for run in runs
    )


class _Clock:
    """Counts the CPU of the server's process while a case runs, sent as the services send it."""

    def __init__(self, connection: psycopg.Connection[Any], case: Case) -> None:
        self._connection, self._case = connection, case
        row = connection.execute("select pg_backend_pid()").fetchone()
        self._pid = row[0] if row else 0
        self._is_here = _is_postgres(self._pid)
        self._run_ms = self._around_ms = math.inf
        if not self._is_here:
            return
        for _ in range(_WARM_UP):
            self._taken_back(self._run)

    def count_slice(self) -> None:
        """Run it some times, and as many times an empty transaction, which is not of the case."""
        if self._is_here:
            self._run_ms = min(self._run_ms, self._count_ms(self._run))
            self._around_ms = min(self._around_ms, 0.0 if self._case.reads else self._count_ms(self._nothing))

    def take_ms(self) -> float | None:
        """Milliseconds for one execution by the slices since the last call; None: the server is on another machine."""
        taken = self._run_ms - self._around_ms if self._is_here else None
        self._run_ms = math.inf
        return taken

    def _count_ms(self, run: Callable[[], object]) -> float:
        times = self._case.times // _SLICES
        before = _nanoseconds(self._pid)
        for _ in range(times):
            if self._case.reads:
                run()
            else:
                self._taken_back(run)
        return (_nanoseconds(self._pid) - before) / times / 1e6

    def _run(self) -> None:
        cursor = self._connection.cursor(binary=True)
        statement = self._case.statement.sql.encode()
        cursor.execute(statement, statements.in_binary(self._case.parameters()), prepare=True)
        cursor.fetchall()

    def _nothing(self) -> None:
        pass

    def _taken_back(self, run: Callable[[], object]) -> None:
        self._connection.execute("begin")
        if self._case.anew:
            self._connection.execute(PLANNED_ANEW)
        run()
        # by libpq: psycopg forgets at a rollback what it prepared, and services hardly ever roll back
        self._connection.pgconn.exec_(b"rollback")


def _is_postgres(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"postgres")
    except OSError:
        return False


def _nanoseconds(pid: int) -> int:
    """CPU time so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0])
