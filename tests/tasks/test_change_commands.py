"""Changing, cancelling and deleting tasks from the wire, the SDK and the shell, against a Frontend that serves."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

import duly
from duly_core.results.store import set_results
from duly_core.tasks.task import Result
from duly_wire.enums import Outcome
from duly_wire.ids import new_task_id
from duly_wire.v1 import frontend_pb2, task_pb2
from tests.fixtures.services import refusal
from tests.fixtures.task_states import LAMBDA

NEW = duly.TaskStatus.NEW
UNKNOWN = "0190a8a0-0000-7000-8000-000000000000"


def text_of(task):
    return str(UUID(bytes=task.task_id))


async def update(frontend, *updates):
    request = frontend_pb2.UpdateTaskRequest(updates=updates)
    return list((await frontend.stub.UpdateTask(request)).results)


async def ended(task_states, **fields):
    task = await task_states.processing(**fields)
    await set_results(task_states.store, [Result(task.task_id, task.token, Outcome.SUCCESS)])
    return task


async def test_a_change_that_cannot_be_names_its_field(frontend, task_states):
    for fields, field in [
        ({}, ""),
        ({"task_id": "nonsense", "priority": 1}, "task_id"),
        ({"delay": Duration(seconds=-1)}, "delay"),
        ({"delay": Duration(seconds=400 * 86_400)}, "delay"),
        ({"scheduled_at": Timestamp(seconds=253402300799)}, "scheduled_at"),
        ({"priority": 9}, "priority"),
        ({"payload": b"1", "payload_encoding": 9}, "payload_encoding"),
        ({"payload_encoding": 1}, "payload_encoding"),
    ]:
        task = await task_states.new()
        before = await task_states.row(task.task_id)

        (result,) = await update(frontend, frontend_pb2.TaskUpdate(**{"task_id": text_of(task)} | fields))

        assert (result.error.code, result.error.field) == (task_pb2.ERROR_CODE_INVALID_ARGUMENT, field)
        assert await task_states.row(task.task_id) == before


async def test_each_update_of_a_call_is_answered_for_itself(frontend, task_states):
    await task_states.register(payload_limit=3)
    running, waits, large = await task_states.claimed(), await task_states.new(), await task_states.new()
    urgent = [
        frontend_pb2.TaskUpdate(task_id=task_id, priority=task_pb2.PRIORITY_URGENT)
        for task_id in (text_of(waits), text_of(waits), text_of(running), UNKNOWN)
    ]

    results = await update(
        frontend, *urgent, frontend_pb2.TaskUpdate(task_id=text_of(large), payload=b"1234")
    )

    assert [result.error.code for result in results] == [
        task_pb2.ERROR_CODE_UNSPECIFIED,
        task_pb2.ERROR_CODE_INVALID_ARGUMENT,
        task_pb2.ERROR_CODE_NOT_PENDING,
        task_pb2.ERROR_CODE_NOT_FOUND,
        task_pb2.ERROR_CODE_PAYLOAD_TOO_LARGE,
    ]
    assert results[0].status == task_pb2.TASK_STATUS_NEW
    assert results[2].status == task_pb2.TASK_STATUS_CLAIMED
    assert "it runs now" in results[2].error.message


async def test_a_change_that_makes_a_task_due_sooner_wakes_who_looks_for_it(frontend, task_states, dsn):
    task = await task_states.new(delay=timedelta(hours=1))
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as listener:
        await listener.execute("listen duly_due")

        await update(frontend, frontend_pb2.TaskUpdate(task_id=text_of(task), delay=Duration()))

        async for notification in listener.notifies(timeout=10, stop_after=1):
            assert notification.payload == f"0 {LAMBDA}"
            break
        else:
            pytest.fail("nobody was told")


async def test_a_filter_that_cannot_be_is_refused_by_its_name(frontend, task_states):
    for method, fields, field in [
        ("CancelTasks", {"statuses": [task_pb2.TASK_STATUS_SUCCESS]}, "statuses"),
        ("CancelTasks", {"limit": 1001}, "limit"),
        ("CancelTasks", {"after": "nonsense"}, "after"),
        ("PurgeTasks", {"statuses": [task_pb2.TASK_STATUS_NEW]}, "statuses"),
        ("PurgeTasks", {"lambda": "x" * 400}, "lambda"),
        ("PurgeTasks", {"limit": -1}, "limit"),
    ]:
        request = getattr(frontend_pb2, f"{method}Request")(**fields)

        refused = await refusal(getattr(frontend.stub, method)(request))

        assert (refused.code.name, refused.field) == ("INVALID_ARGUMENT", field)


# ---- the SDK ---------------------------------------------------------------------------------------------


async def test_the_sdk_changes_a_task_and_says_why_it_could_not(client, task_states):
    waits, runs = await task_states.new(payload=b"1"), await task_states.processing()

    status = await client.update(text_of(waits), payload=None, priority=duly.Priority.LOW)

    task = await client.get(text_of(waits))
    assert (status, task.payload, task.priority, task.edits) == (NEW, None, duly.Priority.LOW, 1)
    with pytest.raises(duly.NotPendingError, match="it runs now") as caught:
        await client.update(text_of(runs), delay=timedelta(hours=1))
    assert caught.value.status is duly.TaskStatus.PROCESSING
    with pytest.raises(duly.TaskNotFoundError):
        await client.update(new_task_id(), priority=duly.Priority.LOW)
    with pytest.raises(duly.InvalidTaskError, match="nothing is to change"):
        await client.update(text_of(waits))
    with pytest.raises(duly.InvalidTaskError, match="not both"):
        await client.update(text_of(waits), at=datetime.now(UTC), delay=timedelta())


async def test_the_sdk_cancels_and_purges_by_filter_through_all_pages(client, task_states, monkeypatch):
    monkeypatch.setattr("duly.tasks.bulk._PAGE", 2)
    for _ in range(5):
        await task_states.new(collection="spring")

    assert await client.cancel_where(collection="spring", dry_run=True) == 5
    assert await client.cancel_where(collection="spring", limit=3) == 3
    assert await client.cancel_where(collection="spring") == 2
    assert await client.purge(lambda_name=LAMBDA, statuses=[duly.TaskStatus.CANCELLED], dry_run=True) == 5
    assert await client.purge(lambda_name=LAMBDA) == 5
    assert [task async for task in client.list()] == []


# ---- the shell -------------------------------------------------------------------------------------------


async def test_the_shell_changes_tasks_each_for_itself(run_duly, task_states):
    waits, runs = await task_states.new(), await task_states.claimed()

    done = await run_duly("update", text_of(waits), text_of(runs), "--delay", "1h", "--payload", '{"a": 1}')
    nothing = await run_duly("update", text_of(waits))

    assert (done.exit_code, done.stdout) == (1, f"{text_of(waits)}: updated, is new\n")
    assert f"{text_of(runs)}: it runs now" in done.stderr
    assert nothing.exit_code == 2
    assert '{"a": 1}' in (await run_duly("get", text_of(waits))).stdout


async def test_the_shell_asks_before_it_cancels_or_deletes_many(run_duly, task_states):
    await task_states.new(collection="spring")
    await ended(task_states)

    unasked = await run_duly("cancel", "--lambda", LAMBDA)
    dry = await run_duly("cancel", "--lambda", LAMBDA, "--dry-run")
    cancelled = await run_duly("cancel", "--collection", "spring", "--yes")
    without = await run_duly("purge")
    deleted = await run_duly("purge", "--status", "success", "--yes")
    nothing = await run_duly("purge", "--status", "success", "--until", "1d")

    assert (unasked.exit_code, dry.stdout) == (2, "would be cancelled: 1\n")
    assert cancelled.stdout == "cancelled: 1\n"
    assert without.exit_code == 2
    assert deleted.stdout.endswith("deleted: 1\n")
    assert nothing.stdout == "no finished tasks match\n"


async def test_the_shell_says_that_a_cancel_by_filter_leaves_tasks_that_run_unless_they_are_named(
    run_duly, task_states
):
    await task_states.processing()

    left = await run_duly("cancel", "--lambda", LAMBDA, "--yes")
    asked = await run_duly("cancel", "--lambda", LAMBDA, "--status", "processing", "--yes")

    assert left.stdout.endswith("those that run: add --status claimed --status processing\n")
    assert asked.stdout == "cancelled, or asked to stop: 1\n"
