"""What a poll that finds nothing costs after tasks went through, while somebody holds a snapshot, and after."""

import os
from typing import Any

import psycopg

from benchmarks import statements
from benchmarks.store.fill import LAMBDA
from benchmarks.store.touched import connect, literal, touched
from duly_core.postgres.statements import READS, TRANSITIONS
from duly_core.tasks.task import TOKEN_PREFIX_BYTES
from duly_wire.ids import new_task_id

GROUP = 500


def measure(dsn: str, tasks: int, steps: int) -> dict[str, dict[str, int]]:
    """Pages of each poll statement, by how many tasks went through; then without the snapshot, and vacuumed."""
    found: dict[str, dict[str, int]] = {}
    with connect(dsn) as connection, psycopg.connect(dsn) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select from task limit 1")
        found["0"] = _poll(connection)
        for step in range(1, steps + 1):
            for _ in range(tasks // steps // GROUP):
                _pass_through(connection)
            found[f"{step * tasks // steps}"] = _poll(connection)
        holder.rollback()
        found["snapshot gone"] = _poll(connection)
        connection.execute("vacuum task_assoc")
        found["vacuumed"] = _poll(connection)
    return found


def _poll(connection: psycopg.Connection[Any]) -> dict[str, int]:
    busy = statements.next_triggers([(LAMBDA, statements.PRIORITY)])
    return {
        "claim_work, its lambda": touched(connection, TRANSITIONS["claim_work"], _claim_work()).pages,
        "claim_work, another priority": touched(
            connection, TRANSITIONS["claim_work"], _claim_work(priority=1)
        ).pages,
        "enqueue, its queue": touched(
            connection, TRANSITIONS["enqueue"], statements.enqueue(LAMBDA, 100)
        ).pages,
        "enqueue, another": touched(
            connection, TRANSITIONS["enqueue"], statements.enqueue(LAMBDA, 100, 1)
        ).pages,
        "next_triggers": touched(connection, READS["next_triggers"], busy).pages,
        "next_timeout": touched(connection, READS["next_timeout"], {}).pages,
    }


def _claim_work(most: int = 100, priority: int = statements.PRIORITY) -> dict[str, Any]:
    return statements.claim_work(LAMBDA, most, os.urandom(TOKEN_PREFIX_BYTES), priority)


def _pass_through(connection: psycopg.Connection[Any]) -> None:
    """A group's whole way, each step in a transaction of its own."""
    ids = [new_task_id() for _ in range(GROUP)]
    connection.execute(
        literal(TRANSITIONS["schedule_plain"]).encode(), statements.schedule(ids, LAMBDA, b"x" * 100)
    )
    claimed = connection.execute(literal(TRANSITIONS["claim_work"]).encode(), _claim_work(GROUP)).fetchall()
    claims = sorted((row[0], row[1]) for row in claimed if row[0] is not None)
    finished = statements.finish([task_id for task_id, _ in claims], [token for _, token in claims])
    connection.execute(literal(TRANSITIONS["finish"]).encode(), finished)
