"""What the statements of the task path cost on each Postgres that is installed, however their plans were made.

Plans are made once, so they are made here at the worst moments: on new tables, truncated and emptied ones, without
statistics, and with statistics of a handful of rows or of rows in one status. Then the tables are filled, and the pages
that a statement touches are counted. The bounds are those of the best version, and 1.3 times as much may be touched.
"""

import pytest
from psycopg import sql

from duly_core.postgres.statements import FAIR, GATED_FAIR, READS, TRANSITIONS
from tests.fixtures import full_tables
from tests.fixtures.full_tables import connect, fill
from tests.fixtures.statement_costs import CASES, CASES_OF_TURNS, GROUP, Planned, choose

LIVE, FINISHED = 5_000, 10_000
MANY = 300_000
"""Indexes of as many rows have the height of those of some millions; to write millions would take minutes on each Postgres."""
pytestmark = (
    pytest.mark.long
)  # tables of thousands of rows on each Postgres; test_store_plans.py has those of one
TABLES = ("task", "task_assoc", "idempotency_key", "attempt", "dead_letter", "time_table")
READS_ALL = {"claimed_under", "claim_again"}
"""Made to read all that is held, after a caller died or a reply was lost."""
OF_SESSIONS = {
    "schedule_in_sessions",
    "tick_in_sessions",
    "enter_nodes",
    "end_waiting",
    "cancel_waiting",
    "unblock_sessions",
    "sessions",
    "session_keys",
    "blocked_sessions",
    "former_blockers",
}
"""test_session_costs.py has those."""
OF_RESOURCES = {
    "resources",
    "resource_keys",
    "resource_kinds",
    "resources_as_declared",
    "scheduling_quotas",
    "backlog",
    "failures_of_dead_letters",
}
"""For people, and for the first task that names one."""
OF_GRAPHS = {
    "schedule_graph",
    "grow_graph",
    "growing_graph",
    "cancel_graph",
    "update_waiting",
    "tasks_by_key",
    "graph_digest",
    "live_nodes",
    "running_graphs",
    "redriven_nodes",
    "graph_places",
    "registered",
}
"""test_graph_costs.py has those that stand on a task's path."""

OF_COMPLETIONS = {"hand_over", "complete", "fail_handed_over", "completed_before"}
"""Of tasks that somebody completes by token: a plain task runs none of them."""

OF_EVENTS = {"wait_for_event", "end_event_waits", "time_out_event_waits", "received_much"}
"""Of tasks that wait for events: a plain task runs none of them but the look for late ones, which `next_timeout` guards."""

OF_GATES = {
    "dequeue_gated",
    "enqueued_gated",
    "drop_gated",
    "delay_gated",
    "park_gated",
    "probe_gated",
    "release_gated",
    "unpark_gated",
    "unpark_replaced",
    "parked_on_gates",
    "behind_gated",
    "queues_of",
    "live_by_status",
}
"""None of them runs while there are no gates, but for the last two: those are for people who set gates or delete lambdas."""

PAGES = {
    "schedule": (753, 976),
    "schedule_plain": (490, 630),
    "schedule_one": (40, 50),
    "tick": (875, 1190),
    "existing": (162, 220),
    "enqueue": (1515, 1808),
    "enqueue_again": (560, 702),
    "put_back": (589, 760),
    "dequeue": (560, 702),
    "reclaim": (347, 415),
    "quarantine_silent": (347, 433),
    "cancel_silent": (235, 278),
    "expire": (839, 1085),
    "claim": (600, 760),
    "claim_work": (687, 850),
    "claimed_before": (320, 400),
    "claim_repeated": (600, 760),
    "heartbeat": (400, 520),
    "finish": (480, 560),
    "finish_one": (30, 40),
    "fail": (1183, 1520),
    "snooze": (918, 1191),
    "release": (982, 1251),
    "applied_before": (200, 280),
    "cancel": (463, 560),
    "request_cancel": (240, 280),
    "redrive": (400, 1002),
    "update_pending": (900, 1200),
    "next_triggers": (9, 12),
    "next_timeout": (22, 24),
    "live": (93, 156),
    "attempts": (123, 166),
}
"""Of 40 tasks, or of what a round may take: on small tables and on large ones. Those of `live` are of versions before 17,
which look each id of an array up by itself; from 17 on it is two thirds on small tables. Two thirds of `next_timeout` are
read when it is planned: the top of each index of task_assoc and resource_use. Later runs read 8."""

SMALL = {name: small for name, (small, _) in PAGES.items()}
LARGE = {name: large for name, (_, large) in PAGES.items()}
PAGES_OF_TURNS = {
    "claim_work_fair": 970,
    "claim_work_gated_fair": 2030,
    "enqueue_fair": 2420,
    "enqueue_gated_fair": 3470,
}
"""Of as many tasks on small tables, of which each has one of a hundred fair keys."""


def test_every_statement_of_the_task_path_has_its_cost():
    assert (
        (TRANSITIONS.keys() | READS.keys())
        == CASES.keys()
        | READS_ALL
        | OF_SESSIONS
        | OF_RESOURCES
        | OF_GRAPHS
        | OF_GATES
        | OF_COMPLETIONS
        | OF_EVENTS
    )
    assert PAGES.keys() == CASES.keys()
    assert PAGES_OF_TURNS.keys() == CASES_OF_TURNS.keys()
    assert PAGES_OF_TURNS.keys() == {each.name for each in (*FAIR.values(), *GATED_FAIR.values())}


def leave_new(_connection):
    """As after the migration."""


def vacuum_new(connection):
    """Nothing was ever in them, and this is known."""
    connection.execute("vacuum (analyze)")


def truncate(connection):
    fill(connection, 3_000, 3_000)
    connection.execute("vacuum (analyze)")
    connection.execute(f"truncate {', '.join(TABLES)}")


def empty(connection):
    fill(connection, 12_000, 20_000)
    for table in TABLES:
        connection.execute(sql.SQL("delete from {}").format(sql.Identifier(table)))
    connection.execute("vacuum")
    connection.execute("analyze")


def hold_a_handful(connection):
    fill(connection, 10, 10)
    connection.execute("vacuum (analyze)")


def hold_a_handful_unseen(connection):
    """No statistics of it."""
    fill(connection, 30, 30)


def hold_rows_that_run(connection):
    fill(connection, 3_000, 10)
    connection.execute("""
        update task_assoc set status = 'claimed', token = task_id, holder = 'host', cancel_requested = false,
            next_trigger_at = now() + interval '1 day'
    """)
    connection.execute("vacuum (analyze)")


def too_dear(planned, ids, bounds):
    """Statements that touch more pages than they should, with what they touch and their plans."""
    found = {}
    for name, bound in bounds.items():
        rows, pages = planned.run(name, ids)
        if pages > 1.3 * bound + 5 or not rows:
            found[name] = f"{rows} rows, {pages} pages, not {bound}:\n{planned.explain(name, ids)}"
    return found


@pytest.mark.parametrize(
    "prepare",
    [leave_new, vacuum_new, truncate, empty, hold_a_handful, hold_a_handful_unseen, hold_rows_that_run],
)
async def test_plans_made_at_the_worst_moment_cost_the_same_when_the_tables_are_full(dsn_of_each, prepare):
    await full_tables.prepare(dsn_of_each)
    with connect(dsn_of_each) as connection, connect(dsn_of_each) as another:
        prepare(another)
        planned = Planned(connection)
        fill(another, LIVE, FINISHED)
        ids = choose(another)

        dear = too_dear(planned, ids, SMALL)

    assert not dear, "\n".join(dear.values())


@pytest.mark.parametrize("prepare", [leave_new, truncate, empty, hold_a_handful, hold_rows_that_run])
async def test_turns_cost_the_same_whenever_their_plans_were_made(dsn_of_each, prepare):
    await full_tables.prepare(dsn_of_each)
    with connect(dsn_of_each) as connection, connect(dsn_of_each) as another:
        another.execute(
            "alter table task_assoc alter fair_key set default 'key-' || trunc(random() * 100)::text"
        )
        prepare(another)
        planned = Planned(connection, CASES_OF_TURNS)
        fill(another, LIVE, FINISHED)
        ids = choose(another)

        dear = too_dear(planned, ids, PAGES_OF_TURNS)

    assert not dear, "\n".join(dear.values())


@pytest.mark.parametrize("command", [None, "vacuum", "vacuum (analyze)"])
async def test_plans_made_on_full_tables_cost_the_same_whatever_statistics_there_are(dsn_of_each, command):
    await full_tables.prepare(dsn_of_each)
    with connect(dsn_of_each) as connection:
        fill(connection, LIVE, FINISHED)
        if command:
            connection.execute(command.encode())
        ids = choose(connection)

        dear = too_dear(Planned(connection), ids, SMALL)

    assert not dear, "\n".join(dear.values())


@pytest.mark.timeout(600)
async def test_plans_hold_with_hundreds_of_thousands_of_live_and_of_finished_tasks(dsn_of_each):
    await full_tables.prepare(dsn_of_each)
    dear = {}
    with connect(dsn_of_each) as connection, connect(dsn_of_each) as another:
        truncate(connection)
        planned = Planned(connection)
        fill(another, MANY, MANY)
        ids = choose(another)

        dear["truncated"] = too_dear(planned, ids, LARGE)
        for command in (None, "vacuum", "vacuum (analyze)"):
            with connect(dsn_of_each) as anew:
                if command:
                    anew.execute(command.encode())
                dear[command] = too_dear(Planned(anew), ids, LARGE)

    assert not any(dear.values()), dear


async def test_an_array_on_a_later_column_would_be_noticed(dsn_of_each):
    """The claim as it was: before Postgres 17 its plan of empty tables walks all tasks of a lambda."""
    await full_tables.prepare(dsn_of_each)
    with connect(dsn_of_each) as connection:
        version = connection.info.server_version // 10_000
        empty(connection)
        connection.execute("""
            prepare was (uuid[], text[]) as
            select entity.priority from unnest($1, $2) as claimed (task_id, lambda) left join lateral (
                select task.priority from task
                where task.task_id = any (array[claimed.task_id]) and task.lambda = any (array[claimed.lambda])
                    and task.task_id between ($1)[1] and ($1)[cardinality($1)]
                limit 1
            ) as entity on true
        """)
        connection.execute("execute was('{}', '{}')")
        with connect(dsn_of_each) as another:
            fill(another, LIVE, FINISHED)
            held = choose(another).held
        planned = Planned(connection)
        connection.execute("begin")
        before = planned.pages()

        connection.execute("execute was(%s, %s)", [held, [full_tables.LAMBDAS[0]] * GROUP])

        assert (planned.pages() - before > 10 * PAGES["claim"][0]) == (version < 17)
