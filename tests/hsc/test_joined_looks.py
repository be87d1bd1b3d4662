"""Looks for work that go with the statement which makes a task due, in one transaction."""

import asyncio
import os
from datetime import UTC, datetime, timedelta
from uuid import UUID

import grpc
import psycopg
import pytest
from psycopg.rows import tuple_row

from duly_core.config.live_sections import LiveStoreConsumerSettings
from duly_core.errors import StoreUnavailableError
from duly_core.gates.cache import FixedGates
from duly_core.gates.rules import Gate, GateScope, GateSet, Kind
from duly_core.limits.store import ResourceLimit
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.pool import Step
from duly_core.postgres.statements import Statement
from duly_core.tasks import claims, schedule
from duly_core.tasks.task import TOKEN_PREFIX_BYTES, NewTask, ResourceNeed, Session
from duly_wire.ids import new_task_id
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import frontend_pb2, hsc_pb2
from tests.fixtures import whole
from tests.fixtures.services import refusal, serve_frontend, serve_hsc
from tests.fixtures.task_states import LAMBDA, SECOND
from tests.fixtures.waiting import until

DEADLINE = 20
PAUSE = Gate(
    1, "held", Kind.PAUSE, GateScope("report.*"), None, "", "", datetime(2026, 11, 26, tzinfo=UTC), None
)
"""Of another lambda."""


def nobody_polls():
    return LiveStoreConsumerSettings(poll_interval=timedelta(minutes=2))


def id_of(task):
    return str(UUID(bytes=task.claim.task_id))


class Services:
    """A Frontend and an HSC of one process."""

    def __init__(self, frontend, hsc, dsn):
        self.frontend = frontend
        self.hsc = hsc
        self._dsn = dsn

    async def ask(self, **asked):
        request = {"holder": "host", "lambdas": [LAMBDA], "max_tasks": 10} | asked
        request.setdefault("timeout", to_duration(15 * SECOND))
        request.setdefault("token_prefix", os.urandom(TOKEN_PREFIX_BYTES))
        return await self.hsc.stub.ClaimWork(hsc_pb2.ClaimWorkRequest(**request), timeout=DEADLINE)

    async def asking(self, **asked):
        """Have a call wait for work."""
        if not self.hsc.work._knows_gates:
            await self.ask(timeout=to_duration(timedelta()))
        calls = self.hsc.work._waiting
        answer = asyncio.ensure_future(self.ask(**asked))
        await until(lambda: self.hsc.work._waiting == calls + 1 and not self.hsc.work._running)
        return answer

    async def schedule(self, task_id=None, **fields):
        task_id = task_id or str(new_task_id())
        new = frontend_pb2.NewTask(task_id=task_id, payload=b"1", **{"lambda": LAMBDA} | fields)
        response = await self.frontend.stub.Schedule(
            frontend_pb2.ScheduleRequest(tasks=[new]), timeout=DEADLINE
        )
        (result,) = response.results
        assert not result.HasField("error"), result
        return result.task_id

    async def succeed(self, task):
        result = hsc_pb2.TaskResult(claim=task.claim, outcome=hsc_pb2.OUTCOME_SUCCESS)
        return await self.hsc.stub.SetResults(hsc_pb2.SetResultsRequest(results=[result]), timeout=DEADLINE)

    def wrote(self, table, task_id):
        """Return which transaction wrote the row of a task last."""
        with psycopg.connect(self._dsn) as connection:
            query = f"select xmin::text from {table} where task_id = %s"  # noqa: S608 (a name of this file)
            (row,) = connection.execute(query, [UUID(bytes=task_id)]).fetchall()
        return row[0]


@pytest.fixture
async def services(store, task_states, dsn):
    notifications = LocalNotifications()
    async with (
        serve_hsc(store, live_settings=nobody_polls, notifications=notifications) as hsc,
        serve_frontend(store, notifications=notifications) as frontend,
    ):
        yield Services(frontend, hsc, dsn)


async def test_a_task_is_claimed_in_the_transaction_that_writes_it_for_a_call_that_waits(services):
    answer = await services.asking()

    task_id = await services.schedule()

    (task,) = (await answer).tasks
    assert id_of(task) == task_id
    assert services.wrote("task", task.claim.task_id) == services.wrote("task_assoc", task.claim.task_id)


async def test_a_task_that_is_due_later_is_written_without_a_look(services):
    answer = await services.asking()

    await services.schedule(delay=to_duration(SECOND / 10))

    (task,) = (await answer).tasks
    assert services.wrote("task", task.claim.task_id) != services.wrote("task_assoc", task.claim.task_id)


async def test_a_repeat_is_answered_as_the_first_time_and_the_call_goes_on_waiting(services):
    first = await services.asking()
    task_id = await services.schedule()
    await first
    answer = await services.asking()

    assert await services.schedule(task_id) == task_id
    assert not answer.done()
    second = await services.schedule()

    (task,) = (await answer).tasks
    assert id_of(task) == second


async def test_while_there_are_gates_looks_are_made_alone(store, task_states, dsn):
    notifications = LocalNotifications()
    async with (
        serve_hsc(
            store, live_settings=nobody_polls, notifications=notifications, gates=FixedGates(GateSet([PAUSE]))
        ) as hsc,
        serve_frontend(store, notifications=notifications) as frontend,
    ):
        services = Services(frontend, hsc, dsn)
        answer = await services.asking()
        await services.schedule()

        (task,) = (await answer).tasks

    assert services.wrote("task", task.claim.task_id) != services.wrote("task_assoc", task.claim.task_id)


async def test_a_plain_task_is_written_while_the_look_would_wait_for_a_lock_of_another(services, store, dsn):
    await whole.put_resource(store, ResourceLimit("database", 2))

    async def schedule_needy():
        """Nobody is told of it: the next look finds it."""
        needs = (ResourceNeed("database"),)
        await schedule.schedule(store, [NewTask(new_task_id().bytes, LAMBDA, b"1", resources=needs)])

    await schedule_needy()
    assert len((await services.ask()).tasks) == 1  # the resource is in use from now on
    answer = await services.asking()
    await schedule_needy()
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("select from resource_use for update")

        task_id = await services.schedule()

        assert services.wrote("task", UUID(task_id).bytes)
        assert not answer.done()
    assert (await answer).tasks


async def test_a_task_is_written_alone_if_the_pair_has_no_connection(services):
    answer = await services.asking()
    async with services.hsc.work._joined_store.connection():  # the only one
        task_id = await services.schedule()

    (task,) = (await answer).tasks
    assert id_of(task) == task_id
    assert services.wrote("task", task.claim.task_id) != services.wrote("task_assoc", task.claim.task_id)


async def test_a_task_is_written_although_the_look_for_it_is_refused(services, monkeypatch):
    answer = await services.asking()
    refused = iter([Step(Statement("refused", "select 1 / 0"), {}, tuple_row)])
    look_step = claims.look_step
    monkeypatch.setattr(
        claims, "look_step", lambda *asked, **more: next(refused, None) or look_step(*asked, **more)
    )

    task_id = await services.schedule()

    assert [id_of(task) for task in (await answer).tasks] == [task_id]


async def test_a_look_that_has_no_turn_for_a_lambda_does_not_go_with_its_task(services):
    others = [f"report.{number}" for number in range(900)]
    answer = await services.asking(lambdas=[LAMBDA, *others])
    (group,) = services.hsc.work._groups
    looks = []
    for _ in range(4):
        group.due_times.note_due(others, 0.0)
        looks.append(services.hsc.work._prepare(group, LAMBDA))

    assert all(look is None or LAMBDA in look.polled for look in looks)
    assert None in looks
    answer.cancel()


async def test_without_exact_triggering_a_task_waits_for_the_poll(store, task_states, dsn):
    notifications = LocalNotifications()
    settings = LiveStoreConsumerSettings(poll_interval=timedelta(seconds=1), exact=False)
    async with (
        serve_hsc(store, live_settings=lambda: settings, notifications=notifications) as hsc,
        serve_frontend(store, notifications=notifications) as frontend,
    ):
        services = Services(frontend, hsc, dsn)
        answer = await services.asking()
        await services.schedule()
        (task,) = (await answer).tasks

    assert services.wrote("task", task.claim.task_id) != services.wrote("task_assoc", task.claim.task_id)


async def test_an_answer_that_was_lost_comes_again_with_the_task_that_it_claimed(services):
    prefix = os.urandom(TOKEN_PREFIX_BYTES)
    answer = await services.asking(token_prefix=prefix)
    task_id = await services.schedule()
    (before,) = (await answer).tasks

    (task,) = (await services.ask(lost_prefixes=[prefix])).tasks

    assert id_of(task) == task_id
    assert (before.claim.task_id, before.fence) == (task.claim.task_id, task.fence)


async def test_if_the_outcome_is_unknown_both_callers_are_told_and_nothing_is_done_twice(
    services, monkeypatch
):
    joined = services.hsc.work._joined_store
    run_together = joined.run_together

    async def lose_the_answer(*steps):
        await run_together(*steps)
        raise StoreUnavailableError("no answer")

    prefix, task_id = os.urandom(TOKEN_PREFIX_BYTES), str(new_task_id())
    answer = await services.asking(token_prefix=prefix)
    monkeypatch.setattr(joined, "run_together", lose_the_answer)

    scheduled = await refusal(services.schedule(task_id))
    claimed = await refusal(answer)

    assert scheduled.code is claimed.code is grpc.StatusCode.UNAVAILABLE
    assert await services.schedule(task_id) == task_id
    (task,) = (await services.ask(lost_prefixes=[prefix])).tasks
    assert (id_of(task), task.fence) == (task_id, 1)


async def test_the_next_task_of_a_session_is_claimed_in_the_transaction_that_ends_the_one_before(
    services, store
):
    session = Session("order-17")
    tasks = [NewTask(new_task_id().bytes, LAMBDA, b"1", session=session) for _ in range(3)]
    await schedule.schedule(store, tasks)
    (first,) = (await services.ask()).tasks
    answer = await services.asking()
    await services.succeed(first)  # what follows is not known yet
    (second,) = (await answer).tasks
    answer = await services.asking()

    response = await services.succeed(second)

    (third,) = (await answer).tasks
    assert [*response.verdicts] == [hsc_pb2.RESULT_VERDICT_APPLIED]
    assert [each.claim.task_id for each in (first, second, third)] == [task.task_id for task in tasks]
    assert services.wrote("task", second.claim.task_id) == services.wrote("task_assoc", third.claim.task_id)
    repeated = await services.succeed(second)
    assert [*repeated.verdicts] == [hsc_pb2.RESULT_VERDICT_ALREADY_APPLIED]
