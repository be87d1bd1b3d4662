"""Dead letters over the wire: listed by filters, redriven by ids and by filters, and every refusal."""

import asyncio
import itertools
from datetime import timedelta
from uuid import UUID

import grpc
import psycopg
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from duly_core.postgres.notifications import Listener
from duly_core.postgres.settings import StoreSettings
from duly_core.tasks import dead_letters
from duly_core.tasks.causes import cause_of
from duly_wire.enums import FailureKind
from duly_wire.ids import new_task_id
from duly_wire.v1 import frontend_pb2, task_pb2
from tests.fixtures.services import refusal
from tests.fixtures.task_states import LAMBDA, SECOND

DEADLINE = 5
HUGE = 2**63 - 1
DAY = 86_400


async def redrive(frontend, *task_ids):
    request = frontend_pb2.RedriveTaskRequest(task_ids=task_ids)
    return list((await frontend.stub.RedriveTask(request)).results)


def redrive_where(frontend, **fields):
    return frontend.stub.RedriveTasks(frontend_pb2.RedriveTasksRequest(**fields))


async def list_tasks(frontend, **fields):
    return await frontend.stub.ListTasks(frontend_pb2.ListTasksRequest(**fields))


async def get(frontend, task_id):
    request = frontend_pb2.GetTaskRequest(task_ids=[task_id])
    return (await frontend.stub.GetTask(request)).results[0].task


async def test_a_redrive_by_ids_is_answered_for_each_task(frontend, task_states, dead_letter):
    dead, unknown = await dead_letter(), str(new_task_id())
    live = str(UUID(bytes=(await task_states.new()).task_id))

    results = await redrive(frontend, live, dead, "nonsense", unknown, dead)

    assert [task_pb2.TaskStatus.Name(result.status).removeprefix("TASK_STATUS_") for result in results] == [
        "NEW",
        "NEW",
        "UNSPECIFIED",
        "UNSPECIFIED",
        "NEW",
    ]
    assert [task_pb2.ErrorCode.Name(result.error.code).removeprefix("ERROR_CODE_") for result in results] == [
        "NOT_A_DEAD_LETTER",
        "UNSPECIFIED",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "UNSPECIFIED",
    ]
    task = await get(frontend, dead)
    assert (task.status, task.redrives, task.fence) == (task_pb2.TASK_STATUS_NEW, 1, 1)
    assert task.last_failure.message == "the printer is out of paper"


async def test_a_dead_letter_whose_lambda_nobody_serves_names_the_fix(frontend, dead_letter, dsn):
    task_id = await dead_letter()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("delete from lambda")

    (result,) = await redrive(frontend, task_id)

    assert (result.status, result.error.code) == (
        task_pb2.TASK_STATUS_FATAL_FAILURE,
        task_pb2.ERROR_CODE_UNKNOWN_LAMBDA,
    )
    assert "start a worker that declares it" in result.error.message


async def test_a_list_is_filtered_by_kind_of_failure_and_by_when_a_task_ended(
    frontend, task_states, dead_letter, clock
):
    early = await dead_letter(FailureKind.EXCEPTION)
    await clock.tick(timedelta(hours=1))
    late = [await dead_letter(FailureKind.BAD_RESULT) for _ in range(3)]
    await task_states.processing()
    between = Timestamp(seconds=(await get(frontend, late[0])).finished_at.seconds - 60)
    fatal = {"statuses": [task_pb2.TASK_STATUS_FATAL_FAILURE]}

    async def ids(**fields):
        return [task.task_id for task in (await list_tasks(frontend, **fields)).tasks]

    assert await ids(**fatal, failure_kinds=[task_pb2.FAILURE_KIND_EXCEPTION]) == [early]
    assert await ids(failure_kinds=[task_pb2.FAILURE_KIND_BAD_RESULT]) == late[::-1]
    assert await ids(**fatal, finished_before=between) == await ids(finished_before=between) == [early]
    assert await ids(finished_after=between) == late[::-1]
    first = await list_tasks(frontend, **fatal, finished_after=between, page_size=2)
    second = await list_tasks(
        frontend, **fatal, finished_after=between, page_size=2, page_token=first.next_page_token
    )
    assert [task.task_id for task in (*first.tasks, *second.tasks)] == late[::-1]
    assert second.next_page_token == ""


async def test_a_redrive_by_filter_goes_on_page_by_page_at_its_rate(frontend, dead_letter):
    tasks = [await dead_letter(FailureKind.EXCEPTION) for _ in range(5)]
    spared = await dead_letter(FailureKind.BAD_RESULT)
    fields = {
        "lambda": LAMBDA,
        "failure_kinds": [task_pb2.FAILURE_KIND_EXCEPTION],
        "rate": 0.1,
        "limit": 2,
    }
    pages = []
    while not pages or pages[-1].more:
        pages.append(await redrive_where(frontend, **fields))
        fields |= {"as_of": pages[-1].as_of, "offset": pages[-1].next_offset}

    assert [page.count for page in pages] == [2, 2, 1]
    assert pages[-1].next_offset == Duration(seconds=50)
    start = pages[0].as_of.ToDatetime()
    due = [(await get(frontend, task_id)).next_trigger_at.ToDatetime() for task_id in tasks]
    assert [moment - start for moment in due[1:]] == [timedelta(seconds=10 * n) for n in (1, 2, 3, 4)]
    assert (await get(frontend, spared)).status == task_pb2.TASK_STATUS_FATAL_FAILURE


async def test_without_a_rate_all_are_due_at_once(frontend, dead_letter):
    tasks = [await dead_letter() for _ in range(3)]

    answer = await redrive_where(frontend)

    assert (answer.count, answer.more, answer.next_offset) == (3, False, Duration())
    due = [(await get(frontend, task_id)).next_trigger_at.ToDatetime() for task_id in tasks]
    assert max(due) - min(due) < SECOND


async def test_a_dry_run_counts_beyond_the_limit_and_changes_nothing(frontend, dead_letter):
    tasks = [await dead_letter() for _ in range(3)]

    answer = await redrive_where(frontend, dry_run=True, limit=1, rate=5)

    assert (answer.count, answer.more) == (3, False)
    assert answer.HasField("as_of")
    for task_id in tasks:
        assert (await get(frontend, task_id)).status == task_pb2.TASK_STATUS_FATAL_FAILURE


@pytest.mark.parametrize("by", ["ids", "filter"])
async def test_store_consumers_are_told_at_once_that_something_is_due(frontend, dead_letter, dsn, by):
    task_id = await dead_letter()
    told, ready, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
    listener = Listener(StoreSettings(dsn=dsn), lambda _ahead, _lambdas: told.set(), ready.set)
    listening = asyncio.ensure_future(listener.run(stop))
    await asyncio.wait_for(ready.wait(), DEADLINE)

    await (redrive(frontend, task_id) if by == "ids" else redrive_where(frontend))

    await asyncio.wait_for(told.wait(), DEADLINE)
    stop.set()
    await listening


BAD_REDRIVES = {
    "unknown lambda": ({"lambda": "nobody.knows"}, "lambda", "no lambda 'nobody.knows' is registered"),
    "NUL in a lambda": ({"lambda": "a\x00"}, "lambda", "NUL"),
    "NUL in a collection": ({"collection": "a\x00"}, "collection", "NUL"),
    "unknown kind": ({"failure_kinds": [99]}, "failure_kinds", "99"),
    "no kind": ({"failure_kinds": [0]}, "failure_kinds", "0"),
    "an invalid instant": ({"finished_after": Timestamp(nanos=-1)}, "finished_after", "nanos"),
    "the end of time": ({"finished_before": Timestamp(seconds=HUGE)}, "finished_before", "year"),
    "nothing in between": (
        {"finished_after": Timestamp(seconds=2), "finished_before": Timestamp(seconds=2)},
        "finished_before",
        "later than finished_after",
    ),
    "negative rate": ({"rate": -1}, "rate", "tasks a second"),
    "endless rate": ({"rate": float("inf")}, "rate", "tasks a second"),
    "rate that is not a number": ({"rate": float("nan")}, "rate", "tasks a second"),
    "rate beyond the horizon": ({"rate": 1e-6, "limit": 100}, "rate", "horizon of 365d"),
    "rate beyond all numbers": ({"rate": 5e-324}, "rate", "horizon of 365d"),
    "rate that an offset pushes there": (
        {"rate": 1, "offset": Duration(seconds=365 * DAY - 10)},
        "rate",
        "horizon of 365d",
    ),
    "negative limit": ({"limit": -1}, "limit", "1 to 1,000"),
    "too high a limit": ({"limit": 1001}, "limit", "1 to 1,000"),
    "negative offset": ({"offset": Duration(seconds=-1)}, "offset", "from 0 to 365d"),
    "offset beyond the horizon": ({"offset": Duration(seconds=366 * DAY)}, "offset", "from 0 to 365d"),
    "contradictory offset": ({"offset": Duration(seconds=1, nanos=-1)}, "offset", "contradict"),
    "an invalid as_of": ({"as_of": Timestamp(seconds=-HUGE)}, "as_of", "year"),
    "no fingerprint": ({"cause": "ValueError"}, "cause", "16 hexadecimal digits"),
    "a place without a cause": ({"after": "x"}, "after", "goes with a cause"),
    "no place": ({"cause": "0" * 16, "after": "x"}, "after", "next_after"),
    "a place beyond time": ({"cause": "0" * 16, "after": "f" * 32}, "after", "next_after"),
}


async def test_a_filter_or_a_rate_that_makes_no_sense_is_refused_by_its_field(frontend, dead_letter):
    task_id = await dead_letter()

    for name, (fields, field, words) in BAD_REDRIVES.items():
        refused = await refusal(redrive_where(frontend, **fields))
        assert (refused.code, refused.field) == (grpc.StatusCode.INVALID_ARGUMENT, field), name
        assert words in refused.message, name

    assert (await get(frontend, task_id)).status == task_pb2.TASK_STATUS_FATAL_FAILURE


async def test_a_list_with_such_a_filter_is_refused_too(frontend):
    for name in ("unknown kind", "an invalid instant", "the end of time", "nothing in between"):
        fields, field, words = BAD_REDRIVES[name]

        refused = await refusal(frontend.stub.ListTasks(frontend_pb2.ListTasksRequest(**fields)))

        assert (refused.code, refused.field) == (grpc.StatusCode.INVALID_ARGUMENT, field)
        assert words in refused.message


async def test_no_ids_and_too_many_are_refused(frontend):
    for count in (0, 1001):
        request = frontend_pb2.RedriveTaskRequest(task_ids=[str(new_task_id())] * count)

        refused = await refusal(frontend.stub.RedriveTask(request))

        assert (refused.code, refused.field) == (grpc.StatusCode.INVALID_ARGUMENT, "task_ids")


async def failed(task_states, message, **overrides):
    claimed = await task_states.claimed(**overrides)
    await task_states.fail(claimed, message=message)
    return str(UUID(bytes=claimed.task_id))


GONE = "ValueError: row 7 of 'ann' is gone"


async def test_only_dead_letters_of_a_cause_are_redriven_at_a_rate(frontend, task_states, monkeypatch, dsn):
    ours = [await failed(task_states, f"ValueError: row {n} of 'ann{n}' is gone") for n in range(3)]
    other = await failed(task_states, "OSError: disk 3 is full")
    last = await failed(task_states, GONE)
    cause = cause_of(LAMBDA, int(FailureKind.CALLBACK), GONE).fingerprint
    monkeypatch.setattr(dead_letters, "_LOOKED_AT", 2)
    monkeypatch.setattr(dead_letters, "_MOST_LOOKED_AT", 2)

    pages, counted, after = [], 0, ""
    while True:
        page = await redrive_where(frontend, cause=cause, dry_run=True, after=after)
        counted, after = counted + page.count, page.next_after
        if not page.more:
            break
    more = {}
    while True:
        page = await redrive_where(frontend, cause=cause, rate=0.1, limit=1, **more)
        pages.append(page.count)
        more = {"as_of": page.as_of, "offset": page.next_offset, "after": page.next_after}
        if not page.more:
            break

    assert (counted, page.cause) == (4, cause)
    assert sum(pages) == 4
    assert max(pages) == 1
    with psycopg.connect(dsn) as connection:
        rows = dict(connection.execute("select task_id, next_trigger_at from task_assoc"))
    due = [rows[UUID(each)] for each in (*ours, last)]
    apart = [later - earlier for earlier, later in itertools.pairwise(due)]
    assert all(timedelta(seconds=9) < each < timedelta(seconds=11) for each in apart)
    assert (await get(frontend, other)).status == task_pb2.TASK_STATUS_FATAL_FAILURE


async def test_a_cause_of_a_lambda_is_also_that_of_tasks_pinned_to_its_versions(frontend, task_states):
    pinned = f"{LAMBDA}@1.2"
    await task_states.register(LAMBDA)
    await task_states.register(pinned)
    ours = [await failed(task_states, GONE, lambda_name=name) for name in (pinned, LAMBDA)]
    cause = cause_of(LAMBDA, int(FailureKind.CALLBACK), GONE).fingerprint
    of_lambda = {"lambda": LAMBDA, "cause": cause}

    by_filter = await redrive_where(frontend, **{"lambda": LAMBDA}, dry_run=True)
    counted = await redrive_where(frontend, **of_lambda, dry_run=True)
    done = await redrive_where(frontend, **of_lambda)

    assert [each.count for each in (by_filter, counted, done)] == [1, 2, 2]
    assert {(await get(frontend, each)).status for each in ours} == {task_pb2.TASK_STATUS_NEW}
