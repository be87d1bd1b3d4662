"""The model of sessions finds it when a guard is taken out of a statement or a function: each of these is one."""

import asyncio
import os
from datetime import timedelta

import psycopg
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from duly_core.lambdas import store as lambdas
from duly_core.lambdas.names import QueueKey
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.lambdas.session_names import SessionId
from duly_core.postgres.pool import Store
from duly_core.results.store import set_results
from duly_core.sessions import store as sessions
from duly_core.tasks import claims, schedule
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import NewTask, Result, Session
from duly_wire.enums import Outcome, Priority
from tests.fixtures.guards import InFunction, InStatement
from tests.fixtures.waiting import until
from tests.models.test_mutations import SEARCH as SEARCH_ALL
from tests.models.test_sessions import LAMBDA, machine_on
from tests.models.world import World

MUTATIONS = {
    "tasks join a session in the order of their ids": (
        "schedule_in_sessions",
        "row_number() over () as number",
        "row_number() over (order by task_id) as number",
    ),
    "the order of due times is not kept": ("schedule_in_sessions", "session_order = 2", "session_order = 3"),
    "the next task is the one that joined last": (
        "duly_advance_sessions",
        "assoc.session_rank, assoc.session_seq",
        "assoc.session_rank, assoc.session_seq desc",
    ),
    "the next task is chosen whatever its due time": (
        "duly_advance_sessions",
        "assoc.session, assoc.session_rank, assoc.session_seq",
        "assoc.session, assoc.session_seq",
    ),
    "a block is not kept": ("duly_advance_sessions", "(line.failure, 1) = 1", "(line.failure, 1) in (1, 2)"),
    "a failure ends nobody else": ("duly_advance_sessions", "line.failure = 3", "line.failure = 4"),
    "a failure ends those that wait when it has another policy": (
        "duly_advance_sessions",
        "line.failure = 3",
        "line.failure in (1, 3)",
    ),
    "the end of any task releases the next one": (
        "duly_advance_sessions",
        "coalesce(bool_or(ended.task_id = session.head), false)",
        "true",
    ),
    "a session that has no tasks stays": ("duly_advance_sessions", "moved.length = 0", "moved.length < 0"),
    "a blocked session that has no tasks is closed": (
        "duly_advance_sessions",
        "(moved.failure, 1) <> 2",
        "(moved.failure, 1) <> 4",
    ),
    "a later task takes the place of the head": (
        "duly_put_earlier_first",
        "(assoc.session_rank, assoc.session_seq) > (first.session_rank, first.session_seq)",
        "true",
    ),
    "a redriven task waits for the block that it is": (
        "redrive",
        "session.blocked_by in (select task_id from numbered)",
        "session.blocked_by is null",
    ),
    "a task that is to end without a run waits for its turn": ("sessions", "and assoc.doom is null", ""),
}
"""By what is wrong then: the statement or function, its guard, and what stands there instead."""

SEARCH = settings(SEARCH_ALL, max_examples=1500, stateful_step_count=30)
LOCK = "perform from session where key = any (keys) order by key for update;"

QUICK = {
    "tasks join a session in the order of their ids",
    "the next task is the one that joined last",
    "a block is not kept",
    "a session that has no tasks stays",
    "a task that is to end without a run waits for its turn",
}
CHOSEN = MUTATIONS if os.environ.get("DULY_MODEL_EXHAUSTIVE") else QUICK


@pytest.mark.long  # each searches for seconds, and some for minutes
@pytest.mark.parametrize("mutation", sorted(CHOSEN))
@pytest.mark.timeout(600)
def test_a_guard_of_sessions_that_is_taken_out_is_missed(
    dsn: str, world: World, monkeypatch: pytest.MonkeyPatch, mutation: str
) -> None:
    name, guard, instead = MUTATIONS[mutation]
    if name.startswith("duly_"):
        InFunction(name, guard, instead).plant(dsn)
    else:
        edit = InStatement(name, guard, instead)
        monkeypatch.setitem(edit.home(), name, edit.mutated(edit.home()[name]))

    # the store may refuse by a CHECK what the guard would have kept from it
    with pytest.raises((AssertionError, psycopg.errors.CheckViolation)):
        run_state_machine_as_test(machine_on(world), settings=SEARCH)


_JOIN = """
update session set length = length + 1, last_seq = last_seq + 1 where key = '/a';
insert into task (task_id, lambda, session, session_order, session_policy)
    values ('019b0000-0000-7000-8000-000000000002', 'mail.send', '/a', 1, 1);
insert into task_assoc (
    task_id, lambda, collection, priority, status, next_trigger_at, due_at, session, session_rank, session_seq,
    session_policy
)
values (
    '019b0000-0000-7000-8000-000000000002', 'mail.send', '', 3, 'waiting', 'infinity', now(), '/a', '-infinity', 2, 1
)
"""
_HEAD, _JOINED = (bytes.fromhex(f"019b0000000070008000{number:012x}") for number in (1, 2))
_WAITS = """
select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')
"""


async def join_while_the_head_ends(dsn: str, store: Store) -> sessions.SessionState | None:
    """Have a task join a session after its only task began to end; the session afterwards."""
    await lambdas.register(store, [LambdaPolicy(LAMBDA)])
    await schedule.schedule(store, [NewTask(_HEAD, LAMBDA, b"", session=Session("a"))])
    picks = [Pick(QueueKey(LAMBDA, Priority.NORMAL), 1, 0)]
    work = await claims.claim_work(store, picks, [Caller("host", bytes(14))], 1, timedelta(days=1))
    (claimed,) = work.tasks
    async with await psycopg.AsyncConnection.connect(dsn) as joining:
        await joining.execute(_JOIN)
        result = Result(claimed.task_id, claimed.token, Outcome.SUCCESS)
        ending = asyncio.create_task(set_results(store, [result]))
        with psycopg.connect(dsn, autocommit=True) as looking:
            await until(lambda: looking.execute(_WAITS).fetchone() == (True,))
        await joining.commit()
    await ending
    return (await sessions.get_sessions(store, [SessionId("", "a")], 10)).get(SessionId("", "a"))


def test_a_task_that_joins_while_the_head_ends_is_the_next_head(dsn: str, world: World) -> None:
    world.reset()

    state = world.run(join_while_the_head_ends(dsn, world.store))

    assert state is not None
    assert (state.head, state.head_status, state.length) == (_JOINED, Status.NEW, 1)


def test_without_the_lock_a_task_that_joins_while_the_head_ends_waits_for_ever(
    dsn: str, world: World
) -> None:
    world.reset()
    InFunction("duly_advance_sessions", LOCK, "").plant(dsn)

    state = world.run(join_while_the_head_ends(dsn, world.store))

    assert state is None
    assert world.rows()[_JOINED].status is Status.WAITING
