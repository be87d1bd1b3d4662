"""The table of a task's fields, against what it cannot write itself: the schema, NewTask, the wire, the SDK, and what people read."""

import dataclasses
import inspect
import re
from pathlib import Path

import psycopg
import pytest

import duly
import duly_console
from duly.callbacks.lambda_of import ScheduleOptions, TaskOptions
from duly_core.postgres.task_fields import FIELDS, SHOWN
from duly_core.tasks.task import NewTask
from duly_wire.v1 import frontend_pb2, task_pb2

ROOT = Path(__file__).parents[2]
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
        "received",
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
            "kill_requested",
            "overdue_since_at",
            "overdue_neighbours",
            "worker_crashes",
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
            "timeout_is_final",
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


def test_the_sdk_sends_each_field_of_the_wire():
    by_other_names = {
        "lambda": "lambda_name",
        "payload_encoding": "payload",
        "scheduled_at": "at",
        "task_id": "idempotency_key",
    }
    # the payload says what is attached
    wire = {field.name for field in frontend_pb2.NewTask.DESCRIPTOR.fields} - {"attachments"}

    attributes = {field.name for field in dataclasses.fields(duly.NewTask)}

    # a debounce is sent as a unique key
    assert attributes - {"lambda_version", "domain", "requires", "debounce"} == {
        by_other_names.get(name, name) for name in wire
    }


def test_the_sdk_shows_each_field_of_the_wire():
    wire = {field.name for field in task_pb2.Task.DESCRIPTOR.fields}
    by_other_names = {
        "lambda": "lambda_name",
        "last_failure": "failure",
        **{name: f"{name}_bytes" for name in ("payload", "result", "checkpoint")},
    }

    assert {field.name for field in dataclasses.fields(duly.Task)} == {
        by_other_names.get(name, name) for name in wire
    }


def test_an_option_of_schedule_is_a_field_of_a_new_task_and_the_other_way_round():
    attributes = {field.name for field in dataclasses.fields(duly.NewTask)}

    assert ScheduleOptions.__optional_keys__ - {"timeout"} == attributes - {"lambda_name", "payload"}


def test_callers_in_sql_may_give_what_each_way_to_make_a_task_takes(dsn):
    with psycopg.connect(dsn) as connection:
        ((names,),) = connection.execute(
            "select proargnames from pg_proc where proname = 'duly_schedule'"
        ).fetchall()

    # the lambda names the domain and the labels
    options = TaskOptions.__optional_keys__ - {"domain", "requires"}
    assert {"scheduled_at" if name == "at" else name for name in options} <= set(names)


@pytest.mark.parametrize("name", sorted(ScheduleOptions.__optional_keys__))
def test_people_read_what_an_option_means(name):
    documented = re.findall(r"`(\w+)=`", (ROOT / "docs" / "clients.md").read_text(encoding="utf-8"))

    assert name in documented
    assert f"`{name}`" in inspect.getdoc(duly.AsyncClient.schedule) or name == "priority"


@pytest.mark.parametrize("name", SHOWN)
def test_the_console_shows_it(name):
    page = Path(duly_console.__file__).parent / "templates" / "task.html"

    assert re.search(rf"task\.{name}|{name}", page.read_text(encoding="utf-8"))
