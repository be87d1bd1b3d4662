"""Reads and lists have connections of their own: whatever they do, a task can be scheduled."""

import asyncio
from datetime import timedelta
from time import monotonic

import grpc
import psycopg
import pytest
from psycopg import ClientCursor

from duly_core.lambdas import store as lambdas
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.tasks import queries as task_queries
from duly_core.tasks import store as tasks
from duly_core.tasks.store import TaskFilter
from duly_core.traffic.turns import Turns
from duly_frontend.tasks.reads import FEW
from duly_wire.v1 import frontend_pb2, registry_pb2, task_pb2
from tests.fixtures.full_tables import connect, fill, prepare
from tests.fixtures.services import refusal, serve_frontend
from tests.fixtures.task_states import LAMBDA

DEADLINE = 2
"""Seconds, less than the lists have to wait."""


def schedule(frontend):
    task = frontend_pb2.NewTask(**{"lambda": LAMBDA})
    return frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=[task]))


async def test_lists_that_hold_all_their_connections_keep_no_schedule_waiting(task_states, dsn):
    async with serve_frontend(task_states.store, list_timeout=timedelta(seconds=8)) as frontend:
        dead = frontend_pb2.ListTasksRequest(statuses=[task_pb2.TASK_STATUS_FATAL_FAILURE])
        with psycopg.connect(dsn) as holder:
            holder.execute("lock table dead_letter in access exclusive mode")
            lists = [asyncio.ensure_future(frontend.stub.ListTasks(dead)) for _ in range(16)]
            started = monotonic()
            results = [(await schedule(frontend)).results[0] for _ in range(3)]
            ids = [result.task_id for result in results]
            found = await frontend.stub.GetTask(frontend_pb2.GetTaskRequest(task_ids=ids))
            took = monotonic() - started
        await asyncio.gather(*lists)

    assert all(result.created for result in results)
    assert all(result.task.task_id for result in found.results)
    assert took < DEADLINE


async def test_a_list_that_reads_too_much_is_refused_with_its_limit(task_states, monkeypatch):
    async def slow(store, *_: object, **__: object):
        return await tasks.select_text(store, "select pg_sleep(30)", {})

    monkeypatch.setattr(task_queries, "list_page", slow)
    async with serve_frontend(task_states.store, list_timeout=timedelta(milliseconds=100)) as frontend:
        refused = await refusal(frontend.stub.ListTasks(frontend_pb2.ListTasksRequest()))

    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "took longer than 100ms (frontend.list_timeout)" in refused.message


@pytest.mark.parametrize("more", [{}, {"lambda_name": "mail.send"}])
async def test_a_list_by_collection_reads_the_tasks_of_that_collection_only(dsn, more):
    await prepare(dsn)
    with connect(dsn) as connection:
        fill(connection, 100, 5_000)
        connection.execute("analyze task")
        query, parameters = task_queries.list_query(TaskFilter(collection="spring", **more), None, 100)
        plan = ClientCursor(connection).execute("explain " + query, parameters).fetchall()

    assert "(collection = 'spring'::text)" in str(plan)
    assert "collection_task_id_idx" in str(plan) or "task_by_collection" in str(plan), plan


async def test_a_search_for_many_keys_takes_a_turn_and_one_for_few_does_not(task_states, monkeypatch):
    taken = []
    turn = Turns.turn
    monkeypatch.setattr(Turns, "turn", lambda turns, caller: taken.append(turns) or turn(turns, caller))
    async with serve_frontend(task_states.store) as frontend:
        counts = []
        for number in (FEW, FEW + 1):
            keys = [{"lambda": LAMBDA, "idempotency_key": f"k{key}"} for key in range(number)]
            await frontend.stub.FindTask(frontend_pb2.FindTaskRequest(keys=keys))
            counts.append(len(taken))

    assert counts == [0, 1]


async def test_a_list_of_many_lambdas_takes_a_turn_and_is_read_in_parts(task_states, monkeypatch):
    taken, parts = [], []
    turn, list_some = Turns.turn, lambdas.list_some

    async def counted(*args, **options):
        parts.append(part := await list_some(*args, **options))
        return part

    monkeypatch.setattr(Turns, "turn", lambda turns, caller: taken.append(turns) or turn(turns, caller))
    monkeypatch.setattr(lambdas, "list_some", counted)
    names = sorted([LAMBDA, *(f"mail.l{number:03}" for number in range(450))])
    await lambdas.register(task_states.store, [LambdaPolicy(name) for name in names])
    async with serve_frontend(task_states.store) as frontend:
        answer = await frontend.registry.ListLambdas(registry_pb2.ListLambdasRequest())

    assert [getattr(each, "lambda").name for each in answer.lambdas] == names
    assert (len(taken), max(map(len, parts))) == (1, 200)
