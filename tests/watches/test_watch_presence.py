"""Whether a success must look for watches: the store is asked while many end, and an answer holds for a second."""

import pytest

from duly_core.watches.presence import WatchPresence


@pytest.fixture
def clock():
    return [0.0]


@pytest.fixture
def presence(store, clock):
    return WatchPresence(store, lambda: clock[0])


async def _ask_often(presence, clock):
    presence.nobody()
    clock[0] += 0.1
    presence.nobody()
    await presence._asking
    return presence.nobody()


async def test_while_many_end_an_answer_spares_them_the_look_for_a_second(presence, clock):
    assert await _ask_often(presence, clock)
    clock[0] += 0.99
    assert presence.nobody()
    clock[0] += 0.02
    assert not presence.nobody()


async def test_somebody_who_watches_is_looked_for_by_each(presence, clock, store):
    async with store.connection() as connection:
        await connection.execute(
            "insert into watch values (gen_random_uuid(), '', '', '', '1', 0, now(), '1 minute', now() + interval '1 minute')"
        )
    assert not await _ask_often(presence, clock)


async def test_what_ends_now_and_then_looks_by_itself_and_asks_nothing(presence, clock):
    for _ in range(10):
        clock[0] += 0.3
        assert not presence.nobody()
        assert presence._asking is None
