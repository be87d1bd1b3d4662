"""The plans of searches: each reads a bounded number of rows of a table that may be large."""

import pytest
from psycopg import AsyncClientCursor

from duly_core.access.grants import Scope
from duly_core.search import store as queries
from duly_core.search.rules import IdPart
from duly_wire.ids import new_task_id

SCOPE = Scope(("lambda-1*",), ("lambda-2*",), "ann")
MOST_READ = 1_000
"""In place of MOST_READ: the tables have eight times as many rows."""
MOST = 3 * MOST_READ + 3_000
"""Rows that a search may read."""
FILL = """
set statement_timeout = 0;
insert into lambda (name, owner, version, max_attempts, max_crashes, max_runtime, backoff_initial, backoff_factor, backoff_max,
    payload_limit, registered_at, updated_at)
    select 'lambda-' || number, '', '1', 1, 1, '1 min', '0', 1, '0', 1, now(), now() from generate_series(1, 100) as number;
insert into task (task_id, lambda, created_at, scheduled_at, status, finished_at, fence, failures, crashes, failure_kind, failure_message, failed_at)
    select duly_first_id(now() - number * interval '1 second'), 'lambda-' || number % 100, now(), now(), 'fatal_failure', now(), 1, 1, 0, 1, 'x', now()
    from generate_series(1, 8000) as number;
insert into dead_letter (task_id, lambda, finished_at) select task_id, lambda, now() from task on conflict do nothing;
insert into task_assoc (task_id, lambda, collection, priority, status, next_trigger_at, due_at)
    select duly_first_id(now() + number * interval '1 second'), 'lambda-1', '', 3, 'new', now(), now() from generate_series(1, 8000) as number;
insert into idempotency_key (lambda, key, task_id, created_at)
    select 'lambda-' || number % 100, 'key-' || number, gen_random_uuid(), now() from generate_series(1, 8000) as number;
insert into unique_key (lambda, key, task_id, taken_at) select lambda, key, task_id, created_at from idempotency_key;
insert into task_attribute (name, value, task_id) select 'of', 'all', task_id from task;
insert into session (key, head, length, last_seq) select '/key-' || number, gen_random_uuid(), 1, 1 from generate_series(1, 8000) as number;
insert into graph (graph_id, name, digest, created_at, total, open)
    select duly_first_id(now() - number * interval '1 second'), 'graph', '', now(), 1, 1 from generate_series(1, 8000) as number;
analyze
"""


@pytest.fixture
async def full(store, monkeypatch):
    monkeypatch.setattr(queries, "MOST_READ", MOST_READ)
    async with store.connection() as connection:
        await connection.set_autocommit(True)
        for statement in FILL.split(";"):
            await connection.execute(statement)
    return store


def cases(scope):
    part = IdPart(new_task_id().hex[:6])
    return {
        "tasks_by_begin": queries.tasks_by_begin(part, scope, 5),
        "tasks_by_begin_and_end": queries.tasks_by_begin(IdPart(part.begin, "00fe"), scope, 5),
        "tasks_by_end": queries.tasks_by_end("00fe", scope, 5),
        "tasks_by_idempotency_key": queries.tasks_by_key("idempotency_key", "key-7", scope, 5),
        "tasks_by_unique_key": queries.tasks_by_key("unique_key", "key-7", scope, 5),
        "graphs_by_begin": queries.graphs_by_begin(part, scope, 5),
        "graphs_by_text": queries.graphs_by_text("nothing", "00fe", scope, 5),
        "sessions_by_begin": queries.sessions_by_begin("key-7", None, 5),
        "tasks_by_attribute": queries.tasks_by_attribute("of", "all", scope, 5),
        "newest_letters": queries.newest_letters(scope),
    }


@pytest.mark.parametrize("scope", [None, SCOPE])
async def test_no_search_reads_all_of_a_large_table(full, scope):
    read = {}
    async with full.connection() as connection:
        for name, (query, parameters) in cases(scope).items():
            cursor = AsyncClientCursor(connection)
            await cursor.execute(f"explain (analyze, timing off, format json) {query}".encode(), parameters)
            ((plan,),) = await cursor.fetchall()
            read[name] = rows_read(plan[0]["Plan"])

    assert {name: rows for name, rows in read.items() if rows > MOST} == {}
    assert read["tasks_by_begin_and_end"] <= MOST_READ + 10
    assert read["sessions_by_begin"] <= 200  # the lambdas, and the sessions


def rows_read(node):
    """Return how many rows the scans of a plan read, those that their filters removed among them."""
    own = 0
    if "Relation Name" in node and not node["Node Type"].startswith("Bitmap Index"):
        removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
        own = (node["Actual Rows"] + removed) * node["Actual Loops"]
    return own + sum(map(rows_read, node.get("Plans", ())))
