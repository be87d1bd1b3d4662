"""Each .sql file of the store says here what holds the cost of its statements, so that a new one does not escape the tests of plans."""

from duly_core.postgres.statements import load, statement_files
from tests.pools import test_pool_plans
from tests.postgres import test_store_plans
from tests.task_output import test_output_plans
from tests.trends import test_trend_plans
from tests.watches import test_watch_plans

PLANS = frozenset(test_store_plans.CASES)
"""test_store_plans.py: rows are found by index, whenever the plan was made."""

HELD_BY = {
    "tasks/transitions.sql": PLANS,
    "tasks/reads.sql": PLANS,
    "tasks/locks.sql": PLANS,
    "tasks/unique.sql": PLANS,
    "gates/gates.sql": PLANS,
    "events/events.sql": PLANS | {*test_store_plans.FOR_PEOPLE},
    "fairness/fairness.sql": PLANS,
    "task_output/output.sql": set(test_output_plans.CASES),
    "watches/watches.sql": set(test_watch_plans.CASES),
    "trends/trends.sql": test_trend_plans.CASES.keys() | test_trend_plans.FEW_ROWS.keys(),
    # the autoscaler reads tasks in each round; pools, their plans and hosts are few
    "pools/pools.sql": test_pool_plans.CASES.keys() | test_pool_plans.OF_POOLS,
    # by id, and no test looks at their plans, but for that of the last
    "tasks/entities.sql": {
        "purge",
        "keep_checkpoints",
        "note_overdue",
        "lock_child_sessions",
        "give_turns",
        "keep_attributes",
    },
    # there are thousands of time tables, not millions; no test looks at the plans
    "time_tables/time_tables.sql": {
        "time_table_clock",
        "time_table_lambdas",
        "locked_time_tables",
        "time_tables_by_name",
        "time_tables_page",
        "create_time_table",
        "change_time_table",
        "delete_time_tables",
        "pause_time_tables",
        "resume_time_table",
        "next_time_table",
        "due_time_tables",
        "released_time_tables",
        "move_time_tables_on",
        "put_off_time_tables",
    },
    # calendars are few; a test looks at what they ask of time tables
    "time_tables/calendars.sql": {
        "lock_calendars",
        "calendars_by_name",
        "calendars_page",
        "put_calendar",
        "delete_calendars",
        "calendar_users",
        "locked_calendar_tables",
        "move_calendar_tables",
    },
}
OF_RETENTION = {
    "attachments/sweeps.sql",
    "upkeep/retention.sql",
    "upkeep/fences.sql",
    "upkeep/partitions.sql",
}
"""They read whole partitions, or tables of attachments by pages, one at a time; no test looks at the plans."""
OF_FEW_ROWS = {
    "access/access.sql",
    "attachments/attachments.sql",
    "cells/cells.sql",
    "cells/changes.sql",
    "cells/triggers.sql",
    "event_addresses/addresses.sql",
    "fleet/fleet.sql",
    "graphs/graphs.sql",
    "limits/limits.sql",
    "live_settings/live_settings.sql",
    "notifications/notifications.sql",
    "postgres/catalogue.sql",
    "postgres/server.sql",
    "slo/slo.sql",
}
"""Their tables are small, or they read by key; what limits do to tasks is in functions, which test_store_plans.py knows."""
FOR_PEOPLE = {
    "counting/counting.sql",
    "explain/explain.sql",
    "gates/breaker_history.sql",
    "problems/problems.sql",
    "tasks/dead_letter_counts.sql",
    "tasks/history.sql",
}
"""Each stops at a number of rows; tests of these rooms look at the plans."""


def test_the_statements_of_every_sql_file_have_a_class_of_cost():
    assert set(statement_files()) == HELD_BY.keys() | OF_RETENTION | OF_FEW_ROWS | FOR_PEOPLE
    for name, held in HELD_BY.items():
        assert load(name).keys() <= held, name
