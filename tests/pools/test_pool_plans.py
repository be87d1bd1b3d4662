"""The plans of the statements by which the autoscaler reads tasks in each round: rows are found by index, up to a limit."""

from datetime import UTC, datetime, timedelta

from duly_core.pools.statements import POOLS
from duly_core.upkeep.partitions import first_id
from tests.fixtures.full_tables import LAMBDAS, connect, fill, prepare
from tests.postgres.test_store_plans import execute, nodes, numbered

NOW = datetime.now(UTC)
MOST = 50
BY_LAMBDA = "lambda_task_id_idx"

CASES = {
    "load_of_queues": (
        {
            "lambdas": [*LAMBDAS],
            "priorities": [3, 3, 3],
            "now": NOW,
            "ahead": timedelta(days=3),
            "step": timedelta(seconds=5),
            "most": MOST,
        },
        "task_assoc_ready",
        len(LAMBDAS),
    ),
    "arrivals": (
        {"lambdas": [*LAMBDAS], "first_id": first_id(NOW - timedelta(days=1)), "most": MOST},
        BY_LAMBDA,
        len(LAMBDAS),
    ),
    "run_times": (
        {
            "lambdas": [*LAMBDAS],
            "before": [first_id(NOW + timedelta(days=days)) for days in (3, 4)],
            "oldest": first_id(NOW - timedelta(days=8)),
            "most": MOST,
        },
        BY_LAMBDA,
        2 * len(LAMBDAS),
    ),
}
"""Parameters, the index that has its rows in their order, and how often the limit counts."""
OF_POOLS = {
    "list_pools",
    "pool_to_change",
    "put_pool",
    "count_pools",
    "delete_pools",
    "list_plans",
    "desired_workers",
    "workers_of_pools",
    "take_lease",
    "give_lease_up",
    "read_lease",
    "write_plans",
    "request_drain",
}
"""They read pools, their plans and hosts: few rows."""


def test_each_statement_that_reads_tasks_has_a_case():
    assert POOLS.keys() == CASES.keys() | OF_POOLS
    assert {name for name, each in POOLS.items() if "from task" in each.sql} == CASES.keys()


async def test_plans_made_on_new_tables_read_no_more_than_the_limit_when_the_tables_are_full(dsn):
    await prepare(dsn)
    with connect(dsn) as connection:
        calls = {}
        for name, (parameters, _, _) in CASES.items():
            sql, names = numbered(POOLS[name].sql)
            connection.execute(f"prepare {name} as {sql}")
            calls[name] = execute(name, names, parameters)
            connection.execute(*calls[name])
        fill(connection, 3_000, 3_000)

        found = {}
        for name, (text, values) in calls.items():
            (((explained,),),) = connection.execute(
                f"explain (analyze, format json) {text}", values
            ).fetchall()
            found[name] = [*nodes(explained["Plan"])]

    for name, (_, index, times) in CASES.items():
        scans = [each for each in found[name] if each.get("Relation Name", "").startswith("task")]
        assert {each.get("Index Name", each["Node Type"])[-len(index) :] for each in scans} == {index}, name
        read = sum(
            (each["Actual Rows"] + each.get("Rows Removed by Filter", 0)) * each["Actual Loops"]
            for each in scans
        )
        # of each partition one row more, to find the newest of all
        partitions = len({each["Relation Name"] for each in scans})
        assert MOST * times <= read <= (MOST + partitions) * times, name
