"""Limits in the store: no more units are held than there are, and what ends, whatever way, lets others run."""

import asyncio
import os
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from duly_core.counting.backlog import read_backlog
from duly_core.lambdas.names import QueueKey
from duly_core.limits import store as resources
from duly_core.limits.changes import NotPut
from duly_core.limits.store import Deletion, ResourceLimit
from duly_core.postgres.channels import DUE_CHANNEL
from duly_core.postgres.statements import fragment
from duly_core.results.store import set_results
from duly_core.tasks import claims, dead_letters, polling, schedule
from duly_core.tasks import store as tasks
from duly_core.tasks import updates as changes
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import (
    NewTask,
    Proposal,
    ReleasedClaim,
    ResourceNeed,
    Result,
    Scheduling,
    Session,
    TaskChange,
)
from duly_core.tasks.updates import ChangeVerdict
from duly_core.upkeep import retention
from duly_wire.enums import FailureKind, Outcome, Priority
from duly_wire.ids import new_task_id
from tests.fixtures import whole
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, LAMBDA, SECOND

OTHER = "report.make"
DATABASE = "database"
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def a_task(weight: int = 1, *, name: str = DATABASE, key: str = "", **fields) -> NewTask:
    return NewTask(
        task_id=new_task_id().bytes,
        lambda_name=fields.pop("lambda_name", LAMBDA),
        payload=b"{}",
        resources=fields.pop("resources", (ResourceNeed(name, key, weight),)),
        **fields,
    )


async def scheduled(store, *new_tasks):
    for task in new_tasks:  # one by one, so that each is due after the one before
        (answer,) = await schedule.schedule(store, [task])
        assert answer.verdict is Scheduling.CREATED
    return new_tasks


async def claim(store, most=1000, *lambdas):
    picks = [
        Pick(QueueKey(name, priority), most, 0) for priority in Priority for name in lambdas or (LAMBDA,)
    ]
    return await claims.claim_work(store, picks, [Caller("host", os.urandom(14))], most, CLAIM_TIMEOUT)


async def claim_all(store, *lambdas):
    return (await claim(store, 1000, *lambdas)).tasks


async def end(store, claimed, outcome=Outcome.SUCCESS, **fields):
    failed = {} if outcome is Outcome.SUCCESS else {"failure_kind": FailureKind.CALLBACK}
    return await set_results(
        store, [Result(task.task_id, task.token, outcome, **failed, **fields) for task in claimed]
    )


async def run_to_the_end(store, *lambdas):
    """Claim and finish what may run until nothing does; how many ran side by side each time."""
    sizes = []
    while claimed := await claim_all(store, *lambdas):
        sizes.append(len(claimed))
        await end(store, claimed)
    return sizes


async def state(store, name=DATABASE):
    (found,) = [each for each in await resources.list_resources(store, limit=10) if each.limit.name == name]
    return found.used, found.parked


@pytest.fixture
async def declared(store, task_states):
    await task_states.register()
    await task_states.register(OTHER)
    await whole.put_resource(store, ResourceLimit(DATABASE, 3))
    await whole.put_resource(store, ResourceLimit("tenant", 1, per_key=True))
    return store


async def test_no_more_run_than_there_are_units_and_the_others_follow_in_their_order(declared):
    asked = await scheduled(declared, *(a_task() for _ in range(8)))

    work = await claim(declared)

    assert [task.task_id for task in work.tasks] == [task.task_id for task in asked[:3]]
    assert work.ahead is None  # something was parked: look again
    assert await state(declared) == (3, 5)
    assert (await claim(declared)).ahead == {}
    await end(declared, work.tasks[:1])
    assert [task.task_id for task in await claim_all(declared)] == [asked[3].task_id]
    await end(declared, work.tasks[1:])
    assert sum(await run_to_the_end(declared)) == 4


async def test_nothing_is_left_of_a_resource_that_nobody_uses(declared, dsn):
    await scheduled(declared, *(a_task(key=f"t{number % 3}", name="tenant") for number in range(6)))

    assert await run_to_the_end(declared) == [3, 3]

    assert await resources.list_keys(declared, "tenant", limit=10) == []
    assert await state(declared, "tenant") == (0, 0)


async def test_keys_that_nobody_uses_are_removed_as_fast_as_they_are_made(declared, dsn, monkeypatch):
    monkeypatch.setattr(retention, "PAGE", 2)
    monkeypatch.setattr(retention, "PAGES_A_ROUND", 2)
    tidier = retention.Retention(declared, 7 * DAY, 30 * DAY, DAY)
    await scheduled(declared, *(a_task(key=f"order {number}", name="tenant") for number in range(6)))
    await run_to_the_end(declared)

    rounds = [await tidier.run_once() for _ in range(2)]

    assert [done.pause < SECOND for done in rounds] == [True, False]
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select count(*) from resource_use where key <> ''").fetchone() == (0,)


async def test_a_parked_task_is_due_at_once_when_units_are_free_and_its_lambda_is_told(declared):
    await scheduled(declared, *(a_task() for _ in range(3)), a_task(lambda_name=OTHER))
    work = await claim(declared, 1000, LAMBDA, OTHER)
    assert await claim_all(declared, OTHER) == []

    written = await end(declared, work.tasks[:1])

    assert written.due_lambdas == {OTHER}
    assert written.due_in == timedelta()
    assert len(await claim_all(declared, OTHER)) == 1


async def test_a_heavy_task_waits_for_its_units_and_those_of_its_lambda_do_not_overtake_it(declared):
    first, heavy, _ = await scheduled(declared, a_task(2), a_task(3), a_task(1))
    (running,) = await claim_all(declared)
    assert running.task_id == first.task_id
    await scheduled(declared, a_task())
    assert await claim_all(declared) == []

    await end(declared, [running])

    assert [task.task_id for task in await claim_all(declared)] == [heavy.task_id]
    assert await state(declared) == (3, 2)


async def test_a_weight_above_the_capacity_takes_all_of_it(declared):
    await scheduled(declared, a_task(1000), a_task(1))

    assert await run_to_the_end(declared) == [1, 1]


async def test_each_key_has_units_of_its_own(declared):
    await scheduled(declared, *(a_task(key=f"t{number % 4}", name="tenant") for number in range(8)))

    assert len(await claim_all(declared)) == 4
    found = await resources.list_keys(declared, "tenant", limit=10)
    assert [(each.key, each.used, each.parked) for each in found] == [(f"t{n}", 1, 1) for n in range(4)]


async def test_a_task_takes_units_of_all_its_resources_or_of_none(declared):
    both = (ResourceNeed(DATABASE, "", 2), ResourceNeed("tenant", "a"))
    await scheduled(declared, a_task(2), a_task(resources=both))
    (running,) = await claim_all(declared)

    assert await state(declared, "tenant") == (0, 0)
    assert await state(declared) == (2, 1)
    await end(declared, [running])
    assert len(await claim_all(declared)) == 1
    assert await state(declared, "tenant") == (1, 0)


async def test_what_was_released_for_nothing_releases_the_next(declared):
    """The first parked task needs another resource that is taken; the second needs only this one."""
    both = (ResourceNeed(DATABASE, "", 3), ResourceNeed("tenant", "a"))
    await scheduled(declared, a_task(3), a_task(resources=both), a_task(3, lambda_name=OTHER))
    holder = (await claim_all(declared, LAMBDA, OTHER))[0]
    await scheduled(declared, a_task(name="tenant", key="a", lambda_name=OTHER, priority=Priority.URGENT))
    (tenant,) = await claim_all(declared, OTHER)

    await end(declared, [holder])
    first, second = await claim_all(declared), await claim_all(declared, OTHER)

    assert (len(first), len(second)) == (0, 1)
    await end(declared, [tenant, *second])
    assert len(await claim_all(declared, LAMBDA)) == 1


@pytest.mark.parametrize(
    "way",
    ["success", "fatal", "retry", "crash", "snooze", "release", "silence", "cancel asked", "quarantine"],
)
async def test_whatever_ends_a_run_frees_what_it_held(declared, clock, way, task_states):
    await task_states.register(max_crashes=1 if way == "quarantine" else 3)
    await scheduled(declared, a_task(3), following := a_task(3, lambda_name=OTHER))
    (running,) = await claim_all(declared, LAMBDA, OTHER)
    outcomes = {
        "success": Outcome.SUCCESS,
        "fatal": Outcome.FATAL_FAILURE,
        "retry": Outcome.RETRIABLE_FAILURE,
        "crash": Outcome.CRASHED,
    }

    if way in outcomes:
        await end(declared, [running], outcomes[way], retry_after=HOUR)
    elif way == "snooze":
        await end(declared, [running], Outcome.SNOOZED, retry_after=HOUR)
    elif way == "release":
        await claims.release(declared, [ReleasedClaim(running.task_id, running.token)])
    else:
        if way == "cancel asked":
            await tasks.cancel_tasks(declared, [running.task_id])
        await clock.tick(CLAIM_TIMEOUT + SECOND)
        found = await polling.handle_timeouts(declared, None, ENQUEUE_TIMEOUT, 100)
        assert OTHER in found.released

    assert [task.task_id for task in await claim_all(declared, OTHER)] == [following.task_id]
    assert await state(declared) == (3, 0)


async def test_a_late_result_frees_nothing_that_another_holds(declared, clock):
    await scheduled(declared, a_task(3))
    (lost,) = await claim_all(declared)
    await clock.tick(CLAIM_TIMEOUT + SECOND)
    await polling.handle_timeouts(declared, None, ENQUEUE_TIMEOUT, 100)
    assert len(await claim_all(declared)) == 1

    await end(declared, [lost])
    await claims.release(declared, [ReleasedClaim(lost.task_id, lost.token)])

    assert await state(declared) == (3, 0)


async def test_with_a_queue_an_enqueued_task_holds_its_units_until_it_ends(declared, clock):
    asked = await scheduled(declared, *(a_task() for _ in range(5)))
    room = {QueueKey(LAMBDA, priority): 100 for priority in Priority}

    due = await polling.enqueue(declared, room, ENQUEUE_TIMEOUT)

    assert {each.task_id for each in due} == {task.task_id for task in asked[:3]}
    assert await state(declared) == (3, 2)
    proposal = Proposal(asked[0].task_id, os.urandom(16), LAMBDA)
    (claimed,) = await claims.claim(declared, [(proposal, "host")], CLAIM_TIMEOUT)
    await clock.tick(CLAIM_TIMEOUT + SECOND)
    found = await polling.handle_timeouts(declared, room, ENQUEUE_TIMEOUT, 100)
    assert (found.reclaimed, await state(declared)) == (1, (3, 2))
    proposal = Proposal(asked[0].task_id, os.urandom(16), LAMBDA)
    (claimed,) = await claims.claim(declared, [(proposal, "host")], CLAIM_TIMEOUT)
    await end(declared, [claimed])
    assert len(await polling.enqueue(declared, room, ENQUEUE_TIMEOUT)) == 1


async def test_what_could_not_be_sent_or_is_cancelled_in_its_queue_frees_its_units(declared, clock):
    asked = await scheduled(declared, *(a_task(3) for _ in range(3)))
    room = {QueueKey(LAMBDA, priority): 100 for priority in Priority}
    await polling.enqueue(declared, room, ENQUEUE_TIMEOUT)
    assert await polling.put_back(declared, [asked[0].task_id], HOUR) == {LAMBDA}
    assert await state(declared) == (0, 1)

    (second,) = [each.task_id for each in await polling.enqueue(declared, room, ENQUEUE_TIMEOUT)]
    await tasks.cancel_tasks(declared, [second])
    (third,) = await polling.enqueue(declared, room, ENQUEUE_TIMEOUT)
    await clock.tick(ENQUEUE_TIMEOUT + SECOND)
    await polling.handle_timeouts(declared, None, ENQUEUE_TIMEOUT, 100)

    assert third.task_id == asked[2].task_id
    assert (await state(declared))[0] == 0


async def test_a_change_of_what_is_enqueued_frees_its_units_and_tells_whom_it_released(declared):
    asked = await scheduled(declared, a_task(3), a_task(3, lambda_name=OTHER))
    room = {QueueKey(name, priority): 100 for priority in Priority for name in (LAMBDA, OTHER)}
    await polling.enqueue(declared, room, ENQUEUE_TIMEOUT)
    assert await state(declared) == (3, 1)

    change = TaskChange(asked[0].task_id, delay=HOUR)
    answers, released = await changes.update_pending(declared, [change])

    assert (answers[asked[0].task_id].verdict, released) == (ChangeVerdict.CHANGED, {OTHER})
    assert [each.task_id for each in await polling.enqueue(declared, room, ENQUEUE_TIMEOUT)] == [
        asked[1].task_id
    ]


async def test_a_claim_that_is_handed_back_and_cancelled_leaves_its_units_to_others_that_are_told(declared):
    await scheduled(declared, a_task(3), a_task(3, lambda_name=OTHER))
    (held,) = (await claim(declared, 1000, LAMBDA, OTHER)).tasks
    await tasks.cancel_tasks(declared, [held.task_id])

    verdicts, due_in = await claims.release(declared, [ReleasedClaim(held.task_id, held.token)])

    assert (verdicts, due_in) == ([claims.Applied.APPLIED], timedelta())  # of any lambda
    assert await state(declared) == (0, 0)
    assert len(await claim_all(declared, OTHER)) == 1


async def test_a_parked_task_can_be_cancelled_and_expires(declared, clock):
    late = a_task(expires_at=datetime.now(UTC) + HOUR)
    _, cancelled, _, last = await scheduled(declared, a_task(3), a_task(3), late, a_task())
    (running,) = await claim_all(declared)
    (row,) = (await tasks.get_tasks(declared, [cancelled.task_id])).values()
    assert row["status"] == Status.WAITING

    answer = await tasks.cancel_tasks(declared, [cancelled.task_id])
    assert answer.statuses == {cancelled.task_id: Status.CANCELLED}
    await end(declared, [running], Outcome.RETRIABLE_FAILURE, retry_after=2 * HOUR)
    assert [task.task_id for task in await claim_all(declared)] == [late.task_id, last.task_id]

    await scheduled(declared, another := a_task(3, expires_at=datetime.now(UTC) + HOUR))
    assert await claim_all(declared) == []
    await clock.tick(HOUR + SECOND)
    await polling.handle_timeouts(declared, None, ENQUEUE_TIMEOUT, 100)
    (row,) = (await tasks.get_tasks(declared, [another.task_id])).values()
    assert (row["status"], row["failure_kind"]) == (Status.FATAL_FAILURE, FailureKind.EXPIRED)


async def test_more_capacity_releases_and_less_lets_what_runs_end(declared):
    await scheduled(declared, *(a_task() for _ in range(10)))
    running = await claim_all(declared)

    assert await whole.put_resource(declared, ResourceLimit(DATABASE, 5)) == {LAMBDA}
    more = await claim_all(declared)
    assert (len(running), len(more)) == (3, 2)
    assert await whole.put_resource(declared, ResourceLimit(DATABASE, 1)) == set()
    await end(declared, running + more[:1])
    assert await claim_all(declared) == []
    await end(declared, more[1:])
    assert await run_to_the_end(declared) == [1, 1, 1, 1, 1]


async def test_a_capacity_of_zero_holds_all_back_until_it_is_raised(declared):
    await whole.put_resource(declared, ResourceLimit(DATABASE, 0))
    await scheduled(declared, *(a_task() for _ in range(3)))
    assert await claim_all(declared) == []

    assert await whole.put_resource(declared, ResourceLimit(DATABASE, 2)) == {LAMBDA}
    assert await run_to_the_end(declared) == [2, 1]


async def test_more_capacity_releases_all_that_fits_however_much_it_is(declared):
    await whole.put_resource(declared, ResourceLimit(DATABASE, 0))
    await schedule.schedule(declared, [a_task() for _ in range(2500)])
    for _ in range(3):
        assert await claim_all(declared) == []
    assert await state(declared) == (0, 2500)

    assert await whole.put_resource(declared, ResourceLimit(DATABASE, 5000)) == {LAMBDA}

    assert await state(declared) == (0, 0)
    assert [len(await claim_all(declared)) for _ in range(4)] == [1000, 1000, 500, 0]


async def test_more_capacity_releases_those_of_many_keys(declared):
    await whole.put_resource(declared, ResourceLimit("tenant", 0, per_key=True))
    await schedule.schedule(declared, [a_task(name="tenant", key=f"t{number}") for number in range(450)])
    assert await claim_all(declared) == []

    assert await whole.put_resource(declared, ResourceLimit("tenant", 1, per_key=True)) == {LAMBDA}

    assert len(await claim_all(declared)) == 450


async def test_what_a_pick_releases_is_told(declared, dsn):
    await whole.put_resource(declared, ResourceLimit("a", 1))
    await whole.put_resource(declared, ResourceLimit("b", 1))
    await scheduled(declared, a_task(name="a"), a_task(name="b"))
    hold_a, _ = await claim_all(declared)
    both = a_task(resources=(ResourceNeed("a"), ResourceNeed("b")))
    _, behind = await scheduled(declared, both, a_task(name="a"))
    assert await claim_all(declared) == []
    await end(declared, [hold_a])

    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(f"listen {DUE_CHANNEL}")
        assert await claim_all(declared) == []  # parks the first on b, which leaves a to the second
        told = [each.payload async for each in connection.notifies(timeout=10, stop_after=1)]

    assert told == [f"0 {LAMBDA}"]
    assert [task.task_id for task in await claim_all(declared)] == [behind.task_id]


async def test_a_task_that_two_picks_of_a_queue_find_takes_its_units_once(declared, dsn):
    await scheduled(declared, a_task())
    due = "due as (select task_id, resources from task_assoc cross join generate_series(1, 2))"

    with psycopg.connect(dsn) as connection:
        connection.execute(f"with {due}, {fragment('park')} select * from parked".encode())  # noqa: S608

    assert await state(declared) == (1, 0)


async def test_the_backlog_of_a_lambda_is_counted_whole_however_many_tasks_others_have(declared, monkeypatch):
    monkeypatch.setattr("duly_core.counting.backlog._MOST", 1)
    await whole.put_resource(declared, ResourceLimit(DATABASE, 0))
    await schedule.schedule(declared, [a_task(lambda_name=OTHER) for _ in range(10)])
    await claim_all(declared, OTHER)
    await scheduled(declared, a_task())
    await claim_all(declared)

    (found,) = await read_backlog(declared, [LAMBDA])

    assert found.parked == 1


async def test_a_resource_in_use_is_not_removed_and_keeps_its_kind(declared):
    await scheduled(declared, a_task())
    (running,) = await claim_all(declared)

    assert await resources.delete_resource(declared, DATABASE) is Deletion.IN_USE
    assert await whole.put_resource(declared, ResourceLimit(DATABASE, 3, per_key=True)) is NotPut.IN_USE
    await end(declared, [running])
    assert await whole.put_resource(declared, ResourceLimit(DATABASE, 3, per_key=True)) == set()
    assert await resources.delete_resource(declared, DATABASE) is Deletion.DONE
    assert await resources.delete_resource(declared, DATABASE) is Deletion.UNKNOWN


async def test_what_names_a_removed_resource_runs_without_a_limit(declared):
    await scheduled(declared, *(a_task() for _ in range(5)))
    await resources.delete_resource(declared, DATABASE)

    assert await run_to_the_end(declared) == [5]


async def test_the_head_of_a_session_is_parked_and_keeps_its_session_waiting(declared):
    session = Session("s")
    await scheduled(declared, a_task(3))
    (running,) = await claim_all(declared)
    first, second = await scheduled(declared, a_task(3, session=session), a_task(3, session=session))
    assert await claim_all(declared) == []
    assert await state(declared) == (3, 1)

    await end(declared, [running])
    (head,) = await claim_all(declared)
    assert head.task_id == first.task_id
    await end(declared, [head])
    assert [task.task_id for task in await claim_all(declared)] == [second.task_id]


async def test_a_parked_head_that_is_cancelled_lets_its_session_go_on(declared):
    session = Session("s")
    await scheduled(declared, a_task(3))
    await claim_all(declared)
    first, second = await scheduled(declared, a_task(session=session), a_task(session=session, resources=()))
    assert await claim_all(declared) == []

    await tasks.cancel_tasks(declared, [first.task_id])

    assert [task.task_id for task in await claim_all(declared)] == [second.task_id]
    assert await state(declared) == (3, 0)


async def test_a_redriven_task_takes_units_again(declared):
    (dead,) = await scheduled(declared, a_task(3))
    await end(declared, await claim_all(declared), Outcome.FATAL_FAILURE)
    await dead_letters.redrive(declared, [dead.task_id])

    assert len(await claim_all(declared)) == 1
    assert await state(declared) == (3, 0)


async def test_a_repeated_schedule_with_other_resources_is_a_conflict(declared):
    (task,) = await scheduled(declared, a_task(2))

    (again,) = await schedule.schedule(declared, [task])
    (other,) = await schedule.schedule(declared, [task._replace(resources=())])

    assert (again.verdict, other.verdict) == (Scheduling.REPEATED, Scheduling.CONFLICT)


async def test_plain_tasks_go_beside_parked_ones(declared):
    await scheduled(declared, *(a_task(3) for _ in range(5)), *(a_task(resources=()) for _ in range(5)))

    assert len(await claim_all(declared)) == 6


@pytest.mark.timeout(120)
async def test_pickers_and_ends_at_once_never_exceed_the_capacity_and_leave_nothing_parked(declared):
    asked = [
        a_task(
            1 + number % 3,
            lambda_name=(LAMBDA, OTHER)[number % 2],
            priority=(Priority.NORMAL, Priority.LOW)[number % 5 == 0],
            resources=(ResourceNeed(DATABASE, "", 1 + number % 3), ResourceNeed("tenant", f"t{number % 7}")),
        )
        for number in range(200)
    ]
    for start in range(0, 200, 20):
        await schedule.schedule(declared, asked[start : start + 20])
    ran = []
    most = []

    async def run(*lambdas):
        while len(ran) < len(asked):
            claimed = await claim_all(declared, *lambdas)
            async with declared.connection() as connection:
                cursor = await connection.execute(
                    "select coalesce(sum(took.weight), 0) from task_assoc as assoc "
                    "cross join jsonb_to_recordset(assoc.taken) as took (name text, weight int4) where took.name = %s",
                    [DATABASE],
                )
                most.append((await cursor.fetchone())[0])
            await end(declared, claimed, Outcome.SUCCESS)
            ran.extend(task.task_id for task in claimed)
            await asyncio.sleep(0)

    await asyncio.wait_for(
        asyncio.gather(run(LAMBDA), run(LAMBDA, OTHER), run(OTHER), run(OTHER, LAMBDA)), 100
    )

    assert len(ran) == len(set(ran)) == 200
    assert max(most) <= 3
    assert await state(declared) == (0, 0)
    assert await resources.list_keys(declared, "tenant", limit=10) == []
