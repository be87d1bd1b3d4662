"""The reads of the incident board find their rows by index, and stop at a number of them, beside a large backlog."""

import json

import pytest

from duly_core.problems.statements import PROBLEMS

LAMBDAS, EACH = 100, 100
"""A backlog of so many tasks of each of so many lambdas; as many are parked on one resource, and as many are held."""
FILL = f"""
insert into task_assoc (task_id, lambda, collection, priority, status, next_trigger_at, due_at, token, holder, claimed_at, parked_on, parked_key, resources)
select gen_random_uuid(), 'l' || number % {LAMBDAS}, '', 3, kind.status::task_status, now() - interval '1 min', now() - interval '1 min',
    case when kind.status = 'claimed' then gen_random_uuid() end, case when kind.status = 'claimed' then 'h' end,
    case when kind.status = 'claimed' then now() end, case when kind.status = 'waiting' then 'printer' end, case when kind.status = 'waiting' then '' end, case when kind.status = 'waiting' then '[]'::jsonb end
from generate_series(1, {LAMBDAS * EACH}) as number cross join (values ('new'), ('waiting'), ('claimed')) as kind (status);
insert into resource (name, capacity, per_key, note, changed_at) values ('printer', 1, false, '', now());
insert into dead_letter (task_id, lambda, finished_at)
select gen_random_uuid(), 'l', now() - number * interval '1 s' from generate_series(1, 10000) as number;
insert into session (key, length, last_seq, blocked_by, blocked_at, head)
select '/s' || number, 1, 1, case when number % 100 = 0 then gen_random_uuid() end, case when number % 100 = 0 then now() end,
    case when number % 100 <> 0 then gen_random_uuid() end
from generate_series(1, 10000) as number;
insert into host (host_id, name, version, queue_backend, started_at, first_reported_at, reported_at, report_interval, draining, stopped, reported_by, executors)
select 'h' || number, 'h', '', 'store', now(), now(), now(), interval '5 s', false, false, '', '[]' from generate_series(1, 50) as number;
insert into host_lambda (host_id, lambda, lambda_set, version)
select 'h' || host, 'l' || number, 0, '' from generate_series(1, 50) as host cross join generate_series(0, {LAMBDAS - 1}) as number;
insert into host (host_id, name, version, queue_backend, started_at, first_reported_at, reported_at, report_interval, draining, stopped, reported_by, executors)
select 'gone' || number, 'h', '', 'store', now() - interval '1 h', now() - interval '1 h', now() - interval '1 h', interval '5 s', false, false, '', '[]' from generate_series(1, 20) as number;
insert into host_lambda (host_id, lambda, lambda_set, version)
select 'gone' || host, 'old' || number, 0, '' from generate_series(1, 20) as host cross join generate_series(1, 1000) as number;
analyze;
"""  # noqa: S608 (constants)
NAMES = [f"l{number}" for number in range(LAMBDAS)]
QUEUES = {"lambdas": NAMES, "bases": NAMES, "versions": [""] * LAMBDAS}
CASES = {
    "late_queues": ({"due_for": "5 s", "most": 10, "most_looked_at": 50_000}, LAMBDAS),
    "first_tasks": ({"lambdas": NAMES, "priorities": [3] * LAMBDAS}, LAMBDAS),
    "parked_by_resource": ({"most_looked_at": 2_000, "most": 10}, 10),
    "parked_on_gates": ({"gates": ["a", "b"], "most": 10}, 0),
    "held_lambdas": ({"most": 10}, 10),
    "unclaimed_references": ({"due_for": "5 s", "most": 10}, 10),
    "newest_dead_letters": ({"most": 10}, 10),
    "problem_signs": ({"tokens_within": "7 d", "kept_for": "1 d"}, 0),
    "blocked_sessions": ({"most": 10}, 10),
    "serving_hosts_of_lambdas": (QUEUES | {"late": "2 s", "most": 5}, 5 * LAMBDAS),
    "last_hosts_of_lambdas": (QUEUES, 50 * LAMBDAS),
    "hosts_astray": (
        {"largest_skew": "1 s", "explained": [], "most": 10, "most_lambdas": 300},
        50 * LAMBDAS + 20 * 300,
    ),
}
"""Of each statement what it is asked, and how many rows of the large tables it may read."""
SMALL = {
    "host",
    "resource",
    "breaker",
    "pool_plan",
    "access_token",
    "notification_target",
    "problem",
    "lambda",
    "start_objective",
    "unnest",
    "task_first",
    "task_rest",
}


def reads(plan):
    """Yield each node that reads a table, with the rows that it read in all."""
    if "Relation Name" in plan:
        rows = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
        yield plan["Relation Name"], plan["Node Type"], round(rows * plan["Actual Loops"])
    if plan["Node Type"] == "Bitmap Heap Scan":
        return
    for below in plan.get("Plans", ()):
        yield from reads(below)


@pytest.fixture
async def filled(store):
    async with store.connection() as connection:
        await connection.execute("set statement_timeout = '60s'")  # for what fills the tables
        for statement in FILL.split(";\n"):
            if statement.strip():
                await connection.execute(statement)
    return store


async def test_each_read_stops_at_its_number_of_rows(filled):
    async with filled.connection() as connection:
        for name, (asked, most) in CASES.items():
            explained = f"explain (analyze, format json, timing off) {PROBLEMS[name].sql.replace(')b', ')s')}"
            cursor = await connection.execute(explained, asked)
            ((found,),) = await cursor.fetchall()
            (whole,) = json.loads(found) if isinstance(found, str) else found
            large = [each for each in reads(whole["Plan"]) if each[0] not in SMALL]

            assert sum(rows for *_, rows in large) <= most + 20, (name, large)
            assert not [each for each in large if each[1] == "Seq Scan"], (name, large)
