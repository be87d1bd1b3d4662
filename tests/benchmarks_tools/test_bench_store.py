"""The store of the benchmark is filled as it says, and each statement finds there what it is asked for."""

from typing import Any

import psycopg

from benchmarks.store.cases import cases
from benchmarks.store.fill import DUE, IN_A_GRAPH, IN_A_SESSION, Spread, fill
from benchmarks.store.touched import connect, touched

READY = 110
SPREAD = Spread(lambdas=2_000, sessions=20, graphs=5)
WAITING, FINISHED = 2_000, 30


def _count(connection: psycopg.Connection[Any], query: bytes) -> int:
    ((count,),) = connection.execute(query).fetchall()
    return int(count)


def test_a_store_is_filled_with_lambdas_sessions_and_graphs_and_each_case_does_its_work(dsn: str) -> None:
    filled = fill(dsn, WAITING, FINISHED, SPREAD, ready=READY)

    with connect(dsn) as connection:
        measured = READY * (3 + 2 * IN_A_SESSION + IN_A_GRAPH) + DUE
        assert _count(connection, b"select count(*) from task_assoc") == WAITING + measured
        assert _count(connection, b"select count(*) from task where finished_at is not null") == FINISHED
        assert _count(connection, b"select count(*) from session") == SPREAD.sessions + 2 * READY
        assert _count(connection, b"select count(*) from graph") == SPREAD.graphs + READY
        assert _count(connection, b"select count(*) from graph_edge") == (SPREAD.graphs + READY) * (
            IN_A_GRAPH - 1
        )
        found = cases(filled)
        rows = {
            case.name: touched(connection, case.statement, case.parameters(), anew=case.anew).rows
            for case in found
        }
        assert _count(connection, b"select count(*) from task_assoc") == WAITING + measured

    assert rows == {case.name: case.rows for case in found}
    assert rows["claim_work, for 1,000 lambdas, nothing due"] == DUE
