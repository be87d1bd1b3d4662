"""What the statements of sessions cost on each Postgres that is installed, however their plans were made.

As test_store_plans_everywhere.py: plans are made on tables with a handful of sessions, the functions' own plans among
them. Then the tables are filled, and the pages that a statement touches are counted.
"""

import pytest
from psycopg import sql

from tests.fixtures import full_tables
from tests.fixtures.full_sessions import CASES, choose, fill_sessions
from tests.fixtures.full_tables import connect, fill
from tests.fixtures.statement_costs import Planned

SESSIONS, FINISHED, LIVE = 20_000, 100_000, 2_000
HANDFUL = 30
TABLES = ("task", "task_assoc", "session", "idempotency_key", "attempt", "dead_letter")

pytestmark = [
    pytest.mark.long,  # tables of 160,000 rows on each Postgres; test_store_plans.py has the plans of one
    pytest.mark.timeout(600),
]

PAGES = {
    "schedule_in_sessions": 1220,
    "schedule_in_sessions__by_due": 1760,
    "finish": 1780,
    "fail": 2650,
    "cancel_waiting": 1080,
    "lock_waiting": 320,
    "end_waiting": 1430,
    "lock_over": 220,
    "lock_blocked": 250,
    "unblock_sessions": 1320,
    "sessions": 500,
    "blocked_sessions": 140,
    "session_keys": 44,
    "session_keys__blocked": 49,
}
"""Of 40 tasks, each in a session of its own, or of 40 sessions."""


def test_every_case_has_its_cost():
    assert PAGES.keys() == CASES.keys()


def leave_new(_connection):
    """As after the migration."""


def truncate(connection):
    fill_sessions(connection, 2_000)
    connection.execute("vacuum (analyze)")
    connection.execute(f"truncate {', '.join(TABLES)}")


def empty(connection):
    fill(connection, LIVE, 10_000)
    fill_sessions(connection, 5_000)
    for table in TABLES:
        connection.execute(sql.SQL("delete from {}").format(sql.Identifier(table)))
    connection.execute("vacuum")
    connection.execute("analyze")


def hold_a_handful(connection):
    """Each session has its statistics, and is alone with its value."""
    fill_sessions(connection, HANDFUL)
    connection.execute("vacuum (analyze)")


def hold_one_session(connection):
    """All tasks are of one session."""
    fill_sessions(connection, 300)
    connection.execute("update task_assoc set session = '/one' where status = 'waiting'")
    connection.execute("vacuum (analyze)")
    connection.execute("delete from task_assoc where session = '/one'")
    connection.execute("delete from session")


def too_dear(planned, ids):
    """Cases that touch more pages than they should, with what they touch and their plans."""
    found = {}
    for name in CASES:
        rows, pages = planned.run(name, ids)
        if pages > 1.3 * PAGES[name] + 5 or not rows:
            found[name] = (
                f"{name}: {rows} rows, {pages} pages, not {PAGES[name]}:\n{planned.explain(name, ids)}"
            )
    return found


def fill_all(connection):
    fill(connection, LIVE, FINISHED)
    fill_sessions(connection, SESSIONS)


@pytest.mark.parametrize("prepare", [leave_new, truncate, empty, hold_a_handful, hold_one_session])
async def test_plans_made_at_the_worst_moment_cost_the_same_when_there_are_many_sessions(
    dsn_of_each, prepare
):
    await full_tables.prepare(dsn_of_each)
    with connect(dsn_of_each) as connection, connect(dsn_of_each) as another:
        prepare(another)
        fill_sessions(another, HANDFUL)
        planned = Planned(connection, CASES, choose(another))
        fill_all(another)

        dear = too_dear(planned, choose(another))

    assert not dear, "\n".join(dear.values())


async def test_plans_made_among_many_sessions_cost_the_same_whatever_statistics_there_are(dsn_of_each):
    await full_tables.prepare(dsn_of_each)
    dear = {}
    with connect(dsn_of_each) as connection:
        fill_all(connection)
        ids = choose(connection)

        for command in (None, "vacuum", "vacuum (analyze)"):
            if command:
                connection.execute(command.encode())
            with connect(dsn_of_each) as anew:
                dear |= too_dear(Planned(anew, CASES, ids), ids)

    assert not dear, "\n".join(dear.values())
