"""The cost of a task at each step of its way, by how many tasks wait and how many are finished."""

import random
from typing import Any

import psycopg

from benchmarks.store.fill import LAMBDA, Filled
from benchmarks.store.touched import Touched, connect, touched
from duly.ids import new_task_id
from duly_core.store.statements import TRANSITIONS

GROUP = 100
ROUNDS = 7


def measure(dsn: str, filled: Filled) -> dict[str, Touched]:
    """The median execution of each step, by pages; groups of GROUP."""
    with connect(dsn) as connection:
        return {
            name: _median(connection, name, filled) for name in ("schedule", "enqueue", "claim", "finish")
        }


def _median(connection: psycopg.Connection[Any], name: str, filled: Filled) -> Touched:
    runs = [touched(connection, TRANSITIONS[name], _parameters(name, filled)) for _ in range(ROUNDS)]
    assert all(run.rows == GROUP for run in runs), (name, runs)
    return sorted(runs, key=lambda run: (run.pages, run.execution_ms))[ROUNDS // 2]


def _parameters(name: str, filled: Filled) -> dict[str, Any]:
    start = random.randrange(len(filled.claimed) - GROUP)
    match name:
        case "schedule":
            return {
                "task_ids": [new_task_id() for _ in range(GROUP)],
                "lambdas": [LAMBDA] * GROUP,
                "collections": [""] * GROUP,
                "priorities": [3] * GROUP,
                "encodings": [1] * GROUP,
                "payloads": [b"x" * 100] * GROUP,
                "scheduled_at": [None] * GROUP,
                "delays": [None] * GROUP,
                "expires_at": [None] * GROUP,
                "keys": [None] * GROUP,
            }
        case "enqueue":
            return {"lambdas": [LAMBDA], "priorities": [3], "room": [GROUP], "enqueue_timeout": "60 s"}
        case "claim":
            ids = filled.enqueued[start : start + GROUP]
            return {
                "task_ids": ids,
                "tokens": [new_task_id() for _ in ids],
                "lambdas": [LAMBDA] * GROUP,
                "holders": ["host"] * GROUP,
                "claim_timeout": "15 s",
            }
        case _:
            ids = filled.claimed[start : start + GROUP]
            return {
                "task_ids": ids,
                "tokens": ids,
                "results": [None] * GROUP,
                "encodings": [None] * GROUP,
                "started_at": [None] * GROUP,
            }
