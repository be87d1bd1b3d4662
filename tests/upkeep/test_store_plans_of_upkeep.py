"""The plans of statements beside the task path find rows by index, too: of time tables, entities and retention.

As in test_store_plans.py, kept plans are made on new tables, which thousands of rows come into afterwards. Retention has
its statements planned anew, so those are planned when the tables are full, and without statistics.
"""

import re
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from duly_core.postgres.pool import connect_arguments
from duly_core.postgres.session_options import PLANNED_ANEW
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.statements import ENTITIES
from duly_core.time_tables.statements import CALENDARS, TIME_TABLES
from duly_core.upkeep.partition_drop import STATEMENTS as RETENTION
from duly_core.upkeep.retention import Retention
from duly_wire.ids import new_task_id
from tests.fixtures import time_tables
from tests.fixtures.task_states import LAMBDA, SECOND
from tests.postgres.test_store_plans import execute, fill, nodes, numbered

ROWS = 5_000
DAY = timedelta(days=1)
NOW = datetime.now(UTC)
IDS = [new_task_id() for _ in range(3)]
NAMES = ["table-1", "table-2", "table-3"]
TABLES = {"time_table_pkey"}
A_TABLE = {
    "name": "table-1",
    "lambda": LAMBDA,
    "collection": "",
    "priority": 3,
    "payload_encoding": 1,
    "payload": b"{}",
    "cron": None,
    "every": SECOND,
    "every_offset": timedelta(),
    "zone": "UTC",
    "catch_up": 1,
    "catch_up_window": DAY,
    "overlap": 1,
    "jitter": timedelta(),
    "declared": False,
    "next_tick_at": NOW,
    "next_fire_at": NOW,
    "now": NOW,
    "resources": None,
    "session": None,
    "session_order": None,
    "session_policy": None,
    "fair_key": None,
    "calendar": None,
    "on_closed": None,
    "business_hours": None,
    "working_day": None,
    "attributes": None,
}
LIMITS = {"ended_before": NOW - DAY, "dead_before": NOW - 2 * DAY, "limit": 10}
PAGE = LIMITS | {"after": "00000000-0000-0000-0000-000000000000"}
KEPT = {
    "time_table_clock": ({"lambda": LAMBDA}, {"lambda_pkey"}),
    "time_table_lambdas": ({"names": [LAMBDA]}, {"lambda_pkey"}),
    "locked_time_tables": ({"names": NAMES}, TABLES),
    "time_tables_by_name": ({"names": NAMES}, TABLES),
    "create_time_table": (A_TABLE | {"name": "another"}, TABLES),
    "change_time_table": (A_TABLE, TABLES),
    "delete_time_tables": ({"names": NAMES}, TABLES),
    "pause_time_tables": ({"names": NAMES, "names_note": True, "note": ""}, TABLES),
    "resume_time_table": ({"name": "table-1", "next_tick_at": NOW, "next_fire_at": NOW}, TABLES),
    "next_time_table": ({}, {"time_table_due", "time_table_buffered"}),
    "due_time_tables": ({"limit": 10}, {"time_table_due"}),
    "released_time_tables": ({"limit": 10}, {"time_table_buffered", "task_assoc_pkey"}),
    "move_time_tables_on": (
        {
            "names": NAMES,
            "next_ticks": [NOW] * 3,
            "next_fires": [NOW] * 3,
            "buffered": [None] * 3,
            "last_ticks": [None] * 3,
            "last_tasks": IDS,
        },
        TABLES,
    ),
    "calendar_users": ({"names": ["office"], "limit": 10}, {"time_table_by_calendar"}),
    "locked_calendar_tables": ({"calendar": "office"}, {"time_table_by_calendar"}),
    "move_calendar_tables": (
        {"names": NAMES, "next_ticks": [NOW] * 3, "next_fires": [NOW] * 3},
        TABLES,
    ),
    "put_off_time_tables": ({"names": NAMES, "problems": ["a"] * 3, "delay": SECOND}, TABLES),
    "keep_checkpoints": (
        {"task_ids": IDS, "tokens": IDS, "checkpoints": [b"a"] * 3},
        {"task_assoc_pkey", "task_pkey"},
    ),
    "keep_attributes": (
        {"task_ids": IDS, "names": NAMES, "attribute_values": NAMES},
        set(),
    ),
    "lock_child_sessions": (
        {"task_ids": IDS, "tokens": IDS, "parents": IDS, "lambdas": [LAMBDA] * 3, "sessions": NAMES},
        {"task_assoc_pkey", "session_pkey"},
    ),
    "give_turns": (
        {"lambdas": [LAMBDA], "priorities": [3], "since": [NOW], "most": [100]},
        {"task_assoc_ready", "task_assoc_pkey"},
    ),
    "note_overdue": (
        {"task_ids": IDS, "tokens": IDS, "overdue_for": [SECOND] * 3, "neighbours": [1] * 3},
        {"task_assoc_pkey"},
    ),
}
ANEW = {
    "time_tables_page": ({"after": "", "lambda": "", "limit": 10, "skipped": 0}, TABLES),
    "purge": (
        {"task_ids": IDS, "statuses": ["success"], "as_of": NOW},
        {
            "task_first_pkey",
            "idempotency_key_by_task",
            "attempt_first_pkey",
            "dead_letter_pkey",
            "graph_pkey",
            "attachment_use_pkey",
        },
    ),
    "expired_dead_letters": (LIMITS, {"dead_letter_by_end", "dead_letter_pkey"}),
    "abandoned_sessions": (LIMITS, {"session_blocked", "dead_letter_pkey"}),
    "idle_resource_keys": (LIMITS, {"resource_use_pkey", "task_assoc_parked"}),
    "expired_graphs": (LIMITS, {"graph_by_end", "graph_pkey", "graph_node_pkey", "graph_edge_pkey"}),
    "ended_hosts": (LIMITS | {"reported_before": NOW - DAY}, {"host_pkey"}),
    "ended_services": (LIMITS | {"reported_before": NOW - DAY}, {"service_instance_pkey"}),
    "expired_keys": (
        PAGE | {"end": "ffffffff-ffff-ffff-ffff-ffffffffffff"},
        {"idempotency_key_by_task", "task_first_pkey"},
    ),
    "unique_keys_without_tasks": (PAGE, {"unique_key_by_task", "unique_key_pkey", "task_first_pkey"}),
    "attributes_without_tasks": (PAGE, {"task_attribute_by_task", "task_attribute_pkey", "task_first_pkey"}),
    "expired_events": (LIMITS, {"event_by_expiry", "event_pkey", "event_key_pkey"}),
    "ended_event_waits": (PAGE, {"event_wait_pkey", "event_wait_by_task", "task_assoc_pkey"}),
    "idle_event_keys": (LIMITS, {"event_key_pkey", "event_wait_pkey"}),
    "settled_operator_changes": (LIMITS, {"operator_change_pkey"}),
    "old_merged_tasks": (LIMITS, {"merged_task_pkey"}),
    "survivors": (PAGE, {"task_first_pkey", "attempt_first_pkey"}),
    "thin": (
        PAGE,
        {"task_first_pkey", "attempt_first_pkey", "idempotency_key_by_task", "attachment_use_pkey"},
    ),
}
OF_TABLES = ("calendar_users", "locked_calendar_tables", "move_calendar_tables")
"""Of the statements of calendars, those about time tables: calendars are few."""
STATEMENTS = TIME_TABLES | {name: CALENDARS[name] for name in OF_TABLES} | ENTITIES | RETENTION
OTHER_PARTITION = re.compile(r"(task|attempt)_(rest|\d+)_\w+")
"""Where these statements look for ids, too, and find none."""
READ_WHOLE = {
    *("ended_hosts", "ended_services", "idle_resource_keys"),
    *("idle_event_keys", "settled_operator_changes"),
}
"""They read a table of some thousands of rows once a minute."""
ROWS_OF_RETENTION = """
insert into task (
    task_id, lambda, collection, priority, payload_encoding, payload, created_at, scheduled_at,
    status, finished_at, fence, failures, crashes
)
select overlay(gen_random_uuid()::text placing (select left(duly_first_id(now())::text, 13)) from 1)::uuid,
    %(lambda)s, '', 3, 1, '', now(), now(), 'success', now(), 1, 0, 0
from generate_series(1, %(count)s);
insert into dead_letter (task_id, lambda, finished_at)
select gen_random_uuid(), %(lambda)s, now() from generate_series(1, %(count)s);
insert into graph (graph_id, name, digest, created_at, finished_at, total, open, succeeded)
select gen_random_uuid(), 'g', '', now(), now(), 1, 0, 1 from generate_series(1, %(count)s);
insert into graph_node (
    graph_id, label, task_id, lambda, place, any_of, ignore_failure, handled, waits_for, conditions
)
select graph_id, 'a', gen_random_uuid(), %(lambda)s, 0, false, false, 0, '{}', '{}' from graph;
insert into graph_edge (from_task, to_task, fires_on) select task_id, gen_random_uuid(), 1 from graph_node;
insert into operator_change (kind, name, changed_at)
select 'gates', 'gate-' || number, now() from generate_series(1, %(count)s) as number;
insert into operator_change (kind, name, changed_at) values ('settled', '', now() - interval '1 day');
insert into session (key, head, length, last_seq)
select '/s' || number, gen_random_uuid(), 1, 1 from generate_series(1, %(count)s) as number
"""


@pytest.fixture
async def connection(dsn, task_states):
    """A connection with the pool's own settings, that makes literals of parameters."""
    await task_states.register()
    arguments = connect_arguments(StoreSettings(dsn=dsn))
    with psycopg.connect(**arguments, autocommit=True, cursor_factory=psycopg.ClientCursor) as opened:
        for table in ("task_assoc", "task_first", "time_table", "dead_letter", "graph"):
            opened.execute(
                f"alter table {table} set (autovacuum_enabled = false)"
            )  # it would make plans anew
        opened.execute("set statement_timeout = '60s'")  # for what fills the tables
        await Retention(task_states.store, DAY, DAY, DAY).run_once()
        yield opened


def fill_all(connection):
    fill(connection, ROWS)
    connection.execute(time_tables.FILL, [LAMBDA, ROWS])
    connection.execute(ROWS_OF_RETENTION, {"lambda": LAMBDA, "count": ROWS})


def tasks(connection, name):
    """Some that the statement is for: they run, or have ended."""
    runs = "select task_id from task_assoc where status = 'claimed' order by task_id limit 3"
    ended = "select task_id from task where status = 'success' order by task_id limit 3"
    return [
        row[0]
        for row in connection.execute(
            runs if name in {"keep_checkpoints", "note_overdue"} else ended
        ).fetchall()
    ]


def explain(connection, text, values, *, anew=False):
    """Run a statement, and return the nodes of its plan."""
    connection.execute("begin")
    if anew:
        connection.execute(PLANNED_ANEW)
    (((explained,),),) = connection.execute(f"explain (analyze, format json) {text}", values).fetchall()
    connection.execute("rollback")
    return list(nodes(explained["Plan"]))


def problem(name, plan, expected):
    """What is wrong with a plan; None: nothing."""
    used = {node["Index Name"] for node in plan if "Index Name" in node}
    used |= {index for node in plan for index in node.get("Conflict Arbiter Indexes", ())}
    used -= {index for index in used if OTHER_PARTITION.fullmatch(index)}
    walked = [node["Relation Name"] for node in plan if node["Node Type"] == "Seq Scan"]
    passed_over = sum(
        node.get(counted, 0) * node["Actual Loops"]
        for node in plan
        for counted in ("Rows Removed by Filter", "Rows Removed by Join Filter")
        + (("Actual Rows",) if "Index Name" in node else ())
    )
    unexpected = used - expected if name in ANEW else used ^ expected
    is_long = name not in READ_WHOLE and (walked or passed_over > ROWS / 10)
    return (unexpected, walked, passed_over) if unexpected or is_long else None


def test_every_statement_beside_the_task_path_has_a_case():
    assert KEPT.keys() | ANEW.keys() == STATEMENTS.keys()
    assert {
        name for name, each in (TIME_TABLES | ENTITIES).items() if each.anew
    } == ANEW.keys() - RETENTION.keys()


async def test_kept_plans_that_were_made_on_new_tables_find_rows_by_index(connection):
    prepared = {}
    for name, (parameters, _) in KEPT.items():
        sql, prepared[name] = numbered(STATEMENTS[name].sql)
        connection.execute(f"prepare {name} as {sql}")
        connection.execute("begin")
        connection.execute(*execute(name, prepared[name], parameters))
        connection.execute("rollback")
    fill_all(connection)

    wrong = {}
    for name, (parameters, expected) in KEPT.items():
        ids = tasks(connection, name)
        asked = parameters | ({"task_ids": ids, "tokens": ids} if "task_ids" in parameters else {})
        plan = explain(connection, *execute(name, prepared[name], asked))
        wrong[name] = problem(name, plan, expected)

    assert {name: what for name, what in wrong.items() if what} == {}


@pytest.mark.parametrize("statistics", ["", "analyze"], ids=["without statistics", "analyzed"])
async def test_plans_that_are_made_anew_find_rows_by_index(connection, statistics):
    fill_all(connection)
    connection.execute(statistics)

    wrong = {}
    for name, (parameters, expected) in ANEW.items():
        text = re.sub(r"%\((\w+)\)b", r"%(\1)s", STATEMENTS[name].sql)
        text = text.replace("{task}", "task_first").replace("{attempt}", "attempt_first")
        asked = parameters | ({"task_ids": tasks(connection, name)} if "task_ids" in parameters else {})
        wrong[name] = problem(name, explain(connection, text, asked, anew=True), expected)

    assert {name: what for name, what in wrong.items() if what} == {}
