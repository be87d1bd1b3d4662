"""The cost of a task at each step of its way, by how many tasks wait and how many are finished."""

import os
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import statements
from benchmarks.store.fill import LAMBDA, Filled
from benchmarks.store.touched import connect, connect_in_binary, touched
from duly_core.postgres.statements import READS, TRANSITIONS, Statement
from duly_core.tasks.task import TOKEN_PREFIX_BYTES
from duly_wire.ids import new_task_id

GROUP = 100
STEPS = ("schedule_plain", "claim_work", "finish")
WITH_A_QUEUE = ("enqueue", "claim")
"""Instead of claim_work, where SQS is between."""
POLL = "next_triggers"
_EXPLAINED = 15
_WARM_UP = 20
_TIMED = 150


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one step, for a group of GROUP; of a poll, for one."""

    pages: int
    execution_ms: float
    """By EXPLAIN: how long the plan ran."""
    cpu_ms: float | None
    """Of the server's process, planning and all; None: it runs on another machine."""


def measure(dsn: str, filled: Filled) -> dict[str, Cost]:
    """Medians of each step's pages and time; its CPU over many executions, each taken back."""
    with connect(dsn) as explaining, connect_in_binary(dsn) as timing:
        return {name: _cost(explaining, timing, name, filled) for name in (*STEPS, *WITH_A_QUEUE, POLL)}


def _cost(
    explaining: psycopg.Connection[Any], timing: psycopg.Connection[Any], name: str, filled: Filled
) -> Cost:
    statement = TRANSITIONS.get(name) or READS[name]
    parameters = partial(_parameters, name, filled)
    runs = [touched(explaining, statement, parameters()) for _ in range(_EXPLAINED)]
    expected = 1 if name == POLL else GROUP
    if any(run.rows != expected for run in runs):
        message = f"{name} did {[run.rows for run in runs]} tasks, not {expected} each"
        raise RuntimeError(message)
    return Cost(
        round(statistics.median(run.pages for run in runs)),
        statistics.median(run.execution_ms for run in runs),
        _cpu_ms(timing, statement, parameters),
    )


def _cpu_ms(
    connection: psycopg.Connection[Any], statement: Statement, parameters: Callable[[], dict[str, Any]]
) -> float | None:
    """Milliseconds of CPU of the server's process for one execution, sent as the services send it."""
    row = connection.execute("select pg_backend_pid()").fetchone()
    pid = row[0] if row else 0
    if not _is_postgres(pid):
        return None

    def taken(run: Callable[[], object]) -> float:
        before = _nanoseconds(pid)
        for _ in range(_TIMED):
            run()
        return (_nanoseconds(pid) - before) / _TIMED / 1e6

    def run() -> None:
        cursor = connection.cursor(binary=True)
        cursor.execute(statement.sql.encode(), statements.in_binary(parameters()), prepare=True)
        cursor.fetchall()

    def run_and_take_back(what: Callable[[], object]) -> None:
        connection.execute("begin")
        what()
        connection.execute("rollback")

    for _ in range(_WARM_UP):
        run_and_take_back(run)
    if statement.name in READS:
        return taken(run)
    around = taken(partial(run_and_take_back, lambda: None))
    return taken(partial(run_and_take_back, run)) - around


def _is_postgres(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"postgres")
    except OSError:
        return False


def _nanoseconds(pid: int) -> int:
    """CPU time so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0])


def _parameters(name: str, filled: Filled) -> dict[str, Any]:
    start = random.randrange(len(filled.claimed) - GROUP)
    group = slice(start, start + GROUP)
    match name:
        case "schedule_plain":
            return statements.schedule([new_task_id() for _ in range(GROUP)], LAMBDA, b"x" * 100)
        case "claim_work":
            return statements.claim_work(LAMBDA, GROUP, os.urandom(TOKEN_PREFIX_BYTES))
        case "enqueue":
            return statements.enqueue(LAMBDA, GROUP)
        case "claim":
            ids = filled.enqueued[group]
            return statements.claim(ids, [new_task_id() for _ in ids], LAMBDA)
        case "finish":
            ids = filled.claimed[group]
            return statements.finish(ids, ids)
        case _:  # the poll
            return {"lambdas": [LAMBDA], "priorities": [statements.PRIORITY]}
