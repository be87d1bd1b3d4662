"""ClaimWork for single priorities: what an Executor asks for that has slots reserved for them."""

import asyncio
from datetime import timedelta

import grpc
import pytest

from duly_wire.enums import Priority
from duly_wire.v1 import hsc_pb2
from tests.fixtures.services import refusal, serve_hsc
from tests.fixtures.task_states import LAMBDA
from tests.hsc.test_hsc_work import DEADLINE, Tuning, ids, request, waiting


@pytest.fixture
async def hsc(store, task_states):
    async with serve_hsc(store, live_settings=Tuning()) as served:
        yield served


def asking(hsc, *priorities, **asked):
    message = request(**asked)
    message.priorities.extend(priorities)

    async def ask():
        return list((await hsc.stub.ClaimWork(message, timeout=DEADLINE)).tasks)

    return asyncio.ensure_future(ask())


async def test_only_tasks_of_the_priorities_are_claimed(hsc, task_states):
    await task_states.new(priority=Priority.URGENT)
    high = await task_states.new(priority=Priority.HIGH)
    await task_states.new(priority=Priority.NORMAL)
    low = await task_states.new(priority=Priority.LOW)

    claimed = await asking(hsc, Priority.LOW, Priority.HIGH)

    assert ids(claimed) == [high.task_id, low.task_id]


async def test_calls_for_one_priority_and_for_all_wait_side_by_side(hsc, task_states):
    for_high, for_all = asking(hsc, Priority.HIGH), asking(hsc)
    await waiting(hsc, callers=2)
    normal = await task_states.new()

    hsc.work.note_due(timedelta(), {LAMBDA})

    assert ids(await for_all) == [normal.task_id]
    await waiting(hsc)
    high = await task_states.new(priority=Priority.HIGH)
    hsc.work.note_due(timedelta(), {LAMBDA})
    assert ids(await for_high) == [high.task_id]


async def test_what_a_call_for_one_priority_saw_keeps_no_other_call_from_its_tasks(hsc, task_states):
    normal = await task_states.new()
    for_high = asking(hsc, Priority.HIGH)
    await waiting(hsc)

    assert ids(await asking(hsc)) == [normal.task_id]
    for_high.cancel()


async def test_who_waits_for_one_priority_does_not_serve_the_lambda(hsc):
    """Or other HSCs, whose callers take the other priorities, would not hear that something is due."""
    for_high = asking(hsc, Priority.HIGH)
    await waiting(hsc)
    assert not hsc.work.serves({LAMBDA})

    for_all = asking(hsc, *Priority)
    await waiting(hsc, callers=2)

    assert hsc.work.serves({LAMBDA})
    for_high.cancel()
    for_all.cancel()


async def test_an_unknown_priority_is_refused(hsc):
    refused = await refusal(asking(hsc, 9))

    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert "priorities" in str(refused)


async def test_an_empty_list_means_all_priorities(hsc, task_states):
    tasks = {(await task_states.new(priority=priority)).task_id for priority in Priority}

    assert {*ids(await asking(hsc))} == tasks
    assert hsc_pb2.ClaimWorkRequest().priorities == []
