"""The plans of statements on output: rows are found by their key, in a table with the output of many tasks."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from duly_core.postgres.arrays import byteas, uuids
from duly_core.task_output.statements import OUTPUT
from duly_wire.ids import new_task_id

IDS = [new_task_id().bytes for _ in range(3)]
RUNS = {"task_ids": uuids(IDS), "fences": [1] * 3}
CLAIMS = {"task_ids": uuids(IDS), "tokens": uuids(IDS)}
OF_TASK = {"task_id": UUID(bytes=IDS[0]), "fence": 1}

CASES = {
    "live_claims": CLAIMS,
    "ended_claims": CLAIMS | {"late_for": timedelta(seconds=30)},
    "append": RUNS
    | {
        "numbers": [1] * 3,
        "positions": [0] * 3,
        "sizes": [1] * 3,
        "encrypted": [False] * 3,
        "contents": byteas([b"x"] * 3),
    },
    "trim": RUNS | {"most_bytes": 1_000, "most_chunks": 10, "most_runs": 5},
    "state": OF_TASK,
    "last_run": OF_TASK,
    "place_of_tail": OF_TASK | {"from_position": 10},
    "read": OF_TASK
    | {
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "after_fence": 0,
        "after_number": 0,
        "limit": 100,
        "most_bytes": 1_000,
    },
    "forget_gone": {"after": UUID(int=0), "limit": 100},
}

FILL = """
insert into task_output (task_id, fence, number, position, size_bytes, is_encrypted, content, written_at)
select task_id, fence, number, number, 1, false, 'x', now()
from (select gen_random_uuid() as task_id from generate_series(1, 2000)) as task, generate_series(1, 2) as fence,
    generate_series(1, 10) as number
"""


@pytest.fixture
async def full(store):
    async with store.connection() as connection:
        await connection.execute(FILL)
        await connection.execute("analyze task_output")
    return store


async def test_no_statement_reads_all_output(full):
    plans = {}
    async with full.connection() as connection:
        for name, parameters in CASES.items():
            cursor = await connection.execute("explain " + OUTPUT[name].sql, parameters)
            plans[name] = "\n".join(line for (line,) in await cursor.fetchall())

    assert CASES.keys() == OUTPUT.keys()
    assert {name: plan for name, plan in plans.items() if "Seq Scan on task_output" in plan} == {}
    assert "task_output_pkey" in plans["read"]
