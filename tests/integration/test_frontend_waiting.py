"""Long polls of the Frontend: they cost nothing while nobody waits, and end when it stops."""

import asyncio
from datetime import timedelta

from duly.ids import new_task_id
from duly_frontend.waiting import EndWatch

HOUR = timedelta(hours=1)
SOON = 10


async def test_who_waits_is_answered_when_the_frontend_stops(ladder, processing_task):
    watch = EndWatch(ladder.store)
    waiting = asyncio.ensure_future(watch.wait([processing_task.task_id], HOUR))
    await asyncio.wait([waiting], timeout=0)

    watch.close()

    async with asyncio.timeout(SOON):
        await waiting
        await watch.wait([processing_task.task_id], HOUR)


async def test_a_newcomer_does_not_wait_for_the_pause_of_those_who_have_waited_long(ladder, processing_task):
    watch = EndWatch(ladder.store)
    patient = asyncio.ensure_future(watch.wait([processing_task.task_id], HOUR))
    await asyncio.wait([patient], timeout=0)

    async with asyncio.timeout(SOON):
        await watch.wait([new_task_id().bytes], HOUR)

    assert not patient.done()
    watch.close()
    await patient
