"""Cancelling and deleting all that a filter finds, page by page."""

from datetime import timedelta

import pytest

from duly_core.graphs.predecessors import graph_places
from duly_core.postgres.arrays import texts, uuids
from duly_core.postgres.statements import ENTITIES
from duly_core.results.store import set_results
from duly_core.tasks import bulk, dead_letters
from duly_core.tasks import store as tasks
from duly_core.tasks.bulk import Place
from duly_core.tasks.lifecycle import FINAL, READY, Status
from duly_core.tasks.store import TaskFilter
from duly_core.tasks.task import Result, Session
from duly_wire.enums import EdgeCondition, Outcome, Priority
from tests.fixtures.database import count
from tests.fixtures.graph_states import claim_work, end, write_graph
from tests.fixtures.task_states import LAMBDA

PENDING = READY | {Status.ENQUEUED}
OTHER = "mail.sort"


async def ended(task_states, outcome=Outcome.SUCCESS, **fields):
    task = await task_states.processing(**fields)
    await set_results(task_states.store, [Result(task.task_id, task.token, outcome)])
    return task


async def all_pages(call, store, wanted, limit):
    counts, place = [], Place()
    while True:
        page = await call(store, wanted, place, limit)
        counts.append(page.count)
        place = page.place
        if not page.more:
            return counts


async def test_a_cancel_by_filter_takes_what_waits_and_leaves_what_runs(task_states):
    await task_states.register(OTHER)
    waits = [await task_states.new(collection="spring") for _ in range(5)]
    others = [
        await task_states.new(collection="autumn"),
        await task_states.new(lambda_name=OTHER, collection="spring"),
        await task_states.new(collection="spring", priority=Priority.LOW),
    ]
    wanted = TaskFilter(LAMBDA, "spring", PENDING, frozenset({Priority.NORMAL}))

    dry = await bulk.count_where(task_states.store, wanted, Place())
    counts = await all_pages(bulk.cancel_where, task_states.store, wanted, 2)

    assert (dry.count, counts) == (5, [2, 2, 1])
    assert {await task_states.status(each.task_id) for each in waits} == {"cancelled"}
    assert {await task_states.status(each.task_id) for each in others} == {"new"}


async def test_what_runs_is_asked_to_stop_if_the_filter_names_it(task_states, processing_task):
    left_alone = await bulk.cancel_where(task_states.store, TaskFilter(statuses=PENDING), Place(), 10)
    asked = TaskFilter(statuses=frozenset({Status.PROCESSING}))

    page = await bulk.cancel_where(task_states.store, asked, Place(), 10)

    assert (left_alone.count, page.count) == (0, 1)
    assert (await task_states.row(processing_task.task_id))["cancel_requested"]


async def test_what_is_scheduled_after_the_first_page_is_not_cancelled(task_states, clock):
    first = [await task_states.new() for _ in range(2)]
    wanted = TaskFilter(statuses=PENDING)
    page = await bulk.cancel_where(task_states.store, wanted, Place(), 1)
    await clock.tick(timedelta(seconds=1))
    late = await task_states.new()

    page = await bulk.cancel_where(task_states.store, wanted, page.place, 10)

    assert (page.count, page.more) == (1, False)
    assert {await task_states.status(each.task_id) for each in first} == {"cancelled"}
    assert await task_states.status(late.task_id) == "new"


async def test_a_purge_deletes_what_ended_with_all_that_belongs_to_it(task_states, dsn):
    gone = [await ended(task_states, idempotency_key=f"k{number}") for number in range(3)]
    dead = await ended(task_states, Outcome.FATAL_FAILURE)
    lives = await task_states.new()
    wanted = TaskFilter(LAMBDA, statuses=FINAL)

    dry = await bulk.count_where(task_states.store, wanted, Place())
    counts = await all_pages(bulk.purge_where, task_states.store, wanted, 3)

    left = await tasks.get_tasks(
        task_states.store, [*(each.task_id for each in gone), dead.task_id, lives.task_id]
    )
    assert (dry.count, counts) == (4, [3, 1])
    assert set(left) == {lives.task_id}
    assert [count(dsn, table) for table in ("attempt", "dead_letter", "idempotency_key")] == [0, 0, 0]


async def test_a_purge_goes_by_status_and_by_the_time_of_the_end(task_states, clock):
    old = await ended(task_states)
    old_dead = await ended(task_states, Outcome.FATAL_FAILURE)
    await clock.tick(timedelta(days=2))
    new = await ended(task_states)
    before = (await task_states.row(new.task_id))["finished_at"] - timedelta(days=1)
    wanted = TaskFilter(statuses=frozenset({Status.SUCCESS}), finished_before=before)

    page = await bulk.purge_where(task_states.store, wanted, Place(), 10)

    assert page.count == 1
    assert set(await tasks.get_tasks(task_states.store, [old.task_id, old_dead.task_id, new.task_id])) == {
        old_dead.task_id,
        new.task_id,
    }


async def test_the_key_of_a_purged_task_is_free_again(task_states):
    first = await ended(task_states, idempotency_key="k")
    await bulk.purge_where(task_states.store, TaskFilter(statuses=FINAL), Place(), 10)

    again = await task_states.new(idempotency_key="k")

    assert again.task_id != first.task_id


async def test_a_task_that_was_redriven_since_it_was_found_is_not_deleted(task_states, dsn):
    dead = await ended(task_states, Outcome.FATAL_FAILURE)
    as_of = (await task_states.row(dead.task_id))["finished_at"]
    await dead_letters.redrive(task_states.store, [dead.task_id])

    rows = await task_states.store.run(
        ENTITIES["purge"],
        {"task_ids": uuids([dead.task_id]), "statuses": texts(sorted(map(str, FINAL))), "as_of": as_of},
    )

    assert rows == []
    assert await task_states.status(dead.task_id) == "new"


@pytest.mark.parametrize("nothing", [bulk.cancel_where, bulk.purge_where])
async def test_an_empty_page_is_the_last(task_states, nothing):
    statuses = PENDING if nothing is bulk.cancel_where else FINAL

    page = await nothing(task_states.store, TaskFilter(statuses=statuses), Place(), 10)

    assert (page.count, page.more, page.place.after) == (0, False, None)
    assert page.place.as_of is not None


async def test_a_cancel_by_filter_ends_what_waits_in_sessions_and_releases_nothing_of_it(task_states):
    session = Session("s")
    made = [await task_states.new(session=session, collection="spring") for _ in range(4)]
    last = await task_states.new(session=session)
    statuses = PENDING | {Status.WAITING}

    page = await bulk.cancel_where(
        task_states.store, TaskFilter(collection="spring", statuses=statuses), Place(), 10
    )

    assert (page.count, set(page.released)) == (4, {LAMBDA})
    assert {await task_states.status(each.task_id) for each in made} == {"cancelled"}
    assert await task_states.status(last.task_id) == "new"


async def test_the_tasks_of_a_graph_that_runs_are_not_purged(task_states):
    store = task_states.store
    running = await write_graph(store, {"b": {"a": EdgeCondition.SUCCEEDED}})
    over = await write_graph(store, {"a": {}})
    await end(store, await claim_work(store), result=b"1")
    wanted, everything = TaskFilter(statuses=FINAL), Place()

    assert (await bulk.count_where(store, wanted, everything)).count == 1
    assert (await bulk.purge_where(store, wanted, everything, 10)).count == 1
    (claimed,) = await claim_work(store)
    (before,) = (await graph_places(store, [claimed.task_id]))[claimed.task_id].predecessors
    assert before.result == b"1"
    assert await tasks.get_tasks(store, over.ids.values()) == {}

    await end(store, [claimed])
    assert (await bulk.purge_where(store, wanted, everything, 10)).count == 2
    assert await tasks.get_tasks(store, running.ids.values()) == {}
