"""The plans of statements on trends: a chart, a minute and the removal of old points read what they need, in a table of many."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from psycopg.types.json import Jsonb

from duly_core.postgres.arrays import int2s, texts, timestamps, uuids
from duly_core.trends.store import TRENDS
from tests.trends.test_trend_store import row

NOW = datetime.now(UTC)
SPAN = {"since": NOW - timedelta(hours=1), "until": NOW}
FEW_ROWS = {"slots_of_hosts": "hosts are few", "version_marks": "versions are few"}

CASES = {
    "add_runs": {"runs": Jsonb([row("lambda-7", NOW)])},
    "is_measured": {"at": NOW},
    "add_measured": {
        "at": NOW,
        "found": Jsonb(
            [{"lambda": "a", "scheduled": 1, "dead": 0, "ready": 0, "held": 0, "oldest": None, "slots": 1}]
        ),
    },
    "scheduled_between": {
        "lambdas": texts(["lambda-7"]),
        "first_id": "01a21abe-c680-0000-0000-000000000000",
        "end_id": "01a21abf-c680-0000-0000-000000000000",
        "most": 100,
    },
    "dead_between": {"at": SPAN["since"], "end_at": SPAN["until"], "most": 100},
    "held_by_lambda": {"most": 100},
    "lambdas_of_tasks": {"task_ids": uuids([bytes(16)])},
    "sum_points": {
        "minutes": 60,
        "part": 1,
        "at": NOW.replace(minute=0, second=0, microsecond=0) - timedelta(hours=2),
        "most": 201,
    },
    "newest_sum": {"minutes": 60},
    "add_calls": {"calls": Jsonb([{"at": NOW.isoformat(), "calls": 3, "failed_calls": 1}])},
    "sums_of_times": {
        "minutes": int2s([1, 60]),
        "since": timestamps([NOW - timedelta(hours=1), NOW - timedelta(hours=6)]),
        "until": timestamps([NOW, NOW - timedelta(hours=1)]),
        "lambdas": texts([]),
    },
    "forget_points": {"minutes": 1, "before": NOW - timedelta(hours=23), "limit": 100},
    "points": {"minutes": 1, "lambda": "lambda-7", "most": 1_500, **SPAN},
    "marks": {"methods": texts(["GateService/PutGate"]), "most_read": 100, "most": 10, **SPAN},
}

FILL = """
insert into trend_point (minutes, lambda, at, lateness, ended)
    select 1, case lambda when 0 then '' else 'lambda-' || lambda end, date_trunc('minute', now()) - minute * interval '1 minute',
        array[1, 2, 3], 1
    from generate_series(0, 20) as lambda, generate_series(0, 1499) as minute;
insert into trend_point (minutes, lambda, at, lateness, ended)
    select 60, case lambda when 0 then '' else 'lambda-' || lambda end, date_trunc('hour', now()) - hour * interval '1 hour', array[1], 1
    from generate_series(0, 200) as lambda, generate_series(3, 150) as hour;
insert into audit_event (at, actor, peer, method, outcome, request, answer)
    select now() - (20000 - number) * interval '1 second', 'ann', '', 'GateService/PutGate', 'OK', '{}', ''
    from generate_series(1, 20000) as number;
analyze trend_point, audit_event
"""


@pytest.fixture
async def full(store):
    async with store.connection() as connection:
        for statement in FILL.split(";"):
            await connection.execute(statement)
    return store


async def test_no_statement_reads_all_points_or_all_of_the_audit_log(full):
    plans = {}
    async with full.connection() as connection:
        for name, parameters in CASES.items():
            async with connection.transaction(force_rollback=True):
                cursor = await connection.execute(
                    f"explain (analyze, timing off) {TRENDS[name].sql}", parameters
                )
                plans[name] = "\n".join(line for (line,) in await cursor.fetchall())

    assert CASES.keys() | FEW_ROWS.keys() == TRENDS.keys()
    assert {
        name: plan
        for name, plan in plans.items()
        if re.search(r"Seq Scan on (trend_point|audit_event|task)\b", plan)
    } == {}
    assert "trend_point_pkey" in plans["points"]
    assert "Rows Removed by Filter" not in plans["points"]
