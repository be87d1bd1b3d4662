"""Answers of the Frontend stay within what a message may have."""

from uuid import UUID

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from duly import AsyncClient
from duly_wire.v1 import frontend_pb2, task_pb2
from tests.fixtures.services import refusal
from tests.fixtures.task_states import LAMBDA

MIB = 1024 * 1024


async def large_tasks(frontend, task_states, number):
    await task_states.register(payload_limit=MIB)
    task = frontend_pb2.NewTask(**{"lambda": LAMBDA}, payload=bytes(MIB), payload_encoding=2)
    request = frontend_pb2.ScheduleRequest(tasks=[task])
    return [(await frontend.stub.Schedule(request)).results[0].task_id for _ in range(number)]


@pytest.mark.parametrize("method", ["GetTask", "WaitTask"])
@pytest.mark.parametrize("repeats", [400, 1])
async def test_an_answer_larger_than_a_message_is_refused_with_its_limit_and_a_way_out(
    frontend, task_states, method, repeats
):
    ids = await large_tasks(frontend, task_states, 1 if repeats > 1 else 9) * repeats
    kind = {"GetTask": frontend_pb2.GetTaskRequest, "WaitTask": frontend_pb2.WaitTaskRequest}[method]
    more = {"timeout": Duration()} if method == "WaitTask" else {}
    call = getattr(frontend.stub, method)

    refused = await refusal(call(kind(task_ids=ids, **more)))
    basic = await call(kind(task_ids=ids, view=task_pb2.TASK_VIEW_BASIC, **more))
    few = await call(kind(task_ids=ids[:7], **more))

    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "8,388,608 bytes (rpc.max_message_bytes)" in refused.message
    assert "TASK_VIEW_BASIC" in refused.message
    assert [result.task.task_id for result in basic.results] == ids
    assert not any(result.task.payload for result in basic.results)
    assert all(len(result.task.payload) == MIB for result in few.results)


async def test_a_client_gets_and_waits_for_more_than_one_answer_holds(frontend, task_states):
    ids = await large_tasks(frontend, task_states, 9)
    await frontend.stub.CancelTask(frontend_pb2.CancelTaskRequest(task_ids=ids))

    async with AsyncClient(frontend.address) as client:
        got = await client.get_many([*ids, ids[0]])
        waited = await client.wait_many([*ids, ids[0]])

    assert [len(task.payload_bytes) for task in (*got, *waited)] == [MIB] * 20


async def test_an_unknown_view_is_refused(frontend, task_states, new_task):
    refused = await refusal(
        frontend.stub.GetTask(
            frontend_pb2.GetTaskRequest(task_ids=[str(UUID(bytes=new_task.task_id))], view=9)
        )
    )

    assert (refused.code, refused.field) == (grpc.StatusCode.INVALID_ARGUMENT, "view")
