"""The audit of a chaos run: what the triggers write down is what happened, move by move."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

from duly_core.lambdas.names import QueueKey
from duly_core.postgres.statements import TRANSITIONS
from duly_core.process.clock import since_boot_ns
from duly_core.results.store import set_results
from duly_core.tasks import polling
from duly_core.tasks.task import Result
from duly_wire.enums import FailureKind, Outcome, Priority
from tests.chaos import audit
from tests.chaos.checker import check
from tests.chaos.history import AckedTask, Execution, Fault, History, Limits
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, LAMBDA, SECOND

ROOM = {QueueKey(LAMBDA, priority): 1000 for priority in Priority}


@pytest.fixture
def audited(dsn):
    audit.install(dsn)
    return dsn


def arrows(dsn):
    return [(each.before, each.after) for each in audit.read_transitions(dsn, audit.boot_minus_wall_ns())]


async def test_a_task_that_succeeds_leaves_one_transition_a_move(audited, task_states):
    before = since_boot_ns()
    task = await task_states.processing()
    await set_results(task_states.store, [Result(task.task_id, task.token, Outcome.SUCCESS)])

    moves = audit.read_transitions(audited, audit.boot_minus_wall_ns())

    assert [(each.before, each.after) for each in moves] == [
        ("", "new"),
        ("new", "enqueued"),
        ("enqueued", "claimed"),
        ("claimed", "processing"),
        ("processing", "success"),
    ]
    assert all(before - 10**8 < each.at_ns < since_boot_ns() + 10**8 for each in moves)
    claim, end = moves[2], moves[-1]
    assert claim.token == end.token_before == end.last_token != ""
    assert (claim.fence_before, claim.fence, end.fence) == (0, 1, 1)
    assert abs(claim.trigger_in_ns - CLAIM_TIMEOUT // timedelta(microseconds=1) * 1000) < 10**9
    assert end.trigger_in_ns is None
    assert all(each.application.startswith("duly") for each in moves)


async def test_a_write_is_dated_after_the_look_at_the_clock_of_the_store(audited, task_states):
    """Else a move of that clock could be in what the write is judged by, and seem to come after it (seed 900003)."""
    for _ in range(5):
        await task_states.processing()

    with psycopg.connect(audited) as connection:
        dated = connection.execute("select count(*), bool_and(at >= store_at) from chaos_audit").fetchone()

    assert dated == (20, True)


async def test_what_the_user_of_stale_calls_writes_is_recorded_and_nothing_else_is(audited, task_states):
    task = await task_states.processing()
    renew = "update task_assoc set next_trigger_at = next_trigger_at + interval '1 s'"
    with psycopg.connect(audited) as connection:
        connection.execute(renew)
    before = audit.read_stale_writes(audited, 0)
    with psycopg.connect(audit.as_stale_user(audited)) as connection:
        connection.execute(renew)

    (written,) = audit.read_stale_writes(audited, 0)

    assert before == ()
    assert (written.what, written.task_id) == ("update task_assoc", str(UUID(bytes=task.task_id)))
    assert written.columns.startswith("next_trigger_at ")


async def test_a_failure_and_a_silence_are_recorded_with_their_charges(audited, task_states, clock):
    task = await task_states.claimed()
    failed = Result(
        task.task_id,
        task.token,
        Outcome.RETRIABLE_FAILURE,
        failure_kind=FailureKind.CALLBACK,
        failure_message="no",
    )
    await set_results(task_states.store, [failed])
    await clock.tick(timedelta(days=1))
    await polling.enqueue(task_states.store, ROOM, ENQUEUE_TIMEOUT)
    await task_states.claim(task)
    await clock.tick(CLAIM_TIMEOUT + SECOND)
    await polling.handle_timeouts(task_states.store, ROOM, ENQUEUE_TIMEOUT, 10)

    retry, _, _, reclaim = audit.read_transitions(audited, 0)[3:]

    assert (retry.before, retry.after, retry.failures, retry.crashes) == (
        "claimed",
        "retriable_failure",
        1,
        0,
    )
    assert retry.last_token == retry.token_before == str(UUID(bytes=task.token))
    assert (reclaim.before, reclaim.after, reclaim.failures, reclaim.crashes) == ("claimed", "enqueued", 1, 1)
    assert -2 * 10**9 < reclaim.trigger_before_in_ns <= 0


async def test_a_write_past_the_store_shows_as_what_it_is(audited, task_states):
    task = await task_states.new()
    with psycopg.connect(audited, autocommit=True) as connection:
        connection.execute("delete from task_assoc where task_id = %s::uuid", (task.task_id.hex(),))
        connection.execute(
            "update task set status = 'success', finished_at = now(), fence = 0, failures = 0, crashes = 0"
        )

    assert arrows(audited) == [("", "new"), ("new", ""), ("", "success")]


async def test_final_rows_and_samples_tell_how_the_tables_stand(audited, task_states):
    task = await task_states.processing()
    await task_states.new(delay=timedelta(days=10))
    await set_results(task_states.store, [Result(task.task_id, task.token, Outcome.SUCCESS)])

    rows = audit.read_final_rows(audited)
    with psycopg.connect(audited, autocommit=True) as connection:
        sound = audit.sample(connection, timedelta(minutes=1), processes=3)
        connection.execute("update task_assoc set next_trigger_at = now() + interval '11 days'")
        unsound = audit.sample(connection, timedelta(minutes=1))

    assert sorted((row.status, row.assoc_status, row.fence) for row in rows) == [
        ("", "new", 0),
        ("success", "", 1),
    ]
    assert (sound.untriggered, sound.live, sound.processes) == ((), 1, 3)
    assert len(unsound.untriggered) == 1


# ---- the audit and the checker together, against statements that lack a guard ---------------------------------


async def history_of(dsn, task, *, executions=()):
    """What the audit has of one task, with an execution for each of the fences given."""
    transitions = audit.read_transitions(dsn, audit.boot_minus_wall_ns())
    ran = tuple(
        Execution(each.task_id, each.failures + each.crashes + 1, each.fence, 1, f"1-{each.fence}", True,
                  each.at_ns + 2_000_000, each.at_ns + 2_000_001, "success")
        for each in transitions
        if each.after == "claimed" and each.fence in executions
    )  # fmt: skip
    now = since_boot_ns()
    return History(
        seed=1,
        limits=Limits(15 * 10**9, 15 * 10**9, 60 * 10**9, 10**12),
        started_ns=now,
        healed_ns=now,
        finished_ns=now + 2 * 10**12,
        acked=(AckedTask(str(UUID(bytes=task.task_id)), LAMBDA, "x", now),),
        executions=ran,
        transitions=transitions,
        final=audit.read_final_rows(dsn),
        faults=(Fault("clock", "postgres", 0, now),),
    )


async def lost_and_claimed_again(task_states, clock):
    """The task as its first holder knows it, and as the second does."""
    first = await task_states.processing()
    await clock.tick(2 * CLAIM_TIMEOUT)
    await polling.handle_timeouts(task_states.store, ROOM, ENQUEUE_TIMEOUT, 10)
    return first, await task_states.claim(first)


def without(name, guard):
    """A statement of the store that lacks a part of its predicate."""
    statement = TRANSITIONS[name]
    assert guard in statement.sql
    return replace(statement, sql=statement.sql.replace(guard, " "))


async def test_a_late_result_that_is_refused_leaves_a_sound_history(audited, task_states, clock):
    first, second = await lost_and_claimed_again(task_states, clock)
    for task in (first, second):
        await set_results(task_states.store, [Result(task.task_id, task.token, Outcome.SUCCESS)])

    verdict = check(await history_of(audited, first, executions={2}))

    assert [str(violation) for violation in verdict.violations] == []


async def test_a_late_result_that_a_statement_without_its_guard_accepts_is_found(
    audited, task_states, clock, monkeypatch
):
    unguarded = without("finish_one", " and assoc.token = asked.token")
    monkeypatch.setitem(TRANSITIONS, "finish_one", unguarded)
    first, _ = await lost_and_claimed_again(task_states, clock)
    await set_results(task_states.store, [Result(first.task_id, first.token, Outcome.SUCCESS)])

    verdict = check(await history_of(audited, first, executions={2}))

    assert "C3.stale" in {violation.rule for violation in verdict.violations}


async def test_a_claim_that_is_taken_back_too_early_is_found(audited, task_states, monkeypatch):
    early = without(
        "reclaim", "and assoc.next_trigger_at <= (select least(%(as_of)b::timestamptz, duly_now()))"
    )
    monkeypatch.setitem(TRANSITIONS, "reclaim", early)
    task = await task_states.processing()
    await polling.handle_timeouts(task_states.store, ROOM, ENQUEUE_TIMEOUT, 10)
    again = await task_states.claim(task)
    await set_results(task_states.store, [Result(again.task_id, again.token, Outcome.SUCCESS)])

    verdict = check(await history_of(audited, task, executions={2}))

    assert [violation.rule for violation in verdict.violations] == ["C3.early"]
