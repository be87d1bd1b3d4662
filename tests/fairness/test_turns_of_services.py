"""Turns reach both ways to a host: the HSC's answers, and what the Store Consumer sends to queues."""

import os
from datetime import timedelta

import pytest

from duly_core.gates.cache import FixedGates
from duly_core.tasks import schedule
from duly_core.tasks.task import TOKEN_PREFIX_BYTES, NewTask
from duly_store_consumer.consumer import Consumer
from duly_store_consumer.settings import StoreConsumerSettings
from duly_wire.ids import new_task_id
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import hsc_pb2
from tests.fixtures.services import serve_hsc
from tests.fixtures.task_states import LAMBDA, SECOND

FLOOD = 1_100
"""More than a queue takes of which nothing is known."""
GATES = FixedGates(fair={LAMBDA: False})


@pytest.fixture
async def flood(task_states):
    """Tasks of one key, and one of another; the id of that one."""
    await task_states.register()
    flood = [NewTask(new_task_id().bytes, LAMBDA, b"{}", fair_key="ann") for _ in range(FLOOD)]
    await schedule.schedule(task_states.store, flood)
    return (await task_states.new(fair_key="bob")).task_id


def asking(prefix):
    return hsc_pb2.ClaimWorkRequest(
        holder="host", lambdas=[LAMBDA], max_tasks=2, timeout=to_duration(SECOND), token_prefix=prefix
    )


async def test_a_host_gets_a_task_of_each_key(store, flood):
    async with serve_hsc(store, gates=GATES) as hsc:
        response = await hsc.stub.ClaimWork(asking(os.urandom(TOKEN_PREFIX_BYTES)), timeout=20)

    assert flood in {task.claim.task_id for task in response.tasks}


class Queues:
    """Keeps what is sent."""

    depth_age = timedelta()

    def __init__(self):
        self.sent = []

    async def send(self, messages):
        self.sent += messages
        return []

    async def depth(self, queues):
        return dict.fromkeys(queues, 0)


async def test_a_queue_gets_a_task_of_each_key(store, flood):
    queues = Queues()

    await Consumer(store, queues, StoreConsumerSettings(), gates=GATES).run_once()

    assert sum(len(each.task_ids) for each in queues.sent) <= FLOOD
    assert flood in {task_id for each in queues.sent for task_id in each.task_ids}
