"""A call is cut, or another comes in between, at the very moment that hurts most: real servicers on a real store."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest
from psycopg import sql

import duly
from duly_core.postgres.pool import Store
from duly_core.queues.port import QueueSender
from duly_core.tasks import polling
from duly_core.tasks.task import ClaimedTask, NewTask
from duly_store_consumer.consumer import Consumer
from duly_store_consumer.settings import StoreConsumerSettings
from duly_wire.v1 import hsc_pb2
from tests.fixtures.failpoints import Failpoints
from tests.fixtures.queues import MemoryInstallation
from tests.fixtures.services import Frontend, Hsc
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, TaskStates
from tests.fixtures.waiting import until

SECOND = timedelta(seconds=1)


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Failpoints:
    return Failpoints.in_this_process(tmp_path, monkeypatch)


def result_of(task: ClaimedTask) -> hsc_pb2.SetResultsRequest:
    claim = hsc_pb2.Claim(task_id=task.task_id, token=task.token)
    return hsc_pb2.SetResultsRequest(
        results=[hsc_pb2.TaskResult(claim=claim, outcome=hsc_pb2.OUTCOME_SUCCESS)]
    )


def count(dsn: str, table: str) -> int:
    with psycopg.connect(dsn) as connection:
        query = sql.SQL("select count(*) from {}").format(sql.Identifier(table))
        row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


async def test_a_claim_whose_reply_was_dropped_is_granted_again_to_the_same_token_and_counted_once(
    hsc: Hsc, task_states: TaskStates, enqueued_task: NewTask, points: Failpoints
) -> None:
    points.arm("hsc.claim.after", "drop_reply once")
    claim = hsc_pb2.Claim(task_id=enqueued_task.task_id, token=os.urandom(16))
    ask = hsc_pb2.ClaimTaskRequest(
        proposals=[hsc_pb2.ClaimProposal(claim=claim, **{"lambda": LAMBDA})], holder="host"
    )
    with pytest.raises(grpc.aio.AioRpcError) as dropped:
        await hsc.stub.ClaimTask(ask)
    assert dropped.value.code() is grpc.StatusCode.UNAVAILABLE
    assert await task_states.status(enqueued_task.task_id) == "claimed"

    (answer,) = (await hsc.stub.ClaimTask(ask)).answers

    assert (answer.verdict, answer.task.claim, answer.task.fence) == (
        hsc_pb2.CLAIM_VERDICT_CLAIMED,
        claim,
        1,
    )


async def test_a_result_that_waits_until_its_claim_is_void_and_given_to_another_is_refused(
    hsc: Hsc, task_states: TaskStates, processing_task: ClaimedTask, points: Failpoints, clock: Any
) -> None:
    points.arm("hsc.set_results.before", "stop")
    late = asyncio.ensure_future(hsc.stub.SetResults(result_of(processing_task)))
    await until(lambda: points.is_reached("hsc.set_results.before"))
    await clock.tick(HEARTBEAT_TIMEOUT + SECOND)
    await polling.handle_timeouts(task_states.store, {}, ENQUEUE_TIMEOUT, 10)
    row = await task_states.row(processing_task.task_id)
    successor = await task_states.claim(
        NewTask(task_id=processing_task.task_id, lambda_name=LAMBDA, payload=b"{}")
    )

    points.let_go("hsc.set_results.before")

    assert (row["status"], row["crashes"]) == ("enqueued", 1)
    assert list((await late).verdicts) == [hsc_pb2.RESULT_VERDICT_LOST_CLAIM]
    assert await task_states.status(processing_task.task_id) == "claimed"
    of_successor = await hsc.stub.SetResults(result_of(successor))
    assert list(of_successor.verdicts) == [hsc_pb2.RESULT_VERDICT_APPLIED]


async def test_a_result_whose_reply_was_dropped_is_applied_once(
    hsc: Hsc, task_states: TaskStates, processing_task: ClaimedTask, points: Failpoints
) -> None:
    points.arm("hsc.set_results.after", "drop_reply once")
    with pytest.raises(grpc.aio.AioRpcError):
        await hsc.stub.SetResults(result_of(processing_task))

    (verdict,) = (await hsc.stub.SetResults(result_of(processing_task))).verdicts

    assert verdict == hsc_pb2.RESULT_VERDICT_ALREADY_APPLIED
    assert await task_states.status(processing_task.task_id) == "success"


@pytest.mark.parametrize("point", ["before", "after"])
async def test_a_schedule_that_is_cut_at_its_commit_writes_each_task_once(
    frontend: Frontend, task_states: TaskStates, points: Failpoints, dsn: str, point: str
) -> None:
    name = f"frontend.schedule.{point}"
    points.arm(name, "raise 2")

    async with duly.AsyncClient(frontend.address) as client:
        tasks = await client.schedule_many(duly.NewTask(LAMBDA, number) for number in range(20))
        keyed = [await client.schedule(LAMBDA, 1, idempotency_key="once") for _ in range(2)]

    assert len(points.hits(name)) == 2
    assert len({task.task_id for task in tasks}) == 20
    assert len({task.task_id for task in keyed}) == 1
    assert (count(dsn, "task"), count(dsn, "task_assoc")) == (21, 21)


async def test_a_claim_that_comes_before_the_message_is_even_sent_is_granted(
    task_states: TaskStates,
    store: Store,
    sender: QueueSender,
    points: Failpoints,
    memory_queue: MemoryInstallation,
) -> None:
    task = await task_states.new()
    points.arm("store_consumer.push.before", "stop")
    consumer = Consumer(store, sender, StoreConsumerSettings())
    pushing = asyncio.ensure_future(consumer.run_once())
    await until(lambda: points.is_reached("store_consumer.push.before"))
    assert memory_queue.queues.references(LAMBDA).total() == 0

    claimed = await task_states.claim(task)
    points.let_go("store_consumer.push.before")
    await pushing

    assert claimed.fence == 1
    assert await task_states.status(task.task_id) == "claimed"
    # a notification that is stale: its claim will be refused, and it is deleted
    assert memory_queue.queues.references(LAMBDA).total() == 1


async def test_a_message_that_the_queue_refused_though_its_task_is_claimed_meanwhile_voids_nothing(
    task_states: TaskStates, store: Store, sender: QueueSender, points: Failpoints
) -> None:
    task = await task_states.new()
    points.arm("store_consumer.push.before", "raise once")
    points.arm("store_consumer.put_back.before", "stop")
    pushing = asyncio.ensure_future(Consumer(store, sender, StoreConsumerSettings()).run_once())
    await until(lambda: points.is_reached("store_consumer.put_back.before"))

    claimed = await task_states.claim(task)
    points.let_go("store_consumer.put_back.before")
    with pytest.raises(Exception, match=r"store_consumer\.push\.before"):
        await pushing

    assert await task_states.status(task.task_id) == "claimed"
    assert (await task_states.row(task.task_id))["fence"] == claimed.fence
