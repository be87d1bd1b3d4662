"""Rates of resources in the store: what comes too early is put off to its start time, and asked no more before it."""

import os
from datetime import timedelta
from random import Random

import psycopg
import pytest

from duly_core.errors import StoreUnavailableError
from duly_core.lambdas.names import QueueKey
from duly_core.limits import changes as resource_changes
from duly_core.limits import store as resources
from duly_core.limits.store import UNLIMITED, Deletion, Rate, ResourceLimit
from duly_core.results.store import set_results
from duly_core.tasks import claims, polling, schedule
from duly_core.tasks import store as tasks
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.task import NewTask, ResourceNeed, Result
from duly_wire.enums import Outcome, Priority
from duly_wire.ids import new_task_id
from tests.fixtures import whole
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, LAMBDA, SECOND

MAIL = "mail"
PERIOD = timedelta(minutes=10)
"""Long, so that the time that a test takes is nothing beside it."""
SLACK = timedelta(seconds=30)


async def declare(store, units=1, burst=1, capacity=UNLIMITED, *, per_key=False, period=PERIOD):
    return await whole.put_resource(
        store, ResourceLimit(MAIL, capacity, per_key, "", Rate(units, period, burst))
    )


async def scheduled(store, count, *, key="", weight=1, **fields):
    made = [
        NewTask(new_task_id().bytes, LAMBDA, b"{}", resources=(ResourceNeed(MAIL, key, weight),), **fields)
        for _ in range(count)
    ]
    await schedule.schedule(store, made)
    return made


async def claim_all(store):
    """Claim until nothing is due; how many were, and how long until the next."""
    found = []
    while True:
        picks = [Pick(QueueKey(LAMBDA, Priority.NORMAL), 100, 0)]
        work = await claims.claim_work(store, picks, [Caller("host", os.urandom(14))], 100, CLAIM_TIMEOUT)
        found += work.tasks
        if work.ahead is not None:
            return found, work.ahead.get(QueueKey(LAMBDA, Priority.NORMAL))


async def end(store, claimed, outcome=Outcome.SUCCESS, **fields):
    await set_results(store, [Result(task.task_id, task.token, outcome, **fields) for task in claimed])


@pytest.fixture
async def ready(store, task_states):
    await task_states.register()
    return store


async def test_tasks_start_at_the_rate_and_each_is_put_off_to_its_start_time_once(ready, clock):
    await declare(ready)
    asked = await scheduled(ready, 4)

    for place in range(4):
        (claimed,), ahead = await claim_all(ready)
        assert claimed.task_id == asked[place].task_id
        assert (ahead is None) == (place == 3)
        if ahead is not None:
            assert PERIOD - SLACK < ahead <= PERIOD
            await clock.tick(ahead)
        await end(ready, [claimed])


async def test_what_waits_for_its_start_time_is_new_holds_nothing_and_is_not_written_again(ready, clock, dsn):
    await declare(ready, capacity=5)
    _, second = await scheduled(ready, 2)
    await claim_all(ready)
    before = (await tasks.get_tasks(ready, [second.task_id]))[second.task_id]

    await clock.tick(PERIOD / 2)

    assert (await claim_all(ready))[0] == []
    after = (await tasks.get_tasks(ready, [second.task_id]))[second.task_id]
    assert before["status"] == after["status"] == "new"
    assert before["next_trigger_at"] == after["next_trigger_at"]
    (state,) = await resources.list_resources(ready, limit=1)
    assert (state.used, state.parked) == (1, 0)
    assert after["next_trigger_at"] <= state.starts_until <= after["next_trigger_at"] + PERIOD


async def test_a_burst_starts_at_once_after_a_time_in_which_few_started(ready, clock):
    await declare(ready, units=2, burst=3)
    await scheduled(ready, 10)

    started, ahead = await claim_all(ready)
    assert len(started) == 3
    assert PERIOD / 2 - SLACK < ahead <= PERIOD / 2
    await clock.tick(100 * PERIOD)

    assert len((await claim_all(ready))[0]) == 3  # start times that nobody took are lost


async def test_each_key_has_its_rate_and_is_forgotten_when_that_is_over(ready, clock, dsn):
    await declare(ready, per_key=True)
    for key in "ab":
        await scheduled(ready, 2, key=key)

    started, _ = await claim_all(ready)
    await end(ready, started)

    assert len(started) == 2
    assert [each.key for each in await resources.list_keys(ready, MAIL, limit=9)] == ["a", "b"]
    await clock.tick(PERIOD)
    started, _ = await claim_all(ready)
    await clock.tick(2 * PERIOD)
    await end(ready, started)
    assert await resources.list_keys(ready, MAIL, limit=9) == []


async def test_a_heavy_task_takes_as_many_start_times_and_at_most_the_burst(ready):
    await declare(ready, burst=3)
    await scheduled(ready, 1, weight=2)
    await scheduled(ready, 1, weight=1000)

    started, ahead = await claim_all(ready)

    assert len(started) == 1
    assert 2 * PERIOD - SLACK < ahead <= 2 * PERIOD


async def test_a_retry_is_a_start_and_takes_a_start_time(ready, clock):
    await declare(ready)
    await scheduled(ready, 1)
    (claimed,), _ = await claim_all(ready)
    await end(ready, [claimed], Outcome.RETRIABLE_FAILURE, failure_kind=1, retry_after=timedelta())

    assert (await claim_all(ready))[0] == []
    await clock.tick(PERIOD)

    assert len((await claim_all(ready))[0]) == 1


async def test_a_faster_rate_holds_at_once_for_what_was_put_off(ready):
    await declare(ready, period=timedelta(days=1))
    await scheduled(ready, 3)
    await claim_all(ready)

    assert await declare(ready, units=1000, burst=5) == {LAMBDA}

    assert len((await claim_all(ready))[0]) == 2
    assert await declare(ready, units=1000, burst=5) == set()


async def test_a_start_time_that_was_missed_is_kept(ready, clock):
    await declare(ready, period=10 * SECOND)
    await scheduled(ready, 6)
    sizes = []

    for _ in range(6):
        started, ahead = await claim_all(ready)
        sizes.append(len(started))
        await clock.tick((ahead or timedelta()) + 1.5 * SECOND)

    assert sizes == [1] * 6


async def test_workers_that_look_seldom_start_what_the_burst_allows_each_time_and_starve_nobody(ready, clock):
    await declare(ready, burst=2, period=10 * SECOND)
    await scheduled(ready, 12)
    sizes = []

    for _ in range(6):
        started, _ = await claim_all(ready)
        sizes.append(len(started))
        await clock.tick(33 * SECOND)

    assert sizes == [2] * 6


async def test_what_was_missed_and_what_is_new_start_no_more_together_than_the_burst(ready, clock):
    await declare(ready, burst=2)
    await scheduled(ready, 6)
    assert len((await claim_all(ready))[0]) == 2
    await clock.tick(100 * PERIOD)

    await scheduled(ready, 3)
    started, ahead = await claim_all(ready)

    assert len(started) == 2
    assert PERIOD - SLACK < ahead <= PERIOD


async def test_a_resource_that_is_removed_leaves_nothing_put_off(ready):
    await declare(ready)
    await scheduled(ready, 5)
    started, _ = await claim_all(ready)
    await end(ready, started)

    assert await resources.delete_resource(ready, MAIL) is Deletion.DONE
    assert await resources.end_delays(ready, [MAIL]) == {LAMBDA}

    assert len((await claim_all(ready))[0]) == 4


async def test_a_removal_that_broke_off_is_finished_by_declaring_the_resource_again(ready):
    await declare(ready)
    await scheduled(ready, 5)
    started, _ = await claim_all(ready)
    await end(ready, started)
    await resources.delete_resource(ready, MAIL)

    assert await declare(ready, units=1000, burst=1000) == {LAMBDA}

    assert len((await claim_all(ready))[0]) == 4


async def test_a_change_of_rate_that_broke_off_is_finished_by_the_next_one(ready, monkeypatch):
    await declare(ready)
    await scheduled(ready, 3)
    await claim_all(ready)

    async def no_store(*_):
        raise StoreUnavailableError("gone")

    with monkeypatch.context() as broken:
        broken.setattr(resource_changes, "end_delays", no_store)
        with pytest.raises(StoreUnavailableError):
            await declare(ready, units=1000, burst=5)

    assert await declare(ready, units=1000, burst=5) == {LAMBDA}
    assert len((await claim_all(ready))[0]) == 2


async def test_another_rate_holds_for_all_keys_and_tasks_of_many_pages(ready, dsn):
    await declare(ready, per_key=True)
    for key in ("a", "zz"):
        await scheduled(ready, 2, key=key)
    await claim_all(ready)
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "insert into resource_use (resource, key, starts_until) "
            "select %s, 'k' || n, now() from generate_series(1, 4500) as n",
            [MAIL],
        )
        connection.execute(
            "insert into task_assoc (task_id, lambda, collection, priority, status, next_trigger_at, due_at) "
            "select gen_random_uuid(), 'other', '', 3, 'new', now() + interval '1 day', now() from generate_series(1, 11000)"
        )

    assert await declare(ready, units=1000, burst=1000, per_key=True) == {LAMBDA}

    assert len((await claim_all(ready))[0]) == 2
    with psycopg.connect(dsn) as connection:
        left = connection.execute(
            "select count(*) from resource_use where key like 'k%' and starts_until is not null"
        )
        assert left.fetchone() == (0,)


async def test_what_expires_before_its_start_time_takes_none(ready, clock):
    await declare(ready)
    row = (await tasks.get_tasks(ready, [(await scheduled(ready, 1))[0].task_id])).popitem()[1]
    await scheduled(ready, 2, expires_at=row["created_at"] + PERIOD / 2)
    await scheduled(ready, 1)
    started, ahead = await claim_all(ready)
    await end(ready, started)

    await clock.tick(PERIOD)

    assert len(started) == 1
    assert ahead is not None
    started, _ = await claim_all(ready)
    await end(ready, started)
    assert len(started) == 1
    await polling.handle_timeouts(ready, None, ENQUEUE_TIMEOUT, 100)
    assert (await claim_all(ready)) == ([], None)


async def test_units_and_rate_hold_together(ready, clock):
    await declare(ready, burst=2, capacity=1)
    await scheduled(ready, 3)

    (first,), _ = await claim_all(ready)
    await end(ready, [first])
    (second,), _ = await claim_all(ready)
    await end(ready, [second])

    assert (await claim_all(ready))[0] == []
    await clock.tick(PERIOD)
    assert len((await claim_all(ready))[0]) == 1


async def test_the_store_consumer_enqueues_at_the_rate(ready, clock):
    await declare(ready)
    await scheduled(ready, 2)
    room = {QueueKey(LAMBDA, Priority.NORMAL): 100}

    assert len(await polling.enqueue(ready, room, ENQUEUE_TIMEOUT)) == 1
    assert await polling.enqueue(ready, room, ENQUEUE_TIMEOUT) == []
    await clock.tick(PERIOD)
    assert len(await polling.enqueue(ready, room, ENQUEUE_TIMEOUT)) == 1


@pytest.mark.parametrize("seed", range(3))
async def test_in_no_window_more_start_than_the_rate_and_the_burst_allow(ready, clock, seed):
    random = Random(seed)  # noqa: S311
    burst, units = random.randint(1, 4), random.randint(1, 5)
    await declare(ready, units=units, burst=burst)
    now, starts, waiting = timedelta(), [], 0
    for _ in range(25):
        count = random.choice([0, 1, 6])
        await scheduled(ready, count)
        started, ahead = await claim_all(ready)
        waiting += count - len(started)
        starts += [now] * len(started)
        await end(ready, started)
        step = random.choice([PERIOD / units / 2, PERIOD / 3, ahead or PERIOD, 2 * PERIOD])
        await clock.tick(step)
        now += step

    pace = PERIOD / units
    for place, first in enumerate(starts):
        for number, last in enumerate(starts[place:], 1):
            assert (number - burst) * pace <= last - first + SLACK
    while waiting:
        started, ahead = await claim_all(ready)
        await end(ready, started)
        waiting -= len(started)
        await clock.tick(ahead or SECOND)
