"""Gates in the HSC: what it does not look for, what it refuses, and when it looks again."""

import asyncio
import os
from datetime import timedelta

import pytest

from duly_core.config.live_sections import LiveStoreConsumerSettings
from duly_core.gates import store as gates
from duly_core.gates.cache import GateCache
from duly_core.gates.rules import GateScope, Kind
from duly_core.gates.store import NewGate
from duly_core.limits.store import ResourceLimit
from duly_core.tasks.task import TOKEN_PREFIX_BYTES, ResourceNeed
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import hsc_pb2
from tests.fixtures import whole
from tests.fixtures.full_tables import HELD_BY_A_GATE as FILL
from tests.fixtures.services import serve_hsc
from tests.fixtures.task_states import LAMBDA, SECOND
from tests.fixtures.waiting import until

OTHER = "report.make"
DEADLINE = 20
NOBODY_POLLS = timedelta(minutes=2)


@pytest.fixture
async def cache(store):
    return GateCache(store)


@pytest.fixture
async def hsc(store, task_states, cache):
    def live_settings():
        return LiveStoreConsumerSettings(poll_interval=NOBODY_POLLS)

    async with serve_hsc(store, live_settings=live_settings, gates=cache) as served:
        cache.on_change(served.work.gates_changed)
        yield served


async def put(store, name="held", kind=Kind.PAUSE, pattern=LAMBDA, **scope):
    await whole.put_gate(store, NewGate(name, kind, GateScope(pattern, **scope), None, "", "", None))


def asking(hsc, *lambdas, timeout=15 * SECOND):
    request = hsc_pb2.ClaimWorkRequest(
        holder="host",
        lambdas=lambdas or [LAMBDA],
        max_tasks=10,
        timeout=to_duration(timeout),
        token_prefix=os.urandom(TOKEN_PREFIX_BYTES),
    )
    return asyncio.ensure_future(hsc.stub.ClaimWork(request, timeout=DEADLINE))


async def waiting(hsc):
    """Wait until a call waits, and nobody looks."""
    await until(lambda: hsc.work._waiting == 1 and not hsc.work._running)


def ids(response):
    return {task.claim.task_id for task in response.tasks}


async def test_an_hsc_that_has_not_read_the_gates_reads_them_before_it_claims(hsc, store, task_states):
    await put(store)
    await task_states.new()

    response = await asking(hsc, timeout=SECOND)

    assert not response.tasks


async def test_a_call_that_waits_is_answered_when_the_gate_goes(hsc, store, cache, task_states):
    await put(store)
    await cache.run_once()
    task = await task_states.new()
    answer = asking(hsc)
    await waiting(hsc)

    await gates.delete_gates(store, ["held"])
    await cache.run_once()

    assert ids(await answer) == {task.task_id}


async def test_nobody_looks_for_a_paused_lambda_whatever_is_told_of_it(hsc, store, cache, task_states):
    await put(store)
    await cache.run_once()
    answer = asking(hsc)
    await waiting(hsc)
    await task_states.new()

    hsc.work.note_due(timedelta(), {LAMBDA})

    assert not hsc.work._running
    assert not answer.done()
    hsc.work.close()
    assert not (await answer).tasks


async def test_a_reference_of_a_paused_lambda_is_refused_at_the_claim(hsc, store, task_states):
    task = await task_states.enqueued()
    await put(store)
    claim = hsc_pb2.Claim(task_id=task.task_id, token=os.urandom(16))
    proposal = hsc_pb2.ClaimProposal(claim=claim, **{"lambda": LAMBDA})

    response = await hsc.stub.ClaimTask(
        hsc_pb2.ClaimTaskRequest(proposals=[proposal], holder="host"), timeout=DEADLINE
    )

    assert [answer.verdict for answer in response.answers] == [hsc_pb2.CLAIM_VERDICT_NOT_CLAIMED]
    assert await task_states.status(task.task_id) == "new"


async def test_the_answer_to_a_heartbeat_says_which_tasks_gates_hold(hsc, store, cache, task_states):
    held, free = await task_states.claimed(collection="a"), await task_states.claimed()
    await put(store, collection="a")
    await cache.run_once()

    claims = [hsc_pb2.Claim(task_id=each.task_id, token=each.token) for each in (held, free)]
    request = hsc_pb2.HeartbeatRequest(
        holder="host", items=[hsc_pb2.HeartbeatItem(claim=claim) for claim in claims]
    )
    response = await hsc.stub.Heartbeat(request, timeout=DEADLINE)

    assert list(response.verdicts) == [
        hsc_pb2.HEARTBEAT_VERDICT_GATED,
        hsc_pb2.HEARTBEAT_VERDICT_KEPT,
    ]


async def test_a_call_that_waits_is_answered_when_the_gate_expires(hsc, store, cache, task_states):
    await whole.put_gate(
        store, NewGate("brief", Kind.PAUSE, GateScope(LAMBDA), None, "", "", None, timedelta(seconds=1))
    )
    task = await task_states.new()
    assert await cache.run_once() <= SECOND
    assert cache.now
    answer = asking(hsc)
    await waiting(hsc)

    while not answer.done():
        await asyncio.wait({answer}, timeout=(await cache.run_once()).total_seconds())

    assert ids(await answer) == {task.task_id}


async def test_a_task_behind_hundreds_of_held_ones_is_claimed_by_the_looks_of_one_call(
    hsc, store, cache, task_states
):
    await task_states.register()
    async with store.connection() as connection:
        await connection.execute(FILL, {"lambda": LAMBDA, "count": 3_000, "apart": timedelta(milliseconds=1)})
    await put(store, collection="marketing")
    await cache.run_once()
    free = await task_states.new()

    assert ids(await asking(hsc)) == {free.task_id}


async def test_a_call_that_waits_behind_hundreds_of_held_tasks_gets_the_next_free_one(
    hsc, store, cache, task_states
):
    await task_states.register()
    async with store.connection() as connection:
        await connection.execute(FILL, {"lambda": LAMBDA, "count": 3_000, "apart": timedelta()})
    await put(store, collection="marketing")
    await cache.run_once()
    answer = asking(hsc)
    await waiting(hsc)

    free = await task_states.new()
    hsc.work.note_due(timedelta(), {LAMBDA})

    assert ids(await answer) == {free.task_id}


async def test_a_claim_says_when_the_task_could_start_if_something_held_it_back_when_it_was_due(
    hsc, store, cache, task_states, clock
):
    await put(store)
    await cache.run_once()
    paused = await task_states.new()
    await clock.tick(60 * SECOND)
    await gates.delete_gates(store, ["held"])
    await cache.run_once()
    plain = await task_states.new()
    await whole.put_resource(store, ResourceLimit("database", 0))
    parked = await task_states.new(resources=(ResourceNeed("database"),))

    first = await asking(hsc)
    await clock.tick(60 * SECOND)
    await whole.put_resource(store, ResourceLimit("database", 1))
    second = await asking(hsc)

    tasks = {task.claim.task_id: task for task in [*first.tasks, *second.tasks]}
    assert not tasks[plain.task_id].HasField("startable_at")
    for held in (paused, parked):
        task = tasks[held.task_id]
        assert 59 <= task.startable_at.seconds - task.due_at.seconds <= 75
