"""Rows that cannot be: each CHECK of the schema, tried with a row that differs in one value from one that is taken."""

from uuid import uuid4

import psycopg

from duly_core.tasks.lifecycle import LIVE, Status
from tests.fixtures.rows import ASSOC, ATTEMPT, ENDED, FAILED, HELD, KEY, LAMBDA, TASK, insert

LARGE = b"x" * (1024 * 1024 + 1)

IMPOSSIBLE = [
    *(
        ("lambda", LAMBDA | {"name": name})
        for name in ("", "Mail", "mail send", ".mail", "m" * 129, "mail\n", "é")
    ),
    *(("lambda", LAMBDA | {name: 0}) for name in ("max_attempts", "max_crashes")),
    *(("lambda", LAMBDA | {name: "0"}) for name in ("max_runtime", "crash_window")),
    ("lambda", LAMBDA | {"backoff_initial": "-1 s"}),
    ("lambda", LAMBDA | {"backoff_factor": 0.5}),
    ("lambda", LAMBDA | {"backoff_max": "0.5 s"}),
    *(("lambda", LAMBDA | {"payload_limit": limit}) for limit in (-1, 1024 * 1024 + 1)),
    *(("task", TASK | {"priority": priority}) for priority in (0, 5)),
    *(("task", TASK | {"payload_encoding": encoding}) for encoding in (0, 5)),
    ("task", TASK | {"payload": LARGE}),
    *(("task", TASK | {"scheduled_at": moment}) for moment in ("infinity", "-infinity")),
    ("task", TASK | {"expires_at": "infinity"}),
    *(("task", ENDED | {"status": str(status)}) for status in sorted(LIVE)),
    *(("task", ENDED | {name: None}) for name in ("finished_at", "fence", "failures", "crashes", "status")),
    ("task", TASK | {"fence": 1}),
    ("task", TASK | {"result": b"1"}),
    ("task", FAILED | {"result": b"1"}),
    ("task", ENDED | {"result": LARGE}),
    ("task", ENDED | {"result": b"1", "result_encoding": 5}),
    ("task", FAILED | {"failure_kind": None, "failed_at": None}),
    ("task", FAILED | {"failed_at": None}),
    ("task", FAILED | {"failure_message": "x" * 4097}),
    *(("task_assoc", ASSOC | {"status": str(status)}) for status in sorted(set(Status) - LIVE)),
    *(("task_assoc", ASSOC | {"next_trigger_at": moment}) for moment in ("infinity", "-infinity")),
    ("task_assoc", ASSOC | {"token": str(uuid4()), "holder": "host"}),
    ("task_assoc", HELD | {"token": None, "holder": None}),
    ("task_assoc", HELD | {"holder": None}),
    ("task_assoc", ASSOC | {"holder": "host"}),
    ("task_assoc", ASSOC | {"failures": 1}),
    ("task_assoc", HELD | {"failures": 1, "crashes": 1}),
    *(("task_assoc", ASSOC | {name: -1}) for name in ("fence", "failures", "crashes")),
    *(("task_assoc", HELD | {"progress": progress}) for progress in (-0.1, 1.1, "NaN")),
    ("task_assoc", HELD | {"progress_note": "x" * 1025}),
    ("task_assoc", ASSOC | {"priority": 0}),
    *(("attempt", ATTEMPT | {name: 0}) for name in ("fence", "attempt")),
    ("attempt", ATTEMPT | {"failure_kind": None}),
    *(("attempt", ATTEMPT | {"outcome": outcome}) for outcome in ("snoozed", "released", "cancelled")),
    ("attempt", ATTEMPT | {"failure_message": "x" * 4097}),
    *(("idempotency_key", KEY | {"key": key}) for key in ("", "k" * 256)),
]


def is_refused(connection, table, row):
    try:
        insert(connection, table, row)
    except psycopg.errors.CheckViolation:
        return True
    return False


def test_the_store_refuses_rows_that_cannot_be(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        taken = [(table, row) for table, row in IMPOSSIBLE if not is_refused(connection, table, row)]

    assert taken == []


def test_the_rows_that_those_differ_from_are_taken(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        insert(connection, "lambda", LAMBDA)
        for row in (TASK, ENDED, FAILED):
            insert(connection, "task", row | {"task_id": str(uuid4())})
        for row in (ASSOC, HELD):
            insert(connection, "task_assoc", row | {"task_id": str(uuid4())})
        insert(connection, "idempotency_key", KEY)
        insert(connection, "attempt", ATTEMPT)
        insert(connection, "attempt", ATTEMPT | {"fence": 2, "outcome": "snoozed", "failure_kind": None})
