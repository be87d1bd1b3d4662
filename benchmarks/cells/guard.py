"""What the guard of a cell costs Postgres: the statements that schedule tasks, in databases that differ in the guard alone."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from benchmarks.cells.installation import database, write_directory
from benchmarks.statements import in_binary, schedule, schedule_one
from benchmarks.store.touched import connect_in_binary
from duly_core.cells.guards import add_guards
from duly_core.postgres.schema.migrate import migrate
from duly_core.postgres.statements import TRANSITIONS
from duly_local.postgres.embedded import EmbeddedPostgres
from duly_wire.ids import new_task_id

GROUPS = (1, 200)
"""Tasks of a statement."""
Connection = psycopg.Connection[TupleRow]
_LAMBDA = "ns0/noop"
_PAYLOAD = b"x" * 100
_CALLS_A_BLOCK = 20
_BLOCKS = 60
_REGISTER = """
insert into lambda (name, owner, version, max_attempts, max_crashes, max_runtime, backoff_initial, backoff_factor,
    backoff_max, payload_limit, registered_at, updated_at)
values (%s, '', '', 10, 3, '1 h', '1 s', 2, '10 min', 1000, now(), now())
"""


@dataclass(frozen=True, slots=True)
class Guard:
    """What a task costs, by the database."""

    group: int
    cpu_us: dict[str, float]
    """Of CPU of Postgres a task, in the cheapest block of a round: what else runs on the machine only adds to it."""

    def as_json(self) -> dict[str, Any]:
        """As it is kept."""
        return asdict(self)


def measure_guard(
    rounds: int, others: Mapping[str, Callable[[Connection], object]] | None = None
) -> list[Guard]:
    """Schedule tasks in blocks, in turns over the databases.

    Args:
        rounds: how often.
        others: further databases, and what makes each.
    """
    made: dict[str, Callable[[Connection], object]] = {
        "without guards": lambda _: None,
        "with guards": add_guards,
        **(others or {}),
    }
    with tempfile.TemporaryDirectory(prefix="duly-bench-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)
        with EmbeddedPostgres(Path(name) / "postgres") as server:
            connections = {}
            for number, (kind, make) in enumerate(made.items()):
                dsn = database(server, server, f"c{number}")
                migrate(dsn)
                write_directory({f"c{number}": dsn})
                connection = connections[kind] = connect_in_binary(dsn)
                make(connection)
                connection.execute(_REGISTER, [_LAMBDA])
            return [_round(connections, group) for _ in range(rounds) for group in GROUPS]


def _round(connections: Mapping[str, Connection], group: int) -> Guard:
    for connection in connections.values():
        connection.execute("truncate task_assoc, task, attempt")
        _block_us(connection, group)
    found = [
        {kind: _block_us(connection, group) for kind, connection in connections.items()}
        for _ in range(_BLOCKS)
    ]
    return Guard(group, {kind: min(block[kind] for block in found) for kind in connections})


def _block_us(connection: Connection, group: int) -> float:
    """Schedule a block of tasks; return what one cost."""
    calls = []
    for _ in range(max(2, _CALLS_A_BLOCK // group)):
        ids = [new_task_id() for _ in range(group)]
        if group == 1:
            calls.append(("schedule_one", schedule_one(ids[0], _LAMBDA, _PAYLOAD)))
        else:
            calls.append(("schedule_plain", in_binary(schedule(ids, _LAMBDA, _PAYLOAD))))
    pid = connection.info.backend_pid
    before = _nanoseconds(pid)
    for name, parameters in calls:
        cursor = connection.cursor(binary=True)
        cursor.execute(TRANSITIONS[name].sql.encode(), parameters, prepare=True)
        cursor.fetchall()
    return (_nanoseconds(pid) - before) / len(calls) / group / 1e3


def _nanoseconds(pid: int) -> int:
    """CPU time so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0])
