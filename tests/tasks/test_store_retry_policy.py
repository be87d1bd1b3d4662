"""Whether another attempt follows: crashes within a window, retries held back, and policies that change or are gone."""

import asyncio
import os
import re
from collections import Counter
from datetime import timedelta

import psycopg
import pytest

from duly_core.lambdas.names import QueueKey
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.postgres.statements import READS, TRANSITIONS
from duly_core.results.store import Written, set_results
from duly_core.tasks import claims, polling
from duly_core.tasks.task import Applied, Proposal, Result
from duly_wire.enums import FailureKind, Outcome, Priority
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, SECOND

OTHER = "report.make"
ROOM = {QueueKey(LAMBDA, priority): 1000 for priority in Priority}
HOUR = timedelta(hours=1)
SILENT = max(CLAIM_TIMEOUT, HEARTBEAT_TIMEOUT) + SECOND
WHY = {"failure_kind": FailureKind.CRASH, "failure_message": "signal 9"}
LOCK = 4711
GATED_CLOCK = """
create or replace function duly_now() returns timestamptz language sql volatile as
    'select clock_timestamp() + (select ahead from test_clock) from pg_advisory_xact_lock_shared(4711)'
"""


def of(task, outcome, **details):
    return Result(task.task_id, task.token, outcome, **WHY | details)


async def crash_by_report(task_states, clock, task):
    """The supervisor says so; the next attempt is claimed if there is one."""
    written = await set_results(task_states.store, [of(task, Outcome.CRASHED, retry_after=timedelta())])
    assert written.verdicts == [Applied.APPLIED]
    await polling.enqueue(task_states.store, ROOM, ENQUEUE_TIMEOUT)


async def crash_by_silence(task_states, clock, task):
    """Nobody says so."""
    await clock.tick(SILENT)
    await polling.handle_timeouts(task_states.store, ROOM, ENQUEUE_TIMEOUT, 100)


@pytest.fixture(params=[crash_by_report, crash_by_silence])
def crash(request):
    """How the process dies: somebody tells, or nobody does."""
    return request.param


@pytest.fixture
def unregister(dsn):
    """Remove the row of the lambda, as no statement of ours does."""

    def remove():
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("delete from lambda")

    return remove


async def test_as_many_crashes_as_the_lambda_allows_within_its_window_are_a_quarantine(
    task_states, clock, crash
):
    await task_states.register(max_crashes=3, crash_window=10 * HOUR)
    task = await task_states.claimed()
    for _ in range(2):
        await crash(task_states, clock, task)
        await clock.tick(4 * HOUR)
        await polling.handle_timeouts(task_states.store, ROOM, ENQUEUE_TIMEOUT, 100)
        task = await task_states.claim(task)

    await crash(task_states, clock, task)

    row = await task_states.row(task.task_id)
    assert (row["status"], row["crashes"]) == ("fatal_failure", 3)
    assert row["failure_kind"] == FailureKind.QUARANTINED
    assert "3 times within 10:00:00; the last" in row["failure_message"]


async def test_crashes_from_before_the_window_are_forgotten_but_go_on_counting_attempts(
    task_states, clock, crash
):
    await task_states.register(max_crashes=3, crash_window=10 * HOUR)
    task = await task_states.claimed()
    for _ in range(8):
        await crash(task_states, clock, task)
        await clock.tick(6 * HOUR)
        await polling.handle_timeouts(task_states.store, ROOM, ENQUEUE_TIMEOUT, 100)
        task = await task_states.claim(task)
    assert (task.failures, task.crashes, task.fence) == (0, 8, 9)

    await crash(task_states, clock, task)
    assert await task_states.status(task.task_id) == "enqueued"
    await crash(task_states, clock, await task_states.claim(task))

    row = await task_states.row(task.task_id)
    assert (row["status"], row["crashes"]) == ("fatal_failure", 10)
    assert "3 times within 10:00:00" in row["failure_message"]


async def test_failures_in_between_neither_count_as_crashes_nor_forget_them(task_states, clock):
    await task_states.register(max_crashes=2, max_attempts=9)
    task = await task_states.claimed()
    for outcome in (Outcome.CRASHED, Outcome.RETRIABLE_FAILURE, Outcome.RETRIABLE_FAILURE):
        await set_results(task_states.store, [of(task, outcome, retry_after=timedelta())])
        assert await task_states.status(task.task_id) == "retriable_failure"
        await polling.enqueue(task_states.store, ROOM, ENQUEUE_TIMEOUT)
        task = await task_states.claim(task)

    await crash_by_report(task_states, clock, task)

    row = await task_states.row(task.task_id)
    assert (row["status"], row["failures"], row["crashes"]) == ("fatal_failure", 2, 2)


@pytest.mark.parametrize("kind", [Outcome.RETRIABLE_FAILURE, Outcome.CRASHED])
@pytest.mark.parametrize(("before", "after"), [(1, 10), (10, 1)])
async def test_a_policy_that_changes_while_a_failure_is_written_decides_it_one_way_or_the_other(
    task_states, clock, dsn, kind, before, after
):
    await task_states.register(max_attempts=before, max_crashes=before)
    task = await task_states.processing()
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as gate:
        await gate.execute("select pg_advisory_lock(%s)", [LOCK])
        # the statement takes its snapshot, asks for the time, and waits here
        await gate.execute(GATED_CLOCK)
        writing = asyncio.ensure_future(set_results(task_states.store, [of(task, kind)]))
        await until_a_statement_waits_for_a_lock(dsn)
        await gate.execute("update lambda set max_attempts = %s, max_crashes = %s", [after, after])
        await gate.execute("select pg_advisory_unlock(%s)", [LOCK])

        written = await writing

    status = await task_states.status(task.task_id)
    assert written.verdicts == [Applied.APPLIED]
    assert status in ("retriable_failure", "fatal_failure")
    assert written.retried == Counter([LAMBDA] if status == "retriable_failure" else [])


async def test_a_task_whose_lambda_is_gone_is_claimed_with_the_default_runtime(task_states, unregister):
    task = await task_states.enqueued()
    unregister()
    proposal = Proposal(task.task_id, os.urandom(16), LAMBDA)

    first, again = [
        await claims.claim(task_states.store, [(proposal, "host")], CLAIM_TIMEOUT) for _ in range(2)
    ]

    assert first[0].max_runtime == LambdaPolicy(LAMBDA).max_runtime
    assert first == again


async def test_failures_of_a_task_whose_lambda_is_gone_are_retried_as_by_default(
    task_states, clock, unregister
):
    task = await task_states.claimed()
    unregister()
    for _ in range(LambdaPolicy(LAMBDA).max_attempts - 1):
        written = await set_results(task_states.store, [of(task, Outcome.RETRIABLE_FAILURE)])
        assert (written.verdicts, written.retried) == ([Applied.APPLIED], Counter([LAMBDA]))
        await clock.tick(HOUR)
        await polling.enqueue(task_states.store, ROOM, ENQUEUE_TIMEOUT)
        task = await task_states.claim(task)

    written = await set_results(task_states.store, [of(task, Outcome.RETRIABLE_FAILURE)])

    assert (written.verdicts, await task_states.status(task.task_id)) == ([Applied.APPLIED], "fatal_failure")


async def test_crashes_of_a_task_whose_lambda_is_gone_are_counted_as_by_default(
    task_states, clock, crash, unregister
):
    task = await task_states.claimed()
    unregister()
    for _ in range(LambdaPolicy(LAMBDA).max_crashes - 1):
        await crash(task_states, clock, task)
        task = await task_states.claim(task)

    await crash(task_states, clock, task)

    assert (await task_states.row(task.task_id))["failure_kind"] == FailureKind.QUARANTINED


def test_the_defaults_that_statements_fall_back_to_are_those_of_the_registry(dsn):
    sql = "".join(statement.sql for statement in (TRANSITIONS | READS).values())
    fallbacks = set(re.findall(r"coalesce\(lambda\.(\w+), ([^)]*)\)", sql))

    with psycopg.connect(dsn) as connection:
        written = {(name, connection.execute(f"select {value}").fetchone()[0]) for name, value in fallbacks}

    defaults = LambdaPolicy("any")
    names = {"max_attempts", "max_crashes", "crash_window", "max_runtime", "payload_limit"} | {
        f"backoff_{part}" for part in ("initial", "factor", "max")
    }
    assert written == {(name, getattr(defaults, name)) for name in names}


async def failing(task_states, lambda_name=LAMBDA, **overrides):
    room = {QueueKey(lambda_name, priority): 1000 for priority in Priority}
    task = await task_states.new(lambda_name=lambda_name, **overrides)
    await polling.enqueue(task_states.store, room, ENQUEUE_TIMEOUT)
    return await task_states.claim(task)


async def waits(task_states, tasks):
    rows = [await task_states.row(task.task_id) for task in tasks]
    return [row["next_trigger_at"] - row["failed_at"] for row in rows]


@pytest.mark.parametrize("outcome", [Outcome.RETRIABLE_FAILURE, Outcome.CRASHED])
@pytest.mark.parametrize("retry_after", [None, timedelta()])
async def test_retries_of_a_lambda_that_is_held_back_wait_and_are_spread(task_states, outcome, retry_after):
    await task_states.register(OTHER, backoff_initial=SECOND, backoff_max=SECOND)
    held = [await failing(task_states) for _ in range(20)]
    other = await failing(task_states, OTHER)
    results = [of(task, outcome, retry_after=retry_after) for task in [*held, other]]

    written = await set_results(task_states.store, results, {LAMBDA: HOUR, "unknown": 2 * HOUR})

    delays = await waits(task_states, held)
    assert all(HOUR <= delay <= 1.5 * HOUR for delay in delays)
    assert max(delays) - min(delays) > HOUR / 10  # one in a thousand million that it is not so
    assert (await waits(task_states, [other]))[0] <= SECOND
    assert written.retried == Counter({LAMBDA: 20, OTHER: 1})
    assert written.due_in <= SECOND


async def test_a_retry_that_waits_longer_anyway_is_not_brought_forward(task_states, processing_task):
    late = of(processing_task, Outcome.RETRIABLE_FAILURE, retry_after=5 * HOUR)

    written = await set_results(task_states.store, [late], {LAMBDA: HOUR})

    assert (await waits(task_states, [processing_task])) == [5 * HOUR]
    assert timedelta() <= 5 * HOUR - written.due_in < SECOND


async def test_only_what_runs_again_after_a_failure_counts_as_a_retry(task_states):
    await task_states.register(OTHER, max_attempts=1)
    outcomes = [Outcome.SUCCESS, Outcome.FATAL_FAILURE, Outcome.SNOOZED, Outcome.CANCELLED]
    results = [of(await failing(task_states), outcome, retry_after=SECOND) for outcome in outcomes]
    results.append(of(await failing(task_states, OTHER), Outcome.RETRIABLE_FAILURE))

    written = await set_results(task_states.store, results, {LAMBDA: HOUR, OTHER: HOUR})

    assert written == Written([Applied.APPLIED] * 5, written.due_in, frozenset(), Counter())
    assert timedelta() <= SECOND - written.due_in < SECOND / 2  # the snooze, which is not held back
