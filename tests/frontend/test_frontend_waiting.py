"""Long polls of the Frontend: they cost nothing while nobody waits, and end when it stops."""

import asyncio
from datetime import timedelta

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
