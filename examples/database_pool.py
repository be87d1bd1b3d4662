"""A database with 20 connections: whatever many hosts run, no more than 20 connections are open at a time.

This is the worker pool of the seeds: limited resources, and tasks that take one or several of them.

    duly up examples.database_pool:app
    python -m examples.database_pool    # declares the pool, runs 120 queries, and checks how many ran at a time
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import duly

app = duly.App(owner="data@example.org", version="1")

CONNECTIONS = 20
WHOLE = "pool.report"
"""Needs five connections at a time."""


@dataclass
class Query:
    """One query; `log` stands for the database, which counts its connections."""

    number: int
    connections: int
    log: str


@app.callback("pool.query")
def query(asked: Query) -> None:
    """Open connections, ask, close them."""
    _run(asked)


@app.callback(WHOLE)
def report(asked: Query) -> None:
    """Do the same, as another lambda: a resource is shared by all that name it."""
    _run(asked)


def _run(asked: Query) -> None:
    log = Path(asked.log)
    for connection in range(asked.connections):
        (log / f"{asked.number}-{connection}").touch()
    most = len([*log.iterdir()])
    time.sleep(0.02)
    for connection in range(asked.connections):
        (log / f"{asked.number}-{connection}").unlink()
    with Path(f"{log}.most").open("a", encoding="utf-8") as seen:
        seen.write(f"{most}\n")


def main(queries: int = 120) -> int:
    """Declare the pool and run queries; return 0 if never more connections were open than it has."""
    log = mkdtemp(prefix="database-pool-")
    tasks = []
    for number in range(queries):
        is_report = number % 10 == 0
        connections = 5 if is_report else 1
        tasks.append(
            duly.NewTask(
                WHOLE if is_report else "pool.query",
                Query(number, connections, log),
                resources=(duly.ResourceNeed("database", weight=connections),),
            )
        )
    with duly.Client() as client:
        client.put_resource("database", CONNECTIONS, note="max_connections of the reporting database")
        client.wait_many(client.schedule_many(tasks), raise_on_failure=True)
        (database,) = [each for each in client.resources() if each.name == "database"]
    most = max(map(int, Path(f"{log}.most").read_text(encoding="utf-8").split()))
    print(
        f"{queries} queries, at most {most} of {CONNECTIONS} connections at a time, {database.used} in use after"
    )
    return 0 if most <= CONNECTIONS and not database.used else 1


if __name__ == "__main__":
    sys.exit(main())
