"""One reader serves all who watch: how often it looks, and what who is behind gets."""

import asyncio
from datetime import timedelta

from duly_core.watches import store as store_watches
from duly_core.watches.rules import Cursor
from duly_frontend.watches import feed as feeds
from duly_frontend.watches.feed import EventFeed

SOON = timedelta(seconds=10)
WATCHERS = 100
INSERT = """
insert into task_event (kind, at, lambda, task_id, status, run)
select 2, now(), 'mail.send', gen_random_uuid(), 'success', number from generate_series(%s::int4, %s::int4) as number
"""


async def write(store, first, last):
    async with store.connection() as connection:
        await connection.execute(INSERT, [first, last])


async def test_a_hundred_who_wait_are_served_by_one_look(store):
    feed = EventFeed(store, timedelta(milliseconds=50))
    begin = Cursor((await store_watches.read(store, Cursor(1 << 62), 1)).head)
    waiting = [asyncio.create_task(feed.after(begin, lambda _: True, 10, SOON)) for _ in range(WATCHERS)]
    async with asyncio.timeout(SOON.total_seconds()):
        while feed.looks < WATCHERS + 5:  # each looked once by itself, before the reader knew where they are
            await asyncio.wait(waiting, timeout=0.01)
    before = feed.looks

    await write(store, 1, 1)
    found = await asyncio.gather(*waiting)
    looks = feed.looks - before
    feed.close()

    assert [[event.run for event in each.events] for each in found] == [[1]] * WATCHERS
    assert looks < WATCHERS / 2


async def test_who_is_behind_what_is_remembered_reads_the_store(store, monkeypatch):
    monkeypatch.setattr(feeds, "_REMEMBERED", 10)
    monkeypatch.setattr(feeds, "_PAGE", 7)
    feed = EventFeed(store, timedelta(milliseconds=10))
    cursor = Cursor((await store_watches.read(store, Cursor(1 << 62), 1)).head)
    ahead = asyncio.create_task(feed.after(cursor, lambda event: event.run == 60, 1, SOON))
    runs = []
    for first in range(1, 61, 20):
        await write(store, first, first + 19)
    await ahead

    async with asyncio.timeout(SOON.total_seconds()):
        while len(runs) < 60:
            found = await feed.after(cursor, lambda _: True, 3, SOON)
            runs += [event.run for event in found.events]
            cursor = found.end
    feed.close()

    assert runs == list(range(1, 61))
