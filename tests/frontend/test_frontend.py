"""What the Frontend does for well-behaved clients, over the real wire and the real store."""

import asyncio
from time import monotonic
from uuid import UUID

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from duly_core.results.store import set_results
from duly_core.tasks.task import Result
from duly_wire.enums import FailureKind, Outcome
from duly_wire.ids import new_task_id
from duly_wire.v1 import frontend_pb2, task_pb2
from tests.fixtures.services import serve_frontend
from tests.fixtures.task_states import LAMBDA

DEADLINE = 5


def text_of(task):
    return str(UUID(bytes=task.task_id))


def asked(**fields):
    return frontend_pb2.NewTask(**{"lambda": LAMBDA, "payload": b"{}"} | fields)


async def schedule(frontend, *tasks):
    return list((await frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=tasks))).results)


async def get(frontend, *task_ids):
    return list((await frontend.stub.GetTask(frontend_pb2.GetTaskRequest(task_ids=task_ids))).results)


async def cancel(frontend, *task_ids):
    return list((await frontend.stub.CancelTask(frontend_pb2.CancelTaskRequest(task_ids=task_ids))).results)


async def wait(frontend, *task_ids, seconds=20.0):
    timeout = Duration()
    timeout.FromNanoseconds(round(seconds * 1e9))
    return await frontend.stub.WaitTask(frontend_pb2.WaitTaskRequest(task_ids=task_ids, timeout=timeout))


async def succeed(task_states, task):
    await set_results(task_states.store, [Result(task.task_id, task.token, Outcome.SUCCESS, result=b"1")])


async def test_a_scheduled_task_reads_back_as_it_was_asked_for(frontend, task_states):
    task_id = str(new_task_id())
    task = asked(
        payload=bytes(range(256)),
        payload_encoding=task_pb2.ENCODING_RAW,
        priority=task_pb2.PRIORITY_URGENT,
        collection="spring",
        fair_key="ada",
        delay=Duration(seconds=60),
        expires_at=Timestamp(seconds=253402300799),
        task_id=task_id,
    )

    (result,) = await schedule(frontend, task)

    assert (result.task_id, result.created, result.HasField("error")) == (task_id, True, False)
    (found,) = await get(frontend, task_id)
    assert (found.task.payload, found.task.payload_encoding) == (bytes(range(256)), task_pb2.ENCODING_RAW)
    assert (found.task.priority, found.task.collection) == (task_pb2.PRIORITY_URGENT, "spring")
    assert found.task.fair_key == "ada"
    assert found.task.status == task_pb2.TASK_STATUS_NEW
    assert found.task.scheduled_at.ToNanoseconds() - found.task.created_at.ToNanoseconds() == 60 * 10**9
    assert found.task.expires_at.seconds == 253402300799
    assert not found.task.HasField("last_failure")


async def test_what_is_not_said_has_its_default(frontend, task_states):
    (result,) = await schedule(frontend, asked())

    (found,) = await get(frontend, result.task_id)
    assert found.task.priority == task_pb2.PRIORITY_NORMAL
    assert found.task.payload_encoding == task_pb2.ENCODING_JSON
    assert found.task.scheduled_at == found.task.created_at


@pytest.mark.parametrize("when", [{"delay": Duration()}, {"scheduled_at": Timestamp(seconds=-62135596800)}])
async def test_the_past_is_now(frontend, task_states, when):
    (result,) = await schedule(frontend, asked(**when))

    (found,) = await get(frontend, result.task_id)
    assert found.task.scheduled_at == found.task.created_at


@pytest.mark.parametrize("by", ["task_id", "idempotency_key"])
async def test_a_repeated_call_answers_the_same_task_as_not_created(frontend, task_states, by):
    task = asked(**{by: str(new_task_id())})

    (first,) = await schedule(frontend, task)
    (again,) = await schedule(frontend, task)

    assert (first.created, again.created) == (True, False)
    assert (again.task_id, again.HasField("error")) == (first.task_id, False)


async def test_single_calls_at_once_are_each_answered_with_their_own_task(frontend, task_states):
    tasks = [asked(task_id=str(new_task_id()), payload=str(n).encode()) for n in range(60)]

    results = await asyncio.gather(*(schedule(frontend, task) for task in tasks))

    assert [result.task_id for (result,) in results] == [task.task_id for task in tasks]
    found = await get(frontend, *(task.task_id for task in tasks))
    assert [each.task.payload for each in found] == [task.payload for task in tasks]


async def test_a_client_that_gives_up_hurts_nobody_it_was_grouped_with(frontend, task_states):
    impatient = [
        frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=[asked()]), timeout=0.001)
        for _ in range(20)
    ]

    results = await asyncio.gather(*(schedule(frontend, asked()) for _ in range(20)))

    await asyncio.gather(*impatient, return_exceptions=True)
    assert all(result.created for (result,) in results)


async def test_a_failed_task_tells_its_last_failure(frontend, task_states, processing_task):
    failure = Result(
        processing_task.task_id,
        processing_task.token,
        Outcome.FATAL_FAILURE,
        failure_kind=FailureKind.EXCEPTION,
        failure_message="ValueError: no",
    )
    await set_results(task_states.store, [failure])

    (found,) = await get(frontend, text_of(processing_task))

    assert found.task.status == task_pb2.TASK_STATUS_FATAL_FAILURE
    assert found.task.last_failure.kind == task_pb2.FAILURE_KIND_EXCEPTION
    assert found.task.last_failure.message == "ValueError: no"
    assert found.task.last_failure.failed_at.seconds > 0


async def test_pages_are_complete_without_duplicates_though_tasks_come_and_end_meanwhile(
    frontend, task_states
):
    before = {result.task_id for result in await schedule(frontend, *[asked() for _ in range(25)])}
    seen, token = [], ""
    while True:
        request = frontend_pb2.ListTasksRequest(**{"lambda": LAMBDA}, page_size=4, page_token=token)
        page = await frontend.stub.ListTasks(request)
        seen += [task.task_id for task in page.tasks]
        token = page.next_page_token
        if not token:
            break
        await schedule(frontend, asked())
        await cancel(frontend, seen[0])

    assert len(seen) == len(set(seen))
    assert set(seen) == before
    assert seen == sorted(seen, reverse=True)


async def test_a_list_of_exactly_one_page_has_no_next_one(frontend, task_states):
    await schedule(frontend, *[asked() for _ in range(4)])

    page = await frontend.stub.ListTasks(frontend_pb2.ListTasksRequest(page_size=4))

    assert (len(page.tasks), page.next_page_token) == (4, "")
    assert page.tasks[0].payload == b""


async def test_a_cancel_is_answered_for_each_task_with_its_status(frontend, task_states):
    done = await task_states.processing()
    await succeed(task_states, done)
    running, waiting = await task_states.processing(), await task_states.new()
    unknown = str(new_task_id())

    results = await cancel(frontend, text_of(running), "nonsense", text_of(done), unknown, text_of(waiting))

    assert [task_pb2.TaskStatus.Name(result.status).removeprefix("TASK_STATUS_") for result in results] == [
        "PROCESSING",
        "UNSPECIFIED",
        "SUCCESS",
        "UNSPECIFIED",
        "CANCELLED",
    ]
    assert [task_pb2.ErrorCode.Name(result.error.code).removeprefix("ERROR_CODE_") for result in results] == [
        "UNSPECIFIED",
        "INVALID_ARGUMENT",
        "ALREADY_FINAL",
        "NOT_FOUND",
        "UNSPECIFIED",
    ]


async def test_a_wait_ends_when_the_last_of_its_tasks_does(frontend, task_states):
    first, last = await task_states.processing(), await task_states.processing()
    await succeed(task_states, first)
    waiting = asyncio.ensure_future(wait(frontend, text_of(first), text_of(last)))
    assert not (await wait(frontend, text_of(last), seconds=0)).all_final
    assert not waiting.done()

    await succeed(task_states, last)

    answer = await asyncio.wait_for(waiting, DEADLINE)
    assert answer.all_final
    assert [result.task.result for result in answer.results] == [b"1", b"1"]


async def test_a_wait_returns_at_its_timeout_with_what_is_known_by_then(
    frontend, task_states, processing_task
):
    begun = monotonic()

    answer = await wait(frontend, text_of(processing_task), seconds=0.3)

    assert 0.3 <= monotonic() - begun < DEADLINE
    assert not answer.all_final
    assert answer.results[0].task.status == task_pb2.TASK_STATUS_PROCESSING


async def test_a_wait_for_unknown_tasks_ends_at_once_and_says_so(frontend, task_states):
    answer = await asyncio.wait_for(wait(frontend, str(new_task_id()), "nonsense"), DEADLINE)

    assert [result.error.code for result in answer.results] == [
        task_pb2.ERROR_CODE_NOT_FOUND,
        task_pb2.ERROR_CODE_INVALID_ARGUMENT,
    ]
    assert answer.all_final


async def test_a_lambda_is_known_as_soon_as_it_is_registered(frontend, task_states):
    name = "report.make"
    (refused,) = await schedule(frontend, asked(**{"lambda": name}))
    assert refused.error.code == task_pb2.ERROR_CODE_UNKNOWN_LAMBDA

    await task_states.register(name)  # through another replica: this one remembers that there was none

    async with asyncio.timeout(DEADLINE):
        while (await schedule(frontend, asked(**{"lambda": name})))[0].HasField("error"):
            pass


async def test_health_and_reflection_answer(store):
    async with serve_frontend(store) as frontend:
        health = health_pb2_grpc.HealthStub(frontend.channel)
        for service in ("", "duly.v1.FrontendService", "duly.v1.RegistryService"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError, match="NOT_FOUND"):
            await health.Check(health_pb2.HealthCheckRequest(service="duly.v1.NoService"))

        asking = reflection_pb2_grpc.ServerReflectionStub(frontend.channel).ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        )
        (listed,) = [answer async for answer in asking]
        assert {"duly.v1.FrontendService", "duly.v1.RegistryService"} <= {
            service.name for service in listed.list_services_response.service
        }
