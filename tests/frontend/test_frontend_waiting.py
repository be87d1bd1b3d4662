"""Long polls of the Frontend: they cost nothing while nobody waits, and end when it stops."""

import asyncio
from datetime import timedelta

import pytest

from duly_core.errors import OverloadedError
from duly_core.tasks.store import final_of
from duly_frontend.tasks import completion_watcher
from duly_frontend.tasks.completion_watcher import CompletionWatcher
from duly_wire.ids import new_task_id

HOUR = timedelta(hours=1)
SOON = 10


async def test_who_waits_is_answered_when_the_frontend_stops(task_states, processing_task):
    watch = CompletionWatcher(task_states.store)
    waits = asyncio.ensure_future(watch.wait([processing_task.task_id], HOUR))
    await asyncio.wait([waits], timeout=0)

    watch.close()

    async with asyncio.timeout(SOON):
        await waits
        await watch.wait([processing_task.task_id], HOUR)


async def test_a_newcomer_does_not_wait_for_the_pause_of_those_who_have_waited_long(
    task_states, processing_task, monkeypatch
):
    looked = asyncio.Event()

    async def look(*arguments):
        final = await final_of(*arguments)
        looked.set()
        return final

    monkeypatch.setattr(completion_watcher, "_GROWTH", 1_000_000)
    monkeypatch.setattr(completion_watcher, "_LONGEST", HOUR)
    watch = CompletionWatcher(task_states.store, look)
    patient = asyncio.ensure_future(watch.wait([processing_task.task_id], HOUR))
    await asyncio.wait_for(looked.wait(), SOON)  # and looks again in an hour

    async with asyncio.timeout(SOON):
        await watch.wait([new_task_id().bytes], HOUR)

    assert not patient.done()
    watch.close()
    await patient


async def test_a_statement_looks_for_a_bounded_number_of_tasks_and_first_for_those_of_short_waits(
    monkeypatch,
):
    looked_for = []
    many, one = [new_task_id().bytes for _ in range(10)], new_task_id().bytes

    async def look(_store, wanted):
        looked_for.append(set(wanted))
        return set(wanted) if one in wanted else set()

    monkeypatch.setattr(completion_watcher, "_AT_A_TIME", 4)
    watch = CompletionWatcher(None, look)
    long = asyncio.ensure_future(watch.wait(many, HOUR))
    short = asyncio.ensure_future(watch.wait([one], HOUR))
    async with asyncio.timeout(SOON):
        await short
    watch.close()
    await long

    assert one in looked_for[0]
    assert len(looked_for[0]) == 4
    assert max(map(len, looked_for)) == 4


async def test_one_caller_waits_for_a_bounded_number_of_tasks_and_another_still_may(monkeypatch):
    refused = []

    async def look(_store, _wanted):
        return set()

    monkeypatch.setattr(completion_watcher, "MOST_OF_ONE", 1)
    watch = CompletionWatcher(None, look, refused.append)
    greedy = asyncio.ensure_future(watch.wait([new_task_id().bytes], HOUR, "greedy"))
    await asyncio.wait([greedy], timeout=0)

    with pytest.raises(OverloadedError, match="waits for 1 ends already"):
        await watch.wait([new_task_id().bytes], HOUR, "greedy")
    modest = asyncio.ensure_future(watch.wait([new_task_id().bytes], HOUR, "modest"))
    await asyncio.wait([modest], timeout=0)
    watch.close()
    await asyncio.gather(greedy, modest)

    assert (refused, watch._waited_for) == (["greedy"], {})
