"""The timeouts of leases change while Duly runs: by what HSCs write and answer, and how long Store Consumers wait."""

import asyncio
import os
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

import duly
from duly_core.config.live_sections import LONGEST_LEASE, TriggerSettings
from duly_core.config.timing import Timing
from duly_core.live_settings.store import SETTINGS_KNOWN_FOR, config_snapshot
from duly_core.process.clock import nanoseconds
from duly_core.tasks import claims
from duly_core.tasks.task import Proposal, TaskHeartbeat
from duly_frontend.live_settings.follower import LiveConfig as FrontendLiveConfig
from duly_frontend.settings import FrontendSettings
from duly_hsc.live_config import LiveConfig
from duly_store_consumer.live_config import LiveConfig as StoreConsumerLiveConfig
from duly_store_consumer.reclaim_guard import ReclaimGuard
from duly_store_consumer.settings import StoreConsumerSettings
from duly_wire.enums import SettingSource
from duly_wire.v1 import hsc_pb2
from tests.fixtures.services import serve_hsc
from tests.fixtures.task_states import CLAIM_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, SECOND
from tests.live_settings.test_live_settings_everywhere import follower

TIMING = Timing(profile="embedded")
LEASE = "timing.heartbeat_timeout"
MINUTE = timedelta(minutes=1)


class Time:
    """A host's clock since boot."""

    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now

    def nanoseconds(self):
        return nanoseconds(timedelta(seconds=self.now))


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def config(store, time):
    return LiveConfig(store, TriggerSettings(), None, TIMING, time)


@pytest.fixture
async def hsc(store, config):
    async with serve_hsc(store, lease_timeouts=config.lease_timeouts) as served:
        yield served


async def left(task_states, task_id):
    """How long a task's lease has left."""
    async with task_states.store.connection() as connection:
        cursor = await connection.execute(
            "select next_trigger_at - duly_now() from task_assoc where task_id = %s", [UUID(bytes=task_id)]
        )
        ((found,),) = await cursor.fetchall()
    return found


def about(duration):
    return pytest.approx(duration.total_seconds(), abs=10)


async def beat(hsc, task):
    claim = hsc_pb2.Claim(task_id=task.task_id, token=task.token)
    request = hsc_pb2.HeartbeatRequest(holder="host", items=[hsc_pb2.HeartbeatItem(claim=claim)])
    response = await hsc.stub.Heartbeat(request)
    assert response.verdicts == [hsc_pb2.HEARTBEAT_VERDICT_KEPT]
    return response.terms.heartbeat_timeout.ToTimedelta()


# ---- what HSCs write and answer -----------------------------------------------------------------------------


async def test_a_heartbeat_gets_the_timeout_that_an_operator_set(
    hsc, config, client, task_states, claimed_task
):
    await client.set_setting(LEASE, "5m")
    await config.run_once()

    assert await beat(hsc, claimed_task) == 5 * MINUTE

    assert (await left(task_states, claimed_task.task_id)).total_seconds() == about(5 * MINUTE)


async def test_a_shorter_timeout_is_answered_and_never_shortens_a_lease(
    hsc, config, client, task_states, claimed_task
):
    await client.set_setting(LEASE, "5m")
    await config.run_once()
    await beat(hsc, claimed_task)
    await client.reset_settings([LEASE])
    await config.run_once()

    assert await beat(hsc, claimed_task) == TIMING.heartbeat_timeout

    assert (await left(task_states, claimed_task.task_id)).total_seconds() == about(5 * MINUTE)


async def test_claims_get_the_timeout_that_an_operator_set(hsc, config, client, task_states, enqueued_task):
    await client.set_setting("timing.claim_timeout", "5m")
    await config.run_once()
    claim = hsc_pb2.Claim(task_id=enqueued_task.task_id, token=os.urandom(16))
    proposal = hsc_pb2.ClaimProposal(claim=claim, **{"lambda": LAMBDA})

    response = await hsc.stub.ClaimTask(hsc_pb2.ClaimTaskRequest(proposals=[proposal], holder="host"))

    assert response.terms.claim_timeout.ToTimedelta() == 5 * MINUTE
    assert (await left(task_states, enqueued_task.task_id)).total_seconds() == about(5 * MINUTE)


async def test_work_gets_the_timeout_that_an_operator_set(hsc, config, client, task_states, new_task):
    await client.set_setting("timing.claim_timeout", "5m")
    await config.run_once()
    request = hsc_pb2.ClaimWorkRequest(
        holder="host", lambdas=[LAMBDA], max_tasks=1, token_prefix=os.urandom(14)
    )
    request.timeout.FromTimedelta(10 * SECOND)

    response = await hsc.stub.ClaimWork(request)

    assert [task.claim.task_id for task in response.tasks] == [new_task.task_id]
    assert response.terms.claim_timeout.ToTimedelta() == 5 * MINUTE
    assert (await left(task_states, new_task.task_id)).total_seconds() == about(5 * MINUTE)


async def test_a_claim_that_is_asked_for_again_lives_as_long_as_the_answer_says(task_states, enqueued_task):
    proposal = Proposal(enqueued_task.task_id, os.urandom(16), LAMBDA)
    await claims.claim(task_states.store, [(proposal, "host")], CLAIM_TIMEOUT)

    (again,) = await claims.claim(task_states.store, [(proposal, "host")], 5 * MINUTE)

    assert again.token == proposal.token
    assert (await left(task_states, enqueued_task.task_id)).total_seconds() == about(5 * MINUTE)


async def test_after_the_clock_was_set_back_a_renewed_lease_ends_within_an_hour(
    task_states, clock, processing_task
):
    await clock.tick(-timedelta(days=3))
    beats = [TaskHeartbeat(processing_task.task_id, processing_task.token)]

    await claims.heartbeat(task_states.store, beats, HEARTBEAT_TIMEOUT)

    assert await left(task_states, processing_task.task_id) <= LONGEST_LEASE


async def test_an_hsc_that_cannot_read_the_settings_gives_no_lease_longer_than_its_own(config, client, time):
    await client.set_settings({LEASE: "5m", "timing.claim_timeout": "12s"})
    await config.run_once()
    assert config.lease_timeouts().heartbeat == 5 * MINUTE

    time.now += SETTINGS_KNOWN_FOR.total_seconds()

    timeouts = config.lease_timeouts()
    assert timeouts.heartbeat == TIMING.heartbeat_timeout
    assert timeouts.claim == 12 * SECOND
    await config.run_once()
    assert config.lease_timeouts().heartbeat == 5 * MINUTE


# ---- how long Store Consumers wait --------------------------------------------------------------------------


@pytest.fixture
def make_guard(store, time):
    """A guard that follows the settings, as in a Store Consumer that has just started."""

    def make():
        guard = ReclaimGuard(TIMING, time.nanoseconds)
        live_config = StoreConsumerLiveConfig(store, StoreConsumerSettings())
        live_config.follow(guard.take)
        return guard, live_config

    return make


@pytest.fixture
def fail_over(dsn):
    def run():
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("update store_epoch set server = 'the one before'")

    return run


async def quiet(store, guard):
    async with store.connection() as connection:
        return await guard.left(connection)


async def test_after_a_failover_claims_are_left_alone_for_the_longest_lease(
    store, client, make_guard, fail_over
):
    guard, live_config = make_guard()
    await client.set_setting(LEASE, "5m")
    await live_config.read(0.0)
    fail_over()

    assert await quiet(store, guard) == 5 * MINUTE


async def test_a_timeout_that_was_reset_lately_counts_for_a_store_consumer_that_started_since(
    store, client, make_guard, fail_over
):
    await client.set_setting(LEASE, "5m")
    await client.set_setting(LEASE, "20s")
    await client.reset_settings([LEASE])
    guard, live_config = make_guard()
    await live_config.read(0.0)
    fail_over()

    assert await quiet(store, guard) == 5 * MINUTE


async def test_what_was_set_is_forgotten_once_no_lease_of_it_can_be_in_force(store, client, clock):
    await client.set_setting(LEASE, "5m")
    await client.set_setting(LEASE, "20s")
    assert set((await config_snapshot(store)).former) == {(LEASE, "5m"), (LEASE, "20s")}

    await clock.tick(LONGEST_LEASE + SETTINGS_KNOWN_FOR)

    assert (await config_snapshot(store)).former == []


async def test_other_settings_are_not_remembered_once_they_are_changed(store, client):
    await client.set_setting("store_consumer.poll_interval", "5s")
    await client.reset_settings(["store_consumer.poll_interval"])

    assert (await config_snapshot(store)).former == []


# ---- what operators see -------------------------------------------------------------------------------------


async def test_a_timeout_under_which_hosts_would_take_no_work_is_refused(client):
    with pytest.raises(duly.InvalidSettingError, match=r"must be at least .*could run twice at a time"):
        await client.set_setting(LEASE, "3s")
    with pytest.raises(duly.InvalidSettingError, match="at most 1 hour"):
        await client.set_setting(LEASE, "2h")

    held = {each.name: each for each in await client.settings()}
    assert held[LEASE].source is not SettingSource.OPERATOR


async def test_a_frontend_tells_the_age_of_heartbeats_by_the_timeout_in_force(store, client):
    config = FrontendLiveConfig(store, FrontendSettings(), TriggerSettings(), follower(), TIMING)
    await client.set_setting(LEASE, "5m")

    await config.run_once()

    assert config.heartbeat_timeout() == 5 * MINUTE


async def test_a_quiet_does_not_end_before_the_settings_were_read_since_the_change(
    store, client, make_guard, fail_over, clock, time
):
    """Leases of another timeout may have been given, and this process has not heard of it yet."""
    guard, live_config = make_guard()
    await live_config.read(0.0)
    assert await quiet(store, guard) == timedelta()
    await client.set_setting(LEASE, "5m")
    fail_over()
    await quiet(store, guard)

    time.now += (TIMING.heartbeat_timeout + SECOND).total_seconds()
    await clock.tick(TIMING.heartbeat_timeout + SECOND)
    assert await quiet(store, guard) == TIMING.clock_step  # ask again
    live_config.changed()
    await live_config.read(0.0)

    assert (await quiet(store, guard)).total_seconds() == about(5 * MINUTE - TIMING.heartbeat_timeout)


async def test_of_two_timeouts_that_are_set_at_once_both_are_remembered(store, client):
    await asyncio.gather(
        *(client.set_setting(LEASE, value) for value in ("5m", "6m", "7m")),
    )
    await client.reset_settings([LEASE])

    assert {value for _, value in (await config_snapshot(store)).former} == {"5m", "6m", "7m"}


async def test_a_timeout_may_be_set_to_what_it_is_already(store, client):
    await client.set_setting(LEASE, "5m")
    await client.set_setting(LEASE, "5m")

    assert (await config_snapshot(store)).former == [(LEASE, "5m")]
