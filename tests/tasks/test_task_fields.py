"""The table of a task's fields, against what it cannot write itself: the schema, NewTask, and the wire."""

import psycopg
import pytest

from duly_core.postgres.task_fields import FIELDS, SHOWN
from duly_core.tasks.task import NewTask
from duly_wire.v1 import frontend_pb2, task_pb2

OF_STORE = {
    "task": {
        *(
            "created_at",
            "scheduled_at",
            "status",
            "started_at",
            "finished_at",
            "fence",
            "failures",
            "crashes",
            "last_token",
        ),
        *(
            "result_encoding",
            "result",
            "failure_kind",
            "failure_message",
            "failed_at",
            "redrives",
            "graph",
            "max_runtime",
        ),
        *(
            "time_table",
            "edits",
            "checkpoint_count",
            "scheduled_as",
            "checkpoint",
            "events",
            "enqueued_at",
            "claimed_at",
        ),
        "holder",
    },
    "task_assoc": {
        *(
            "status",
            "next_trigger_at",
            "due_at",
            "fence",
            "failures",
            "crashes",
            "token",
            "last_token",
            "holder",
        ),
        *(
            "cancel_requested",
            "progress",
            "progress_note",
            "crashed_at",
            "claimed_at",
            "session",
            "session_rank",
        ),
        *(
            "session_seq",
            "session_policy",
            "graph",
            "open_edges",
            "any_of",
            "doom",
            "taken",
            "parked_on",
            "parked_key",
        ),
        *("start_at", "edits", "passed_gates", "events", "enqueued_at"),
    },
}
"""Columns that no caller gives: what the store decides, and what a graph or a time table says."""


@pytest.mark.parametrize("table", ["task", "task_assoc"])
def test_each_column_is_a_field_or_is_the_stores_own(dsn, table):
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped",
            [table],
        ).fetchall()

    fields = {field.column for field in FIELDS if field.column and (table == "task" or field.assoc)}
    assert {name for (name,) in rows} == fields | OF_STORE[table]


def test_each_field_is_an_attribute_of_new_task():
    of_session = {"session_order", "session_policy"}

    assert {field.name for field in FIELDS} - of_session == set(NewTask._fields)


def test_what_may_be_null_is_what_a_new_task_may_leave_out():
    empty = {name for name, default in NewTask._field_defaults.items() if default in (None, ())}

    assert {field.name for field in FIELDS if field.optional} == empty | {"session_order", "session_policy"}


def test_each_field_is_one_of_the_wire():
    wire = {field.name for field in frontend_pb2.NewTask.DESCRIPTOR.fields}
    other_names = {
        "lambda_name": "lambda",
        "encoding": "payload_encoding",
        "session_order": "session",
        "session_policy": "session",
    }
    names = {other_names.get(field.name, field.name) for field in FIELDS} - {
        "scheduled_by"
    }  # the caller's own name

    assert names == wire


def test_what_is_shown_is_a_field_of_a_task():
    assert {field.name for field in task_pb2.Task.DESCRIPTOR.fields} >= set(SHOWN)
