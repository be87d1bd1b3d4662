"""Reading tasks and the registry back."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from duly_core.lambdas import store as lambdas
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.results.store import set_results
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.queries import list_page
from duly_core.tasks.store import TaskFilter, cancel_tasks, final_of, get_tasks
from duly_core.tasks.task import Result
from duly_wire.enums import FailureKind, Outcome, Priority
from duly_wire.ids import new_task_id
from tests.fixtures.task_states import LAMBDA

OTHER = "report.make"


async def ended(task_states, outcome, **details):
    task = await task_states.claimed()
    await set_results(task_states.store, [Result(task.task_id, task.token, outcome, **details)])
    return task


async def listed(task_states, before=None, limit=100, **wanted):
    return [
        row["task_id"].bytes
        for row in (await list_page(task_states.store, TaskFilter(**wanted), before, limit)).rows
    ]


@pytest.fixture
async def one_of_each(task_states):
    """A task at every status that a task can have, by status."""
    failure = {
        "failure_kind": FailureKind.CALLBACK,
        "failure_message": "no",
        "retry_after": timedelta(hours=1),
    }
    tasks = {
        Status.ENQUEUED: await task_states.enqueued(),
        Status.CLAIMED: await task_states.claimed(),
        Status.PROCESSING: await task_states.processing(),
        Status.RETRIABLE_FAILURE: await ended(task_states, Outcome.RETRIABLE_FAILURE, **failure),
        Status.SUCCESS: await ended(task_states, Outcome.SUCCESS, result=b"1"),
        Status.FATAL_FAILURE: await ended(task_states, Outcome.FATAL_FAILURE, **failure),
        Status.CANCELLED: await task_states.new(),
    }
    await cancel_tasks(task_states.store, [tasks[Status.CANCELLED].task_id])
    tasks[Status.NEW] = await task_states.new()  # last: the task states would enqueue it with the others
    return {status: task.task_id for status, task in tasks.items()}


async def test_a_task_reads_back_with_the_status_in_force(task_states, one_of_each):
    rows = await get_tasks(task_states.store, one_of_each.values())

    assert {status: rows[task_id]["status"] for status, task_id in one_of_each.items()} == {
        status: str(status) for status in one_of_each
    }
    finished = {status for status, task_id in one_of_each.items() if rows[task_id]["finished_at"]}
    assert finished == {Status.SUCCESS, Status.FATAL_FAILURE, Status.CANCELLED}
    looked_at_again = {status for status, task_id in one_of_each.items() if rows[task_id]["next_trigger_at"]}
    assert looked_at_again == set(one_of_each) - finished


async def test_unknown_tasks_are_left_out(task_states, new_task):
    assert set(await get_tasks(task_states.store, [new_task.task_id, new_task_id().bytes])) == {
        new_task.task_id
    }
    assert await get_tasks(task_states.store, []) == {}


async def test_only_live_tasks_need_to_be_waited_for(task_states, one_of_each):
    unknown = new_task_id().bytes

    final = await final_of(task_states.store, [*one_of_each.values(), unknown])

    assert final == {unknown} | {
        one_of_each[status] for status in (Status.SUCCESS, Status.FATAL_FAILURE, Status.CANCELLED)
    }
    assert await final_of(task_states.store, []) == set()


async def test_a_list_is_filtered_by_every_status(task_states, one_of_each):
    for status, task_id in one_of_each.items():
        assert await listed(task_states, statuses=frozenset({status})) == [task_id], status
    both = frozenset({Status.NEW, Status.SUCCESS})
    assert set(await listed(task_states, statuses=both)) == {one_of_each[status] for status in both}
    assert await listed(task_states, statuses=frozenset({Status.DROPPED})) == []


async def test_a_list_comes_newest_first_and_carries_no_payload(task_states):
    tasks = [await task_states.new(payload=b"x" * 1000) for _ in range(5)]

    rows = (await list_page(task_states.store, TaskFilter(), None, 100)).rows

    assert [row["task_id"].bytes for row in rows] == [task.task_id for task in reversed(tasks)]
    assert {"payload", "result"}.isdisjoint(rows[0])


async def test_a_task_that_is_held_tells_since_when(task_states, new_task):
    before = (await task_states.row(new_task.task_id))["started_at"]

    held = await task_states.processing()

    row = await task_states.row(held.task_id)
    assert before is None
    assert row["created_at"] <= row["started_at"] <= datetime.now(UTC) + timedelta(seconds=5)


async def test_a_list_goes_on_below_a_task(task_states):
    tasks = [await task_states.new() for _ in range(7)]

    assert await listed(task_states, before=tasks[4].task_id, limit=3) == [
        task.task_id for task in (tasks[3], tasks[2], tasks[1])
    ]


async def test_a_list_of_live_tasks_goes_on_below_a_task_too(task_states):
    tasks = [await task_states.new() for _ in range(6)]
    await cancel_tasks(task_states.store, [tasks[1].task_id])

    found = await listed(task_states, before=tasks[3].task_id, limit=2, statuses=frozenset({Status.NEW}))

    assert found == [tasks[2].task_id, tasks[0].task_id]


async def test_filters_hold_together(task_states):
    await task_states.register(OTHER)
    wanted = await task_states.new(lambda_name=OTHER, collection="spring", priority=Priority.HIGH)
    await task_states.new(lambda_name=OTHER, collection="spring")
    await task_states.new(lambda_name=OTHER, priority=Priority.HIGH)
    await task_states.new(collection="spring", priority=Priority.HIGH)

    filters = {
        "lambda_name": OTHER,
        "collection": "spring",
        "priorities": frozenset({Priority.HIGH}),
        "statuses": frozenset({Status.NEW}),
    }

    assert await listed(task_states, **filters) == [wanted.task_id]
    assert len(await listed(task_states, lambda_name=OTHER)) == 3
    assert await listed(task_states, lambda_name="nobody.knows") == []


async def test_the_newest_declaration_of_a_lambda_holds(task_states):
    policy = LambdaPolicy(
        LAMBDA,
        owner="mail team",
        version="2",
        max_attempts=4,
        max_crashes=5,
        max_runtime=timedelta(minutes=6),
        backoff_initial=timedelta(milliseconds=7),
        backoff_factor=1.5,
        backoff_max=timedelta(days=8),
        payload_limit=9,
        crash_window=timedelta(minutes=10),
    )
    (before,) = await lambdas.list_lambdas(task_states.store)

    await lambdas.register(task_states.store, [policy, LambdaPolicy("another")])

    another, after = await lambdas.list_lambdas(task_states.store)
    assert (another.policy, after.policy) == (LambdaPolicy("another"), policy)
    assert after.registered_at == before.registered_at
    assert after.updated_at > before.updated_at


async def test_a_refused_policy_registers_none_of_its_call(task_states):
    impossible = replace(LambdaPolicy("zzz"), max_attempts=0)

    with pytest.raises(psycopg.errors.CheckViolation):
        await lambdas.register(task_states.store, [LambdaPolicy("aaa"), impossible])

    assert [each.policy.name for each in await lambdas.list_lambdas(task_states.store)] == [LAMBDA]


async def test_columns_that_a_later_release_adds_disturb_nobody(task_states, dsn, new_task):
    """Migrations run while the release before still serves, on connections that know its statements."""
    await lambdas.list_lambdas(task_states.store)
    await get_tasks(task_states.store, [new_task.task_id])
    with psycopg.connect(dsn, autocommit=True) as connection:
        for table in ("lambda", "task", "task_assoc", "idempotency_key"):
            connection.execute(f"alter table {table} add column added_later integer not null default 1")

    assert [each.policy.name for each in await lambdas.list_lambdas(task_states.store)] == [LAMBDA]
    assert await task_states.status(new_task.task_id) == "new"
    assert (
        await task_states.status((await task_states.processing(idempotency_key="k")).task_id) == "processing"
    )
