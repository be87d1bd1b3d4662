"""Redriving dead letters: who can be, what a new life begins with, and that the old one cannot write into it."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from duly.ids import new_task_id
from duly_core.lifecycle import Status
from duly_core.routing import Priority, QueueKey
from duly_core.store import claims, dead_letter_queries, dead_letters, task_queries, trigger
from duly_core.store.dead_letters import Answer, Spread, Verdict
from duly_core.store.results import set_results
from duly_core.store.tasks import TaskFilter, cancel_tasks, list_tasks
from duly_core.task import Applied, Beat, FailureKind, Kept, NewTask, Outcome, ReleasedClaim, Result
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.ladder import ENQUEUE_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, SECOND

OTHER = "report.make"
ROOM = {QueueKey(name, priority): 1000 for name in (LAMBDA, OTHER) for priority in Priority}
DONE = Answer(Verdict.REDRIVEN, Status.NEW)
ANY = TaskFilter()
DEAD = TaskFilter(statuses=frozenset({Status.FATAL_FAILURE}))


async def report(ladder, claimed, outcome, kind=FailureKind.CALLBACK, **details):
    """What the store makes of a result."""
    result = Result(
        claimed.task_id, claimed.token, outcome, failure_kind=kind, failure_message="no", **details
    )
    return (await set_results(ladder.store, [result])).verdicts[0]


async def given_up(ladder, kind=FailureKind.CALLBACK, **overrides):
    claimed = await ladder.claimed(**overrides)
    assert await report(ladder, claimed, Outcome.FATAL_FAILURE, kind) is Applied.APPLIED
    return claimed


async def exhausted(ladder, clock):
    await ladder.register(max_attempts=1)
    claimed = await ladder.processing()
    await report(ladder, claimed, Outcome.RETRIABLE_FAILURE)
    return claimed


async def quarantined(ladder, clock):
    await ladder.register(max_crashes=1)
    claimed = await ladder.processing()
    await report(ladder, claimed, Outcome.CRASHED, FailureKind.CRASH)
    return claimed


async def silent(ladder, clock):
    await ladder.register(max_crashes=1)
    claimed = await ladder.processing()
    await clock.tick(HEARTBEAT_TIMEOUT + SECOND)
    await trigger.end_silence(ladder.store, ROOM, ENQUEUE_TIMEOUT, 10)
    return claimed


async def expired(ladder, clock):
    task = await ladder.new(expires_at=(await now_of(ladder)) + SECOND)
    await clock.tick(2 * SECOND)
    await trigger.end_silence(ladder.store, ROOM, ENQUEUE_TIMEOUT, 10)
    return task


async def given_up_by_its_callback(ladder, clock):
    return await given_up(ladder)


ENDS = {
    exhausted: FailureKind.ATTEMPTS_EXHAUSTED,
    quarantined: FailureKind.QUARANTINED,
    silent: FailureKind.QUARANTINED,
    expired: FailureKind.EXPIRED,
    given_up_by_its_callback: FailureKind.CALLBACK,
}


async def now_of(ladder):
    async with ladder.store.connection() as connection:
        cursor = await connection.execute("select duly_now()")
        return (await cursor.fetchone())[0]


async def again(ladder, task):
    """The next claim of a task that is due."""
    due = await trigger.enqueue(ladder.store, ROOM, ENQUEUE_TIMEOUT)
    assert task.task_id in {each.task_id for each in due}
    return await ladder.claim(NewTask(task.task_id, LAMBDA, b""))


async def redrive(ladder, *tasks):
    return await dead_letters.redrive(ladder.store, [task.task_id for task in tasks])


def found(dsn):
    """What is kept as dead letters, and what is; the two must be the same."""
    with psycopg.connect(dsn) as connection:
        kept = connection.execute("select task_id, finished_at from dead_letter order by 1").fetchall()
        dead = "select task_id, finished_at from task where status = 'fatal_failure' order by 1"
        assert kept == connection.execute(dead).fetchall()
    return {task_id.bytes for task_id, _ in kept}


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
async def test_however_a_task_came_to_its_fatal_failure_it_runs_again_with_a_clean_slate(
    ladder, clock, dsn, end
):
    task = await end(ladder, clock)
    dead = await ladder.row(task.task_id)
    assert (dead["status"], dead["failure_kind"]) == ("fatal_failure", ENDS[end])
    assert found(dsn) == {task.task_id}

    assert await redrive(ladder, task) == {task.task_id: DONE}

    row = await ladder.row(task.task_id)
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
    }
    assert row == dead | began_anew  # the fence, and what is known of the last attempt, are as they were
    assert found(dsn) == set()
    assert (await again(ladder, task)).fence == dead["fence"] + 1


async def test_a_redriven_task_has_all_its_attempts_and_crashes_again(ladder):
    await ladder.register(max_attempts=2, max_crashes=2, backoff_initial=timedelta(0))
    claimed = await ladder.claimed()
    fences = [claimed.fence]

    for redrives in range(3):
        assert (claimed.failures, claimed.crashes) == (0, 0)
        await report(ladder, claimed, Outcome.CRASHED, FailureKind.CRASH, retry_after=timedelta(0))
        claimed = await again(ladder, claimed)
        await report(ladder, claimed, Outcome.RETRIABLE_FAILURE, retry_after=timedelta(0))
        claimed = await again(ladder, claimed)
        await report(ladder, claimed, Outcome.RETRIABLE_FAILURE)
        row = await ladder.row(claimed.task_id)
        assert (row["status"], row["failures"], row["crashes"]) == ("fatal_failure", 2, 1)
        assert row["redrives"] == redrives
        await redrive(ladder, claimed)
        claimed = await again(ladder, claimed)
        fences.append(claimed.fence)

    assert fences == [1, 4, 7, 10]


@pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.CANCELLED])
async def test_a_redriven_task_may_end_otherwise(ladder, dsn, outcome):
    task = await given_up(ladder)
    await redrive(ladder, task)

    claimed = await again(ladder, task)
    result = Result(
        claimed.task_id, claimed.token, outcome, result=b"1" if outcome is Outcome.SUCCESS else None
    )
    await set_results(ladder.store, [result])

    assert await ladder.status(task.task_id) == outcome.name.lower()
    assert (await redrive(ladder, task))[task.task_id].verdict is Verdict.NOT_DEAD
    assert found(dsn) == set()


async def test_a_task_in_any_other_status_is_left_as_it_is(ladder):
    retried, succeeded = await ladder.processing(), await ladder.processing()
    await report(ladder, retried, Outcome.RETRIABLE_FAILURE, retry_after=timedelta(hours=1))
    await set_results(ladder.store, [Result(succeeded.task_id, succeeded.token, Outcome.SUCCESS)])
    cancelled = await ladder.new()
    await cancel_tasks(ladder.store, [cancelled.task_id])
    tasks = [retried, succeeded, cancelled, await ladder.processing(), await ladder.claimed()]
    tasks += [await ladder.enqueued(), await ladder.new()]
    before = [await ladder.row(task.task_id) for task in tasks]

    answers = await redrive(ladder, *tasks)

    assert [await ladder.row(task.task_id) for task in tasks] == before
    assert answers == {
        row["task_id"].bytes: Answer(Verdict.NOT_DEAD, Status(row["status"])) for row in before
    }
    assert len({row["status"] for row in before}) == len(tasks)


async def test_many_are_answered_for_themselves_and_the_unknown_left_out(ladder):
    dead, also_dead, live = await given_up(ladder), await given_up(ladder), await ladder.new()
    ids = [live.task_id, new_task_id().bytes, also_dead.task_id, dead.task_id, dead.task_id]

    answers = await dead_letters.redrive(ladder.store, ids)

    assert answers == {
        dead.task_id: DONE,
        also_dead.task_id: DONE,
        live.task_id: Answer(Verdict.NOT_DEAD, Status.NEW),
    }
    assert await dead_letters.redrive(ladder.store, []) == {}


async def test_a_dead_letter_whose_lambda_nobody_serves_stays_one(ladder, dsn):
    task = await given_up(ladder)
    before = await ladder.row(task.task_id)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("delete from lambda")

    answers = await redrive(ladder, task)
    page = await dead_letters.redrive_where(ladder.store, ANY, Spread(), 10)

    assert answers == {task.task_id: Answer(Verdict.UNKNOWN_LAMBDA, Status.FATAL_FAILURE)}
    assert (page.count, page.more) == (0, False)
    assert await ladder.row(task.task_id) == before


async def test_a_second_redrive_finds_no_dead_letter(ladder):
    task = await given_up(ladder)

    first, second = await redrive(ladder, task), await redrive(ladder, task)

    assert (first, second) == (
        {task.task_id: DONE},
        {task.task_id: Answer(Verdict.NOT_DEAD, Status.NEW)},
    )
    assert (await ladder.row(task.task_id))["redrives"] == 1


async def test_of_two_redrives_at_once_one_wins(ladder, dsn):
    task = await given_up(ladder)
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("select from task for update")
        both = [asyncio.ensure_future(redrive(ladder, task)) for _ in range(2)]
        both.append(asyncio.ensure_future(dead_letters.redrive_where(ladder.store, ANY, Spread(), 10)))
        await until_a_statement_waits_for_a_lock(dsn)
        await other.commit()

    first, second, page = await asyncio.gather(*both)

    wins = [answers[task.task_id].verdict for answers in (first, second)].count(Verdict.REDRIVEN)
    assert wins + page.count == 1
    row = await ladder.row(task.task_id)
    assert (row["status"], row["redrives"]) == ("new", 1)


async def test_the_result_that_ended_a_life_is_already_applied_through_the_next(ladder):
    old = await given_up(ladder)

    await redrive(ladder, old)

    assert await report(ladder, old, Outcome.FATAL_FAILURE) is Applied.ALREADY_APPLIED
    new = await again(ladder, old)
    assert await report(ladder, old, Outcome.FATAL_FAILURE) is Applied.ALREADY_APPLIED
    assert await ladder.status(old.task_id) == "claimed"
    assert await report(ladder, new, Outcome.RETRIABLE_FAILURE) is Applied.APPLIED
    assert await report(ladder, old, Outcome.FATAL_FAILURE) is Applied.LOST  # only the newest is remembered


@pytest.mark.parametrize("claimed_again", [False, True])
async def test_a_claim_that_was_taken_away_stays_lost_in_the_next_life(ladder, clock, claimed_again):
    stale = await silent(ladder, clock)
    await ladder.register(max_crashes=3)
    await redrive(ladder, stale)
    if claimed_again:
        await again(ladder, stale)
    before = await ladder.row(stale.task_id)

    for outcome in (Outcome.SUCCESS, Outcome.RETRIABLE_FAILURE, Outcome.CRASHED, Outcome.FATAL_FAILURE):
        assert await report(ladder, stale, outcome) is Applied.LOST
    claim = (stale.task_id, stale.token)
    assert (await claims.release(ladder.store, [ReleasedClaim(*claim)]))[0] == [Applied.LOST]
    beat = Beat(*claim)
    assert await claims.heartbeat(ladder.store, [beat], HEARTBEAT_TIMEOUT) == [Kept.LOST]
    assert await ladder.row(stale.task_id) == before


async def test_an_expiry_ahead_holds_and_one_that_passed_or_would_is_dropped(ladder, clock):
    now = await now_of(ladder)
    ahead = [await given_up(ladder, expires_at=now + timedelta(hours=1)) for _ in range(2)]

    page = await dead_letters.redrive_where(ladder.store, ANY, Spread(rate=1 / 7200), 10)

    assert page.count == 2
    first, second = [await ladder.row(task.task_id) for task in ahead]
    assert first["expires_at"] == now + timedelta(hours=1)
    assert second["expires_at"] is None  # due after two hours


async def test_a_filters_dead_letters_become_due_one_after_the_other_in_the_order_of_their_ends(ladder):
    tasks = [await ladder.claimed() for _ in range(4)]
    for task in reversed(tasks):
        await report(ladder, task, Outcome.FATAL_FAILURE)

    page = await dead_letters.redrive_where(ladder.store, ANY, Spread(rate=0.5), 10)

    assert (page.count, page.more, page.due_in) == (4, False, page.due_in)
    due = [(await ladder.row(task.task_id))["next_trigger_at"] for task in reversed(tasks)]
    start = page.spread.as_of
    assert [moment - start for moment in due[1:]] == [timedelta(seconds=2 * n) for n in (1, 2, 3)]
    assert timedelta() <= due[0] - start < 2 * SECOND
    assert page.spread.offset == timedelta(seconds=8)
    assert page.due_in < 2 * SECOND


async def test_pages_go_on_where_the_one_before_ended(ladder):
    tasks = [await given_up(ladder) for _ in range(5)]
    spread, pages = Spread(rate=0.1), []
    while not pages or pages[-1].more:
        pages.append(await dead_letters.redrive_where(ladder.store, ANY, spread, 2))
        spread = pages[-1].spread

    assert [(page.count, page.more) for page in pages] == [(2, True), (2, True), (1, False)]
    assert len({page.spread.as_of for page in pages}) == 1
    due = [(await ladder.row(task.task_id))["next_trigger_at"] for task in tasks]
    assert [moment - spread.as_of for moment in due[1:]] == [timedelta(seconds=10 * n) for n in (1, 2, 3, 4)]


async def test_a_caller_that_paused_goes_on_at_the_rate_and_not_with_a_burst(ladder, clock):
    tasks = [await given_up(ladder) for _ in range(4)]
    first = await dead_letters.redrive_where(ladder.store, ANY, Spread(rate=1), 2)
    await clock.tick(timedelta(hours=1))
    resumed_at = await now_of(ladder)

    await dead_letters.redrive_where(ladder.store, ANY, first.spread, 2)

    third, fourth = [(await ladder.row(task.task_id))["next_trigger_at"] for task in tasks[2:]]
    assert resumed_at <= third < resumed_at + SECOND
    assert fourth - resumed_at >= SECOND


async def test_a_task_that_fails_again_during_a_redrive_is_left_for_the_next(ladder):
    again_dead, waiting = await given_up(ladder), await given_up(ladder)
    first = await dead_letters.redrive_where(ladder.store, ANY, Spread(), 1)
    await report(ladder, await again(ladder, again_dead), Outcome.FATAL_FAILURE)

    second = await dead_letters.redrive_where(ladder.store, ANY, first.spread, 10)

    assert (first.count, first.more, second.count, second.more) == (1, True, 1, False)
    assert await ladder.status(again_dead.task_id) == "fatal_failure"
    assert await ladder.status(waiting.task_id) == "new"


async def test_an_as_of_ahead_is_taken_for_now(ladder):
    await given_up(ladder)
    ahead = Spread(as_of=await now_of(ladder) + timedelta(days=1))

    page = await dead_letters.redrive_where(ladder.store, ANY, ahead, 10)

    assert page.count == 1
    assert page.spread.as_of < ahead.as_of - timedelta(hours=23)


async def test_counting_tells_how_many_there_are_and_changes_nothing(ladder, dsn):
    tasks = [await given_up(ladder, collection=name) for name in ("spring", "spring", "autumn")]

    page = await dead_letters.count_where(ladder.store, TaskFilter(collection="spring"), Spread())

    assert (page.count, page.more) == (2, False)
    assert found(dsn) == {task.task_id for task in tasks}


async def test_every_filter_holds_for_the_list_and_for_the_redrive(ladder, clock):
    await ladder.register(OTHER)
    old = await given_up(ladder, FailureKind.EXCEPTION, collection="spring")
    await clock.tick(timedelta(hours=1))
    between = await now_of(ladder)
    other = await given_up(ladder, FailureKind.BAD_RESULT, lambda_name=OTHER)
    young = await given_up(ladder, FailureKind.BAD_RESULT)
    await ladder.processing(collection="spring")
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
        listed = await list_tasks(ladder.store, replace(wanted, statuses=DEAD.statuses), None, 10)
        ids = [row["task_id"].bytes for row in listed]
        assert ids == sorted((task.task_id for task in expected), reverse=True), wanted
        assert (await dead_letters.count_where(ladder.store, wanted, Spread())).count == len(expected), wanted
        page = await dead_letters.redrive_where(ladder.store, wanted, Spread(), 10)
        assert page.count == len(expected), wanted
        for task in expected:
            await end_again(ladder, task, FailureKind.EXCEPTION if task is old else FailureKind.BAD_RESULT)
            if task is old:
                await set_end(ladder, task, between - SECOND)


async def end_again(ladder, task, kind):
    await trigger.enqueue(ladder.store, ROOM, ENQUEUE_TIMEOUT)
    claimed = await ladder.claim(NewTask(task.task_id, task.lambda_name, b""))
    assert await report(ladder, claimed, Outcome.FATAL_FAILURE, kind) is Applied.APPLIED


async def set_end(ladder, task, moment):
    """As if it had ended then."""
    async with ladder.store.connection() as connection:
        await connection.execute(
            "update task set status = status, finished_at = %s where task_id = %s::uuid",
            (moment, task.task_id.hex()),
        )


async def test_a_list_of_dead_letters_goes_on_below_a_task(ladder):
    tasks = [await given_up(ladder) for _ in range(5)]

    rows = await list_tasks(ladder.store, DEAD, tasks[3].task_id, 2)

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


async def explained(store, query):
    """The plan of a query as it was carried out."""
    compiled = query.compile(dialect=task_queries._DIALECT, compile_kwargs={"render_postcompile": True})
    async with store.connection() as connection:
        explain = f"explain (analyze, format json) {compiled.string}".encode()
        cursor = await connection.execute(explain, dict(compiled.params))
        (((plan,),),) = await cursor.fetchall()
    return plan["Plan"]


def nodes(plan):
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


@pytest.mark.parametrize("name", ["", LAMBDA], ids=["of all lambdas", "of one lambda"])
async def test_dead_letters_are_found_without_a_look_at_the_tasks_that_ended_well(
    ladder, dsn, monkeypatch, name
):
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(psycopg.ClientCursor(connection).mogrify(FILL, {"count": MANY}))
        connection.execute("analyze")
    plans, really = [], task_queries.select

    async def select(store, query):
        plans.append(await explained(store, query))
        return await really(store, query)

    monkeypatch.setattr(task_queries, "select", select)
    monkeypatch.setattr(dead_letter_queries, "select", select)

    (_, last) = await list_tasks(ladder.store, replace(DEAD, lambda_name=name), None, 2)
    await list_tasks(ladder.store, replace(DEAD, lambda_name=name), last["task_id"].bytes, 2)
    await dead_letters.redrive_where(ladder.store, TaskFilter(name), Spread(), 10)

    assert len(plans) == 4  # the lists, the clock, the redrive
    for plan in plans:
        looked_at = sum(
            (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            for node in nodes(plan)
            if node.get("Relation Name") in {"task", "dead_letter"}
        )
        assert looked_at <= 30, plan
