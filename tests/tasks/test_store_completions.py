"""Completion by token: a task waits for it without a holder, and whoever has the token ends the attempt, once."""

import asyncio
import hashlib
import os
from datetime import timedelta

import pytest

from duly_core.lambdas.names import QueueKey
from duly_core.limits.store import ResourceLimit
from duly_core.results.store import set_results
from duly_core.tasks import completions, polling
from duly_core.tasks import store as tasks
from duly_core.tasks.completions import Completed, Completion, CompletionVerdict
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import Applied, AttemptOutcome, Encoding, ResourceNeed, Result, Session
from duly_wire.enums import EdgeCondition, FailureKind, Outcome, Priority
from tests.fixtures import whole
from tests.fixtures.graph_states import end, write_graph
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, LAMBDA, SECOND

ROOM = {QueueKey(LAMBDA, priority): 1000 for priority in Priority}
HOUR = timedelta(hours=1)
COMPLETED, ENDED = CompletionVerdict.COMPLETED, CompletionVerdict.ENDED
NOT_CURRENT, TOO_EARLY = Completed(CompletionVerdict.NOT_CURRENT), Completed(CompletionVerdict.TOO_EARLY)
DONE = Completed(COMPLETED, Status.SUCCESS)


def new_hash():
    return hashlib.sha256(os.urandom(48)).digest()


async def hand_over(store, task, token_hash=None, within=HOUR):
    """End an attempt: somebody completes the task later. The hash of the token."""
    token_hash = token_hash or new_hash()
    result = Result(
        task.task_id,
        task.token,
        Outcome.COMPLETE_LATER,
        completion_hash=token_hash,
        complete_within=within,
    )
    assert (await set_results(store, [result])).verdicts == [Applied.APPLIED]
    return token_hash


def success(task, token_hash, result=b'"done"', encoding=Encoding.JSON, by=None):
    return Completion(task.task_id, token_hash, Outcome.SUCCESS, result, encoding, by=by)


def failure(task, token_hash, outcome=Outcome.RETRIABLE_FAILURE, **details):
    return Completion(task.task_id, token_hash, outcome, failure_message="no parcel", **details)


async def complete(store, *asked):
    return (await completions.complete(store, asked)).answers


async def time_out(store, clock, room=None):
    await clock.tick(HOUR + SECOND)
    return await polling.handle_timeouts(store, room, ENQUEUE_TIMEOUT, 100)


async def test_a_task_that_was_handed_over_has_no_holder_and_ends_with_what_its_token_brings(
    task_states, processing_task
):
    store = task_states.store

    token_hash = await hand_over(store, processing_task)
    waiting = await task_states.row(processing_task.task_id)
    answers = await complete(store, success(processing_task, token_hash, b"\x00\xff", Encoding.RAW))

    ended = await task_states.row(processing_task.task_id)
    assert (waiting["status"], waiting["holder"], waiting["failures"]) == ("waiting", None, 0)
    assert answers == [DONE]
    assert (ended["status"], ended["result"], ended["result_encoding"]) == ("success", b"\x00\xff", 2)
    (run,) = (await tasks.get_attempts(store, [processing_task.task_id]))[processing_task.task_id]
    assert (run.outcome, run.failure_kind) == (AttemptOutcome.HANDED_OVER, None)


async def test_a_repeated_completion_is_answered_as_the_first_and_another_one_is_told_how_the_task_ended(
    task_states, processing_task
):
    store, task = task_states.store, processing_task
    token_hash = await hand_over(store, task)

    both = await complete(store, success(task, token_hash), success(task, token_hash, b'"other"'))
    again = await complete(store, success(task, token_hash))
    others = [
        *await complete(store, success(task, token_hash, b'"other"')),
        *await complete(store, failure(task, token_hash)),
    ]

    assert both == [DONE, Completed(ENDED, Status.SUCCESS)]
    assert again == [DONE]
    assert others == [Completed(ENDED, Status.SUCCESS)] * 2
    assert (await task_states.row(task.task_id))["result"] == b'"done"'


@pytest.mark.parametrize("room", [None, ROOM], ids=["store", "queue"])
async def test_a_failure_by_token_runs_the_task_again_until_its_attempts_are_used_up(
    task_states, clock, room
):
    store = task_states.store
    await task_states.register(max_attempts=2)
    task = await task_states.processing()
    first_hash = await hand_over(store, task)

    failed = await complete(store, failure(task, first_hash, retry_after=SECOND))
    repeated = await complete(store, failure(task, first_hash))
    await clock.tick(2 * SECOND)
    task = await (task_states.take_of(LAMBDA) if room is None else task_states.take())
    second_hash = await hand_over(store, task)
    last = await complete(store, failure(task, second_hash))

    runs = Completed(COMPLETED, Status.RETRIABLE_FAILURE)
    assert (failed, repeated) == ([runs], [runs])
    assert (task.fence, task.failures) == (2, 1)
    assert last == [Completed(COMPLETED, Status.FATAL_FAILURE)]
    row = await task_states.row(task.task_id)
    assert row["failure_kind"] == FailureKind.ATTEMPTS_EXHAUSTED
    assert row["failure_message"] == "failed 2 times; the last: no parcel"
    lines = (await tasks.get_attempts(store, [task.task_id]))[task.task_id]
    assert [(line.outcome, line.failure_kind, line.holder) for line in lines] == [
        (AttemptOutcome.RETRIABLE_FAILURE, FailureKind.CALLBACK, "test-host")
    ] * 2


async def test_a_fatal_failure_by_token_ends_the_task(task_states, processing_task):
    store, task = task_states.store, processing_task
    token_hash = await hand_over(store, task)
    asked = failure(task, token_hash, Outcome.FATAL_FAILURE)

    answers = [await complete(store, asked), await complete(store, asked)]

    assert answers == [[Completed(COMPLETED, Status.FATAL_FAILURE)]] * 2
    row = await task_states.row(task.task_id)
    assert (row["failure_kind"], row["failure_message"]) == (FailureKind.CALLBACK, "no parcel")


@pytest.mark.parametrize("room", [None, ROOM], ids=["store", "queue"])
async def test_an_attempt_that_nobody_completes_in_time_has_failed(task_states, clock, room):
    store = task_states.store
    await task_states.register(max_attempts=2)
    task = await task_states.processing(expires_at=None)
    hashes = [await hand_over(store, task)]

    early = await polling.handle_timeouts(store, room, ENQUEUE_TIMEOUT, 100)
    over = await time_out(store, clock, room)
    row = await task_states.row(task.task_id)
    late = await complete(store, failure(task, hashes[0]))
    await clock.tick(HOUR)
    task = await (task_states.take_of(LAMBDA) if room is None else task_states.take())
    hashes.append(await hand_over(store, task))
    last = await time_out(store, clock, room)

    assert (early.ended, over.ended, over.released) == (0, 0, {LAMBDA})
    assert (early.uncompleted, over.uncompleted, last.uncompleted) == (0, 1, 1)
    assert (row["status"], row["failures"], row["failure_kind"]) == (
        "retriable_failure",
        1,
        FailureKind.COMPLETION_TIMEOUT,
    )
    assert last.ended == 1
    ended = await task_states.row(task.task_id)
    assert (ended["status"], ended["failure_kind"]) == ("fatal_failure", FailureKind.ATTEMPTS_EXHAUSTED)
    assert late == [NOT_CURRENT]
    assert await complete(store, success(task, hashes[0])) == [NOT_CURRENT]
    for each in (success(task, hashes[1]), failure(task, hashes[1])):
        assert await complete(store, each) == [Completed(ENDED, Status.FATAL_FAILURE)]


async def test_only_the_token_of_the_attempt_that_waits_completes_it(task_states, clock):
    store = task_states.store
    task = await task_states.processing()
    before = await hand_over(store, task)
    await complete(store, failure(task, before, retry_after=SECOND))
    late = await complete(store, success(task, before))
    await clock.tick(2 * SECOND)
    task = await task_states.take()
    running = await complete(store, success(task, before), success(task, new_hash()))
    after = await hand_over(store, task)

    guessed = await complete(store, success(task, before))
    guessed += await complete(store, success(task, new_hash()))
    guessed += await complete(store, Completion(os.urandom(16), after, Outcome.SUCCESS, b""))

    assert late == [NOT_CURRENT]
    assert running == [NOT_CURRENT, TOO_EARLY]
    assert guessed == [NOT_CURRENT] * 3
    assert await task_states.status(task.task_id) == "waiting"
    assert await complete(store, success(task, after)) == [DONE]


async def test_wrong_tokens_of_a_task_that_come_first_do_not_hold_up_the_right_one(task_states):
    store = task_states.store
    tasks_ = [await task_states.processing() for _ in range(2)]
    hashes = [await hand_over(store, task) for task in tasks_]

    answers = await complete(
        store,
        success(tasks_[0], b"\x00" * 32),
        success(tasks_[0], hashes[0]),
        failure(tasks_[1], b"\x00" * 31 + b"\x01"),
        failure(tasks_[1], hashes[1]),
    )

    assert answers == [NOT_CURRENT, DONE, NOT_CURRENT, Completed(COMPLETED, Status.RETRIABLE_FAILURE)]


async def test_a_wrong_token_waits_for_no_lock_of_the_task_that_it_names(task_states):
    store = task_states.store
    task = await task_states.processing(session=Session("of one"))
    await hand_over(store, task)

    async with store.connection() as busy, busy.transaction():
        await busy.execute("select 1 from session for update")
        async with asyncio.timeout(10):
            guessed = await complete(store, success(task, new_hash()), failure(task, new_hash()))

    assert guessed == [NOT_CURRENT, NOT_CURRENT]


async def test_a_cancelled_task_tells_its_token_so_and_others_nothing(task_states, processing_task):
    store, task = task_states.store, processing_task
    token_hash = await hand_over(store, task)

    cancelled = await tasks.cancel_tasks(store, [task.task_id])

    assert cancelled.statuses == {task.task_id: Status.CANCELLED}
    assert await complete(store, success(task, token_hash)) == [Completed(ENDED, Status.CANCELLED)]
    assert await complete(store, success(task, new_hash())) == [NOT_CURRENT]


async def test_a_cancel_that_was_asked_for_while_it_ran_ends_it_at_once(task_states, processing_task):
    store, task = task_states.store, processing_task
    await tasks.cancel_tasks(store, [task.task_id])

    token_hash = await hand_over(store, task)

    assert await task_states.status(task.task_id) == "cancelled"
    assert await complete(store, success(task, token_hash)) == [Completed(ENDED, Status.CANCELLED)]


@pytest.mark.parametrize("ended_by", ["nothing", "completion", "failure", "cancel"])
async def test_a_repeated_word_of_the_hand_over_changes_nothing(task_states, processing_task, ended_by):
    store, task = task_states.store, processing_task
    token_hash = await hand_over(store, task)
    if ended_by == "cancel":
        await tasks.cancel_tasks(store, [task.task_id])
    elif ended_by != "nothing":
        await complete(store, (success if ended_by == "completion" else failure)(task, token_hash))
    before = await task_states.row(task.task_id)
    again, another = (
        Result(
            task.task_id,
            token,
            Outcome.COMPLETE_LATER,
            completion_hash=each_hash,
            complete_within=SECOND,
        )
        for token, each_hash in ((task.token, token_hash), (os.urandom(16), new_hash()))
    )

    verdicts = (await set_results(store, [again, another])).verdicts

    assert verdicts == [Applied.ALREADY_APPLIED, Applied.LOST]
    assert await task_states.row(task.task_id) == before


async def test_expires_at_does_not_end_an_attempt_that_goes_on(task_states, clock):
    store = task_states.store
    now = (await task_states.row((await task_states.new()).task_id))["created_at"]
    task = await task_states.processing(expires_at=now + 60 * SECOND)
    token_hash = await hand_over(store, task, within=24 * HOUR)

    await time_out(store, clock)

    assert await complete(store, success(task, token_hash)) == [DONE]


async def test_its_units_and_its_place_are_as_after_a_snooze(task_states, clock):
    store = task_states.store
    await whole.put_resource(store, ResourceLimit("gpu", 1))
    needs = (ResourceNeed("gpu"),)
    first = await task_states.claimed(resources=needs, session=Session("of one"))
    next_of_session = await task_states.new(session=Session("of one"))

    token_hash = await hand_over(store, first)
    other = await task_states.claimed(resources=needs)
    waits = await task_states.status(next_of_session.task_id)
    done = await completions.complete(store, [success(first, token_hash)])

    assert other.task_id != first.task_id
    assert waits == "waiting"
    assert (done.answers, done.due.keys()) == ([DONE], {LAMBDA})
    assert await task_states.status(next_of_session.task_id) == "new"


async def test_a_node_that_waits_for_it_is_released_by_its_completion(task_states):
    store = task_states.store
    graph = await write_graph(store, {"b": {"a": EdgeCondition.SUCCEEDED}})
    task = (await graph.claim())["a"]
    token_hash = await hand_over(store, task)
    before = await graph.statuses()

    done = await completions.complete(store, [success(task, token_hash)])

    assert before == {"a": Status.WAITING, "b": Status.WAITING}
    assert done.due.keys() == {LAMBDA}
    assert await graph.statuses() == {"a": Status.SUCCESS, "b": Status.NEW}


async def test_a_node_that_waits_for_it_is_dropped_when_its_graph_fails_fast(
    task_states,
):
    store = task_states.store
    graph = await write_graph(
        store, {"c": {"a": EdgeCondition.SUCCEEDED, "b": EdgeCondition.SUCCEEDED}}, fail_fast=True
    )
    claimed = await graph.claim()
    token_hash = await hand_over(store, claimed["a"])

    await end(store, [claimed["b"]], Outcome.FATAL_FAILURE)
    await polling.handle_timeouts(store, None, ENQUEUE_TIMEOUT, 100)

    assert (await graph.statuses())["a"] is Status.DROPPED
    assert await complete(store, success(claimed["a"], token_hash)) == [NOT_CURRENT]


async def test_of_a_completion_a_cancel_and_a_timeout_at_a_time_one_counts(task_states, clock):
    store = task_states.store
    held = [await task_states.processing() for _ in range(12)]
    hashes = [await hand_over(store, task) for task in held]
    await clock.tick(HOUR + SECOND)

    answers, _, over = await asyncio.gather(
        asyncio.gather(
            *(complete(store, success(task, each)) for task, each in zip(held, hashes, strict=True))
        ),
        tasks.cancel_tasks(store, [task.task_id for task in held]),
        polling.handle_timeouts(store, None, ENQUEUE_TIMEOUT, 100),
    )

    for task, (answer,) in zip(held, answers, strict=True):
        status = await task_states.status(task.task_id)
        if answer == DONE:
            assert status == "success"
        elif answer.verdict is ENDED:
            assert status == "cancelled"
        else:
            assert answer == NOT_CURRENT
            assert status in ("retriable_failure", "cancelled")
    assert over.problem is None
