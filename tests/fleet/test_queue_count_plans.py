"""The statements that count queues have one way to their rows on each Postgres that is installed, whatever the tables hold."""

import json

import pytest

from duly_core.counting import queue_statements
from duly_core.counting.queues import Count, CountLimits, count_queues
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.statements import Statement
from duly_wire.enums import Priority
from tests.fixtures.full_tables import LAMBDAS, connect, fill, prepare
from tests.postgres.test_store_plans import execute, nodes, numbered

pytestmark = pytest.mark.long  # a server of each Postgres; test_fleet_queues.py counts on one

CASES = {
    "PRESENT": ({}, {"task_assoc_ready"}),
    "PENDING": (
        {
            "lambdas": [LAMBDAS[0], "idle"],
            "priorities": [3, 1],
            "now": "2026-11-22 12:00:00+00",
            "most": 100,
            "tells_apart": True,
        },
        {"task_assoc_ready"},
    ),
    "NEXT_DUE": (
        {"lambdas": [LAMBDAS[0]], "priorities": [3], "now": "2026-11-22 12:00:00+00"},
        {"task_assoc_ready"},
    ),
    "TAKEN": ({"most": 100}, {"task_assoc_watched"}),
    "WAITING": ({"most": 100}, {"task_assoc_in_session"}),
    "HOSTS": (
        {"lambdas": [LAMBDAS[0]], "now": "2026-11-22 12:00:00+00"},
        {"host_lambda_by_lambda", "host_pkey"},
    ),
}
LIVE = 5_000


def leave_new(_connection):
    """As after the migration."""


def hold_a_handful(connection):
    fill(connection, 10, 10)
    connection.execute("vacuum (analyze)")


def hold_rows_that_wait(connection):
    fill(connection, LIVE, 10)
    connection.execute(
        "update task_assoc set status = 'waiting', token = null, holder = null, graph = task_id, open_edges = 1, any_of = false,"
        " next_trigger_at = 'infinity'"
    )
    connection.execute("vacuum (analyze)")


@pytest.mark.parametrize("moment", [leave_new, hold_a_handful, hold_rows_that_wait])
async def test_rows_are_found_by_index_in_its_order(dsn_of_each, moment):
    await prepare(dsn_of_each)
    with connect(dsn_of_each) as connection:
        moment(connection)
        for name, (parameters, indexes) in CASES.items():
            sql, names = numbered(getattr(queue_statements, name).sql)
            connection.execute(f"prepare {name} as {sql}".encode())
            call, values = execute(name, names, parameters)
            ((plan,),) = connection.execute(f"explain (format json) {call}".encode(), values).fetchall()
            plan = plan if isinstance(plan, list) else json.loads(plan)
            found = [*nodes(plan[0]["Plan"])]

            assert {each["Index Name"] for each in found if "Index Name" in each} <= indexes, name
            kinds = {each["Node Type"] for each in found}
            assert not kinds & {"Seq Scan", "Bitmap Heap Scan", "Hash Join", "Merge Join"}, (name, kinds)
            only = [each for each in found if each["Node Type"] == "Index Only Scan"]
            assert name != "PENDING" or len(only) == 1, name
            limited = [each for each in found if each["Node Type"] == "Limit"]
            assert not any(
                below["Node Type"] == "Sort" for each in limited for below in nodes(each) if name != "HOSTS"
            ), name


async def test_counts_are_those_of_the_table(dsn_of_each):
    await prepare(dsn_of_each)
    with connect(dsn_of_each) as connection:
        fill(connection, LIVE, 10)
        expected = dict(
            connection.execute(
                "select lambda, count(*) from task_assoc where status in ('new', 'retriable_failure') group by lambda"
            ).fetchall()
        )
        held = connection.execute("select count(*) from task_assoc where status = 'processing'").fetchone()

    async with Store(StoreSettings(dsn=dsn_of_each)) as store:
        whole = await count_queues(store)
        sampled = await count_queues(store, CountLimits(pending=300, queue=100, others=100, pages=60))

    def pending(snapshot, name):
        queue = snapshot.queues[QueueKey(name, Priority.NORMAL)]
        return [queue.count(kind) for kind in ("ready", "scheduled", "backing_off")]

    for name, number in expected.items():
        assert sum(each.number for each in pending(whole, name)) == number
        assert not any(each.is_estimated for each in pending(whole, name))
        assert any(each.is_estimated for each in pending(sampled, name))
        # of 111 pages 60 are read: a sixth more or less is usual, twice that is seen now and then
        assert number / 3 < sum(each.number for each in pending(sampled, name)) < number * 3
    assert held is not None
    assert sum(each.count("processing").number for each in whole.queues.values()) == held[0]
    assert whole.queues[QueueKey(LAMBDAS[0], Priority.NORMAL)].count("waiting") == Count(0)


def test_each_statement_that_reads_tasks_has_a_case():
    statements = {name for name, value in vars(queue_statements).items() if isinstance(value, Statement)}

    # a sample has one way; what was scheduled lately is found as any list of a lambda is
    assert statements == CASES.keys() | {"SAMPLE", "SCHEDULED_SINCE"}
