"""Items whose cell does not answer are sent again; those of other cells are not."""

import asyncio
from datetime import timedelta

import grpc
import pytest

import duly
from duly.errors import ScheduleManyError, UnavailableError
from duly_wire.v1 import task_pb2

AWAY = task_pb2.ItemError(code=task_pb2.ERROR_CODE_CELL_UNAVAILABLE, message="cell b: does not answer")


def _names(request):
    return [getattr(task, "lambda") for task in request.tasks]


async def test_of_many_tasks_those_of_a_cell_that_is_away_are_sent_again_until_it_is_back(frontend):
    frontend.item_errors["b/x"] = AWAY
    async with duly.AsyncClient(frontend.address) as client:
        many = asyncio.create_task(client.schedule_many([duly.NewTask("a", 1), duly.NewTask("b/x", 2)]))
        await frontend.until_arrived(2)
        frontend.item_errors.clear()
        written = await many

    assert len(written) == 2
    assert _names(frontend.requests[0]) == ["a", "b/x"]
    assert {tuple(_names(request)) for request in frontend.requests[1:]} == {("b/x",)}


async def test_one_task_is_sent_again_with_its_id(frontend):
    frontend.item_errors["b/x"] = AWAY
    async with duly.AsyncClient(frontend.address) as client:
        one = asyncio.create_task(client.schedule("b/x", 1))
        await frontend.until_arrived(2)
        frontend.item_errors.clear()
        written = await one

    ids = {request.tasks[0].task_id for request in frontend.requests}
    assert ids == {written.task_id}


async def test_when_the_time_is_up_the_error_names_the_cell_and_the_others_are_written(frontend):
    frontend.item_errors["b/x"] = AWAY
    async with duly.AsyncClient(frontend.address) as client:
        with pytest.raises(ScheduleManyError) as failed:
            await client.schedule_many(
                [duly.NewTask("a", 1), duly.NewTask("b/x", 2)], timeout=timedelta(milliseconds=200)
            )

    written, lost = failed.value.results
    assert isinstance(written, duly.ScheduledTask)
    assert isinstance(lost, UnavailableError)
    assert "cell b" in str(lost)


async def test_tasks_that_were_written_stay_so_if_sending_the_others_again_is_refused(frontend):
    frontend.item_errors["b/x"] = AWAY
    frontend.serves_streams = True
    async with duly.AsyncClient(frontend.address) as client:
        many = asyncio.create_task(client.schedule_many([duly.NewTask("a", 1), duly.NewTask("b/x", 2)]))
        await frontend.until_arrived(1)
        frontend.failures.append((grpc.StatusCode.PERMISSION_DENIED,))
        with pytest.raises(ScheduleManyError) as failed:
            await many

    written, lost = failed.value.results
    assert isinstance(written, duly.ScheduledTask)
    assert isinstance(lost, UnavailableError)  # its first call may have written it
