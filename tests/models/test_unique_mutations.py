"""The model of unique keys finds it when a guard is taken out of a statement, and a test of two transactions when a lock is."""

import asyncio
from datetime import timedelta

import psycopg
import pytest
from hypothesis.stateful import run_state_machine_as_test

from duly_core.errors import StoreUnavailableError
from duly_core.lambdas import store as lambdas
from duly_core.lambdas.names import QueueKey
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.postgres.pool import Store
from duly_core.results.store import set_results
from duly_core.tasks import claims
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.task import NewTask, Result, Scheduled, Scheduling, Unique
from duly_core.tasks.unique import schedule_unique
from duly_wire.enums import HeldWhile, Outcome, Priority
from tests.fixtures.guards import InStatement
from tests.fixtures.waiting import until
from tests.models.test_mutations import SEARCH
from tests.models.test_unique import LAMBDA, machine_on
from tests.models.world import World

MUTATIONS = {
    "a repeat of a merged task is taken for a new one": (
        "look_at_keys",
        "merged.holder as merged_into",
        "null::uuid as merged_into",
    ),
    "a key stays with its first task": (
        "take_keys",
        "set task_id = asked.task_id",
        "set task_id = unique_key.task_id",
    ),
    "a period does not end": (
        "look_at_keys",
        "duly_now() - taken.taken_at as held_for",
        "interval '0' as held_for",
    ),
    "a dead letter is redriven beside the task that has its key": (
        "redrive",
        "(task.unique_key is null or task.task_id = any (%(keyed)b::uuid[]))",
        "(true or task.task_id = any (%(keyed)b::uuid[]))",
    ),
    "a task of another key is looked at": (
        "look_at_keys",
        "unique_key.lambda = asked.lambda and unique_key.key = asked.unique_key",
        "unique_key.lambda = asked.lambda",
    ),
}


@pytest.mark.long  # each searches until it finds an example
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_model_finds_it_without_a_guard(
    world: World, mutation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit = InStatement(*MUTATIONS[mutation])
    monkeypatch.setitem(edit.home(), edit.name, edit.mutated(edit.home()[edit.name]))

    with pytest.raises((AssertionError, StoreUnavailableError)):
        run_state_machine_as_test(machine_on(world), settings=SEARCH)


_FIRST, _OTHER, _OURS = (bytes.fromhex(f"019b0000000070008000{number:012x}") for number in (1, 2, 3))
_TAKE = """
update unique_key set task_id = '019b0000-0000-7000-8000-000000000002' where key = 'k';
insert into task (task_id, lambda, unique_key) values ('019b0000-0000-7000-8000-000000000002', 'mail.send', 'k');
insert into task_assoc (task_id, lambda, collection, priority, status, next_trigger_at, due_at)
    values ('019b0000-0000-7000-8000-000000000002', 'mail.send', '', 3, 'new', now(), now())
"""
_WAITS = """
select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')
"""


def a_task(task_id: bytes) -> NewTask:
    return NewTask(task_id, LAMBDA, b"", unique=Unique("k", HeldWhile.LIVE))


async def schedule_while_another_takes_the_key(dsn: str, store: Store, *, waits: bool) -> Scheduled:
    """Ask for a task of a key while another transaction, which is about to commit, gives the key to another task."""
    await lambdas.register(store, [LambdaPolicy(LAMBDA)])
    await schedule_unique(store, [a_task(_FIRST)])
    picks = [Pick(QueueKey(LAMBDA, Priority.NORMAL), 1, 0)]
    work = await claims.claim_work(store, picks, [Caller("host", bytes(14))], 1, timedelta(days=1))
    await set_results(store, [Result(each.task_id, each.token, Outcome.SUCCESS) for each in work.tasks])
    async with await psycopg.AsyncConnection.connect(dsn) as taking:
        await taking.execute(_TAKE)
        asking = asyncio.create_task(schedule_unique(store, [a_task(_OURS)]))
        with psycopg.connect(dsn, autocommit=True) as looking:
            await until(lambda: looking.execute(_WAITS).fetchone() == (True,) or asking.done())
        assert asking.done() is not waits
        await taking.commit()
    return (await asking).answers[0]


def test_a_key_that_another_transaction_takes_is_waited_for(dsn: str, world: World) -> None:
    world.reset()

    answer = world.run(schedule_while_another_takes_the_key(dsn, world.store, waits=True))

    assert answer == Scheduled(Scheduling.IGNORED, _OTHER)
    assert _OURS not in world.rows()


def test_without_the_lock_a_key_has_two_tasks(
    dsn: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.reset()
    edit = InStatement("lock_keys", 'order by asked.lambda collate "C", asked.key collate "C"', "where false")
    monkeypatch.setitem(edit.home(), edit.name, edit.mutated(edit.home()[edit.name]))
    taking = InStatement("take_keys", "unique_key.key = asked.key", "false")
    monkeypatch.setitem(taking.home(), taking.name, taking.mutated(taking.home()[taking.name]))

    answer = world.run(schedule_while_another_takes_the_key(dsn, world.store, waits=False))

    assert answer.verdict is Scheduling.CREATED
    assert {_OTHER, _OURS} <= world.rows().keys()
