"""Redriving dead letters: who can be, what a new life begins with, and that the old one cannot write into it."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from duly_core.lambdas.names import QueueKey
from duly_core.results.store import set_results
from duly_core.tasks import claims, dead_letters, polling
from duly_core.tasks import queries as task_queries
from duly_core.tasks.dead_letters import Answer, Spread, Verdict
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.queries import list_page
from duly_core.tasks.store import TaskFilter, cancel_tasks
from duly_core.tasks.task import Applied, HeartbeatAnswer, NewTask, ReleasedClaim, Result, TaskHeartbeat
from duly_wire.enums import FailureKind, Outcome, Priority
from duly_wire.ids import new_task_id
from tests.fixtures.database import ask, until_a_statement_waits_for_a_lock
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, SECOND

OTHER = "report.make"
ROOM = {QueueKey(name, priority): 1000 for name in (LAMBDA, OTHER) for priority in Priority}
DONE = Answer(Verdict.REDRIVEN, Status.NEW)
ANY = TaskFilter()
DEAD = TaskFilter(statuses=frozenset({Status.FATAL_FAILURE}))


async def report(task_states, claimed, outcome, kind=FailureKind.CALLBACK, **details):
    """What the store makes of a result."""
    result = Result(
        claimed.task_id, claimed.token, outcome, failure_kind=kind, failure_message="no", **details
    )
    return (await set_results(task_states.store, [result])).verdicts[0]


async def given_up(task_states, kind=FailureKind.CALLBACK, **overrides):
    claimed = await task_states.claimed(**overrides)
    assert await report(task_states, claimed, Outcome.FATAL_FAILURE, kind) is Applied.APPLIED
    return claimed


async def exhausted(task_states, clock):
    await task_states.register(max_attempts=1)
    claimed = await task_states.processing()
    await report(task_states, claimed, Outcome.RETRIABLE_FAILURE)
    return claimed


async def quarantined(task_states, clock):
    await task_states.register(max_crashes=1)
    claimed = await task_states.processing()
    await report(task_states, claimed, Outcome.CRASHED, FailureKind.CRASH)
    return claimed


async def silent(task_states, clock):
    await task_states.register(max_crashes=1)
    claimed = await task_states.processing()
    await clock.tick(HEARTBEAT_TIMEOUT + SECOND)
    await polling.handle_timeouts(task_states.store, ROOM, ENQUEUE_TIMEOUT, 10)
    return claimed


async def expired(task_states, clock):
    task = await task_states.new(expires_at=(await now_of(task_states)) + SECOND)
    await clock.tick(2 * SECOND)
    await polling.handle_timeouts(task_states.store, ROOM, ENQUEUE_TIMEOUT, 10)
    return task


async def given_up_by_its_callback(task_states, clock):
    return await given_up(task_states)


ENDS = {
    exhausted: FailureKind.ATTEMPTS_EXHAUSTED,
    quarantined: FailureKind.QUARANTINED,
    silent: FailureKind.QUARANTINED,
    expired: FailureKind.EXPIRED,
    given_up_by_its_callback: FailureKind.CALLBACK,
}


async def now_of(task_states):
    async with task_states.store.connection() as connection:
        cursor = await connection.execute("select duly_now()")
        return (await cursor.fetchone())[0]


async def again(task_states, task):
    """The next claim of a task that is due."""
    due = await polling.enqueue(task_states.store, ROOM, ENQUEUE_TIMEOUT)
    assert task.task_id in {each.task_id for each in due}
    return await task_states.claim(NewTask(task.task_id, LAMBDA, b""))


async def redrive(task_states, *tasks):
    return await dead_letters.redrive(task_states.store, [task.task_id for task in tasks])


def found(dsn):
    """What is kept as dead letters, and what is; the two must be the same."""
    with psycopg.connect(dsn) as connection:
        kept = connection.execute("select task_id, finished_at from dead_letter order by 1").fetchall()
        dead = "select task_id, finished_at from task where status = 'fatal_failure' order by 1"
        assert kept == connection.execute(dead).fetchall()
    return {task_id.bytes for task_id, _ in kept}


async def test_a_redriven_task_is_in_its_collection_again(task_states, dsn):
    task = await given_up(task_states, collection="spring")

    await redrive(task_states, task)

    assert ask(dsn, "select collection from task_assoc") == [("spring",)]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
async def test_however_a_task_came_to_its_fatal_failure_it_runs_again_with_a_clean_slate(
    task_states, clock, dsn, end
):
    task = await end(task_states, clock)
    dead = await task_states.row(task.task_id)
    assert (dead["status"], dead["failure_kind"]) == ("fatal_failure", ENDS[end])
    assert found(dsn) == {task.task_id}

    assert await redrive(task_states, task) == {task.task_id: DONE}

    row = await task_states.row(task.task_id)
    began_anew = {
        "status": "new",
        "failures": 0,
        "crashes": 0,
        "started_at": None,
        "finished_at": None,
        "expires_at": None,
        "redrives": 1,
        "next_trigger_at": row["next_trigger_at"],
        "cancel_requested": False,
        "has_events": True,
    }
    assert row == dead | began_anew  # the fence, and what is known of the last attempt, are as they were
    assert found(dsn) == set()
    assert (await again(task_states, task)).fence == dead["fence"] + 1


async def test_a_redriven_task_has_all_its_attempts_and_crashes_again(task_states):
    await task_states.register(max_attempts=2, max_crashes=2, backoff_initial=timedelta(0))
    claimed = await task_states.claimed()
    fences = [claimed.fence]

    for redrives in range(3):
        assert (claimed.failures, claimed.crashes) == (0, 0)
        await report(task_states, claimed, Outcome.CRASHED, FailureKind.CRASH, retry_after=timedelta(0))
        claimed = await again(task_states, claimed)
        await report(task_states, claimed, Outcome.RETRIABLE_FAILURE, retry_after=timedelta(0))
        claimed = await again(task_states, claimed)
        await report(task_states, claimed, Outcome.RETRIABLE_FAILURE)
        row = await task_states.row(claimed.task_id)
        assert (row["status"], row["failures"], row["crashes"]) == ("fatal_failure", 2, 1)
        assert row["redrives"] == redrives
        await redrive(task_states, claimed)
        claimed = await again(task_states, claimed)
        fences.append(claimed.fence)

    assert fences == [1, 4, 7, 10]


@pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.CANCELLED])
async def test_a_redriven_task_may_end_otherwise(task_states, dsn, outcome):
    task = await given_up(task_states)
    await redrive(task_states, task)

    claimed = await again(task_states, task)
    result = Result(
        claimed.task_id, claimed.token, outcome, result=b"1" if outcome is Outcome.SUCCESS else None
    )
    await set_results(task_states.store, [result])

    assert await task_states.status(task.task_id) == outcome.name.lower()
    assert (await redrive(task_states, task))[task.task_id].verdict is Verdict.NOT_DEAD
    assert found(dsn) == set()


async def test_a_task_in_any_other_status_is_left_as_it_is(task_states):
    retried, succeeded = await task_states.processing(), await task_states.processing()
    await report(task_states, retried, Outcome.RETRIABLE_FAILURE, retry_after=timedelta(hours=1))
    await set_results(task_states.store, [Result(succeeded.task_id, succeeded.token, Outcome.SUCCESS)])
    cancelled = await task_states.new()
    await cancel_tasks(task_states.store, [cancelled.task_id])
    tasks = [retried, succeeded, cancelled, await task_states.processing(), await task_states.claimed()]
    tasks += [await task_states.enqueued(), await task_states.new()]
    before = [await task_states.row(task.task_id) for task in tasks]

    answers = await redrive(task_states, *tasks)

    assert [await task_states.row(task.task_id) for task in tasks] == before
    assert answers == {
        row["task_id"].bytes: Answer(Verdict.NOT_DEAD, Status(row["status"])) for row in before
    }
    assert len({row["status"] for row in before}) == len(tasks)


async def test_many_are_answered_for_themselves_and_the_unknown_left_out(task_states):
    dead, also_dead, live = await given_up(task_states), await given_up(task_states), await task_states.new()
    ids = [live.task_id, new_task_id().bytes, also_dead.task_id, dead.task_id, dead.task_id]

    answers = await dead_letters.redrive(task_states.store, ids)

    assert answers == {
        dead.task_id: DONE,
        also_dead.task_id: DONE,
        live.task_id: Answer(Verdict.NOT_DEAD, Status.NEW),
    }
    assert await dead_letters.redrive(task_states.store, []) == {}


async def test_a_dead_letter_whose_lambda_nobody_serves_stays_one(task_states, dsn):
    task = await given_up(task_states)
    before = await task_states.row(task.task_id)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("delete from lambda")

    answers = await redrive(task_states, task)
    page = await dead_letters.redrive_where(task_states.store, ANY, Spread(), 10)

    assert answers == {task.task_id: Answer(Verdict.UNKNOWN_LAMBDA, Status.FATAL_FAILURE)}
    assert (page.count, page.more) == (0, False)
    assert await task_states.row(task.task_id) == before


async def test_a_second_redrive_finds_no_dead_letter(task_states):
    task = await given_up(task_states)

    first, second = await redrive(task_states, task), await redrive(task_states, task)

    assert (first, second) == (
        {task.task_id: DONE},
        {task.task_id: Answer(Verdict.NOT_DEAD, Status.NEW)},
    )
    assert (await task_states.row(task.task_id))["redrives"] == 1


async def test_of_two_redrives_at_once_one_wins(task_states, dsn):
    task = await given_up(task_states)
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("select from task for update")
        both = [asyncio.ensure_future(redrive(task_states, task)) for _ in range(2)]
        both.append(asyncio.ensure_future(dead_letters.redrive_where(task_states.store, ANY, Spread(), 10)))
        await until_a_statement_waits_for_a_lock(dsn)
        await other.commit()

    first, second, page = await asyncio.gather(*both)

    wins = [answers[task.task_id].verdict for answers in (first, second)].count(Verdict.REDRIVEN)
    assert wins + page.count == 1
    row = await task_states.row(task.task_id)
    assert (row["status"], row["redrives"]) == ("new", 1)


async def test_the_result_that_ended_a_life_is_already_applied_through_the_next(task_states):
    old = await given_up(task_states)

    await redrive(task_states, old)

    assert await report(task_states, old, Outcome.FATAL_FAILURE) is Applied.ALREADY_APPLIED
    new = await again(task_states, old)
    assert await report(task_states, old, Outcome.FATAL_FAILURE) is Applied.ALREADY_APPLIED
    assert await task_states.status(old.task_id) == "claimed"
    assert await report(task_states, new, Outcome.RETRIABLE_FAILURE) is Applied.APPLIED
    assert (
        await report(task_states, old, Outcome.FATAL_FAILURE) is Applied.LOST
    )  # only the newest is remembered


@pytest.mark.parametrize("claimed_again", [False, True])
async def test_a_claim_that_was_taken_away_stays_lost_in_the_next_life(task_states, clock, claimed_again):
    stale = await silent(task_states, clock)
    await task_states.register(max_crashes=3)
    await redrive(task_states, stale)
    if claimed_again:
        await again(task_states, stale)
    before = await task_states.row(stale.task_id)

    for outcome in (Outcome.SUCCESS, Outcome.RETRIABLE_FAILURE, Outcome.CRASHED, Outcome.FATAL_FAILURE):
        assert await report(task_states, stale, outcome) is Applied.LOST
    claim = (stale.task_id, stale.token)
    assert (await claims.release(task_states.store, [ReleasedClaim(*claim)]))[0] == [Applied.LOST]
    beat = TaskHeartbeat(*claim)
    assert await claims.heartbeat(task_states.store, [beat], HEARTBEAT_TIMEOUT) == [HeartbeatAnswer.LOST]
    assert await task_states.row(stale.task_id) == before


async def test_an_expiry_ahead_holds_and_one_that_passed_or_would_is_dropped(task_states, clock):
    now = await now_of(task_states)
    ahead = [await given_up(task_states, expires_at=now + timedelta(hours=1)) for _ in range(2)]

    page = await dead_letters.redrive_where(task_states.store, ANY, Spread(rate=1 / 7200), 10)

    assert page.count == 2
    first, second = [await task_states.row(task.task_id) for task in ahead]
    assert first["expires_at"] == now + timedelta(hours=1)
    assert second["expires_at"] is None  # due after two hours


async def test_a_filters_dead_letters_become_due_one_after_the_other_in_the_order_of_their_ends(task_states):
    tasks = [await task_states.claimed() for _ in range(4)]
    for task in reversed(tasks):
        await report(task_states, task, Outcome.FATAL_FAILURE)

    page = await dead_letters.redrive_where(task_states.store, ANY, Spread(rate=0.5), 10)

    assert (page.count, page.more, page.due_in) == (4, False, page.due_in)
    due = [(await task_states.row(task.task_id))["next_trigger_at"] for task in reversed(tasks)]
    start = page.spread.as_of
    assert [moment - start for moment in due[1:]] == [timedelta(seconds=2 * n) for n in (1, 2, 3)]
    assert timedelta() <= due[0] - start < 2 * SECOND
    assert page.spread.offset == timedelta(seconds=8)
    assert page.due_in < 2 * SECOND


async def test_pages_go_on_where_the_one_before_ended(task_states):
    tasks = [await given_up(task_states) for _ in range(5)]
    spread, pages = Spread(rate=0.1), []
    while not pages or pages[-1].more:
        pages.append(await dead_letters.redrive_where(task_states.store, ANY, spread, 2))
        spread = pages[-1].spread

    assert [(page.count, page.more) for page in pages] == [(2, True), (2, True), (1, False)]
    assert len({page.spread.as_of for page in pages}) == 1
    due = [(await task_states.row(task.task_id))["next_trigger_at"] for task in tasks]
    assert [moment - spread.as_of for moment in due[1:]] == [timedelta(seconds=10 * n) for n in (1, 2, 3, 4)]


async def test_a_caller_that_paused_goes_on_at_the_rate_and_not_with_a_burst(task_states, clock):
    tasks = [await given_up(task_states) for _ in range(4)]
    first = await dead_letters.redrive_where(task_states.store, ANY, Spread(rate=1), 2)
    await clock.tick(timedelta(hours=1))
    resumed_at = await now_of(task_states)

    await dead_letters.redrive_where(task_states.store, ANY, first.spread, 2)

    third, fourth = [(await task_states.row(task.task_id))["next_trigger_at"] for task in tasks[2:]]
    assert resumed_at <= third < resumed_at + SECOND
    assert fourth - resumed_at >= SECOND


async def test_a_task_that_fails_again_during_a_redrive_is_left_for_the_next(task_states):
    again_dead, waiting = await given_up(task_states), await given_up(task_states)
    first = await dead_letters.redrive_where(task_states.store, ANY, Spread(), 1)
    await report(task_states, await again(task_states, again_dead), Outcome.FATAL_FAILURE)

    second = await dead_letters.redrive_where(task_states.store, ANY, first.spread, 10)

    assert (first.count, first.more, second.count, second.more) == (1, True, 1, False)
    assert await task_states.status(again_dead.task_id) == "fatal_failure"
    assert await task_states.status(waiting.task_id) == "new"


async def test_an_as_of_ahead_is_taken_for_now(task_states):
    await given_up(task_states)
    ahead = Spread(as_of=await now_of(task_states) + timedelta(days=1))

    page = await dead_letters.redrive_where(task_states.store, ANY, ahead, 10)

    assert page.count == 1
    assert page.spread.as_of < ahead.as_of - timedelta(hours=23)


async def test_counting_tells_how_many_there_are_and_changes_nothing(task_states, dsn):
    tasks = [await given_up(task_states, collection=name) for name in ("spring", "spring", "autumn")]

    page = await dead_letters.count_where(task_states.store, TaskFilter(collection="spring"), Spread())

    assert (page.count, page.more) == (2, False)
    assert found(dsn) == {task.task_id for task in tasks}


async def test_every_filter_holds_for_the_list_and_for_the_redrive(task_states, clock):
    await task_states.register(OTHER)
    old = await given_up(task_states, FailureKind.EXCEPTION, collection="spring")
    await clock.tick(timedelta(hours=1))
    between = await now_of(task_states)
    other = await given_up(task_states, FailureKind.BAD_RESULT, lambda_name=OTHER)
    young = await given_up(task_states, FailureKind.BAD_RESULT)
    await task_states.processing(collection="spring")
    ways = {
        TaskFilter(lambda_name=OTHER): {other},
        TaskFilter(collection="spring"): {old},
        TaskFilter(failure_kinds=frozenset({FailureKind.BAD_RESULT})): {other, young},
        TaskFilter(failure_kinds=frozenset({FailureKind.EXCEPTION, FailureKind.EXPIRED})): {old},
        TaskFilter(finished_after=between): {other, young},
        TaskFilter(finished_before=between): {old},
        TaskFilter(lambda_name=LAMBDA, finished_after=between): {young},
        TaskFilter(
            lambda_name=LAMBDA, finished_after=between, finished_before=between + SECOND / 1000
        ): set(),
        ANY: {old, other, young},
    }

    for wanted, expected in ways.items():
        listed = (await list_page(task_states.store, replace(wanted, statuses=DEAD.statuses), None, 10)).rows
        ids = [row["task_id"].bytes for row in listed]
        assert ids == sorted((task.task_id for task in expected), reverse=True), wanted
        assert (await dead_letters.count_where(task_states.store, wanted, Spread())).count == len(expected), (
            wanted
        )
        page = await dead_letters.redrive_where(task_states.store, wanted, Spread(), 10)
        assert page.count == len(expected), wanted
        for task in expected:
            await end_again(
                task_states, task, FailureKind.EXCEPTION if task is old else FailureKind.BAD_RESULT
            )
            if task is old:
                await set_end(task_states, task, between - SECOND)


async def end_again(task_states, task, kind):
    await polling.enqueue(task_states.store, ROOM, ENQUEUE_TIMEOUT)
    claimed = await task_states.claim(NewTask(task.task_id, task.lambda_name, b""))
    assert await report(task_states, claimed, Outcome.FATAL_FAILURE, kind) is Applied.APPLIED


async def set_end(task_states, task, moment):
    """As if it had ended then."""
    async with task_states.store.connection() as connection:
        await connection.execute(
            "update task set status = status, finished_at = %s where task_id = %s::uuid",
            (moment, task.task_id.hex()),
        )


async def test_a_list_of_dead_letters_goes_on_below_a_task(task_states):
    tasks = [await given_up(task_states) for _ in range(5)]

    rows = (await list_page(task_states.store, DEAD, tasks[3].task_id, 2)).rows

    assert [row["task_id"].bytes for row in rows] == [tasks[2].task_id, tasks[1].task_id]


FILL = """
insert into task (
    task_id, lambda, collection, priority, payload_encoding, payload, created_at, scheduled_at, status, finished_at, fence,
    failures, crashes, failure_kind, failed_at
)
select gen_random_uuid(), 'mail.send', '', 3, 1, '', now(), now(),
    case when number %% 10 = 0 then 'fatal_failure' else 'success' end::task_status,
    now() - number * interval '1 s', 1, 0, 0, 1, now()
from generate_series(1, %(count)s) as number
"""
MANY = 5_000


async def explained(store, query, parameters):
    """The plan of a query as it was carried out."""
    async with store.connection() as connection:
        cursor = psycopg.AsyncClientCursor(connection)
        await cursor.execute(f"explain (analyze, format json) {query}".encode(), parameters)
        (((plan,),),) = await cursor.fetchall()
    return plan["Plan"]


def nodes(plan):
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


@pytest.mark.parametrize("name", ["", LAMBDA], ids=["of all lambdas", "of one lambda"])
async def test_dead_letters_are_found_without_a_look_at_the_tasks_that_ended_well(
    task_states, dsn, monkeypatch, name
):
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(psycopg.ClientCursor(connection).mogrify(FILL, {"count": MANY}))
        connection.execute("analyze")
    plans, really = [], task_queries.select_text

    async def select(store, query, parameters):
        plans.append(await explained(store, query, parameters))
        return await really(store, query, parameters)

    monkeypatch.setattr(task_queries, "select_text", select)

    (_, last) = (await list_page(task_states.store, replace(DEAD, lambda_name=name), None, 2)).rows
    await list_page(task_states.store, replace(DEAD, lambda_name=name), last["task_id"].bytes, 2)
    await dead_letters.redrive_where(task_states.store, TaskFilter(name), Spread(), 10)

    assert len(plans) == 4  # the lists, the clock, the redrive
    for plan in plans:
        looked_at = sum(
            (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            for node in nodes(plan)
            if node.get("Relation Name") in {"task", "dead_letter"}
        )
        assert looked_at <= 30, plan
