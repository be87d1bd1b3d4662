"""The plans of statements on watches: events are read by their place, in a table of many, and watches by their keys."""

import re
from datetime import timedelta
from uuid import UUID

import pytest

from duly_core.postgres.arrays import texts
from duly_core.watches.statements import WATCHES

WATCH = {"watch_id": UUID(int=1), "principal": "ann"}

CASES = {
    "is_watched": {},
    "begin_watch": WATCH
    | {
        "filter": "{}",
        "keys": texts(["lambda:a"]),
        "keep_for": timedelta(minutes=10),
        "most": 2_000,
        "most_of_one": 200,
        "first_after": timedelta(seconds=2),
    },
    "renew_watch": WATCH,
    "events_after": {"xid": 5_000, "kind": 0, "seq": 0, "limit": 100},
    "forget_watches": {},
    "forget_events": {"limit": 100, "older_than": timedelta(days=1)},
}

FILL = """
insert into task_event (xid, kind, at, lambda, task_id, status, run)
    select number::text::xid8, 2, now(), 'mail.send', gen_random_uuid(), 'success', 1 from generate_series(1, 20000) as number;
insert into watch (watch_id, principal, filter, source, began_xid, began_seq, began_at, keep_for, until_at)
    select gen_random_uuid(), 'ann', '{}', duly_event_source(), '1', 1, now(), '10 minutes', now() + interval '1 hour'
    from generate_series(1, 2000);
insert into watch_key (key, watch_id)
    select 'graph:' || gen_random_uuid(), watch_id from watch;
analyze task_event, watch, watch_key
"""


@pytest.fixture
async def full(store):
    async with store.connection() as connection:
        for statement in FILL.split(";"):
            await connection.execute(statement)
    return store


async def _plan(connection, text, parameters=()):
    cursor = await connection.execute(f"explain (analyze, timing off) {text}", parameters)
    return "\n".join(line for (line,) in await cursor.fetchall())


async def test_no_statement_reads_all_events(full):
    plans = {}
    async with full.connection() as connection:
        for name, parameters in CASES.items():
            async with connection.transaction(force_rollback=True):
                plans[name] = await _plan(connection, WATCHES[name].sql, parameters)

    assert CASES.keys() == WATCHES.keys()
    assert {name: plan for name, plan in plans.items() if re.search(r"Seq Scan on task_event\b", plan)} == {}
    assert "task_event_pkey" in plans["events_after"]
    assert "Rows Removed by Filter" not in plans["events_after"]


async def test_who_watches_a_task_is_found_by_keys(full):
    async with full.connection() as connection:
        body = """
            select from watch_key
            where key = any (array['*', 'lambda:mail.send', 'graph:' || uuid '01a219ba-c2b4-71ec-9664-bbd90024fe76', 'session:/ann'])
        """
        plan = await _plan(connection, body)

    assert "watch_key_pkey" in plan
    assert "Rows Removed by Filter" not in plan
