"""Breakers: when they open, whom they let through, and when they close."""

import asyncio
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import REGISTRY

from duly_core.access import audit_log as audit
from duly_core.gates import breakers
from duly_core.gates import store as gates
from duly_core.gates.breaker_rules import Breaker, State, judge
from duly_core.gates.breakers import NewBreaker
from duly_core.gates.cache import GateCache
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.statements import Statement
from duly_core.process.pace import Pace
from duly_core.results.store import set_results
from duly_core.tasks import claims, schedule
from duly_core.tasks import store as tasks
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.task import Applied, NewTask, Result
from duly_hsc.breaker_counts import BreakerCounts
from duly_store_consumer.breaker_loop import BreakerLoop
from duly_store_consumer.live_config import LiveConfig
from duly_store_consumer.settings import StoreConsumerSettings
from duly_store_consumer.timeouts import Timeouts
from duly_wire.enums import FailureKind, Outcome, Priority
from duly_wire.ids import new_task_id
from tests.fixtures import whole
from tests.fixtures.task_states import CLAIM_TIMEOUT, LAMBDA, SECOND

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
PAUSE = timedelta(seconds=30)
MINUTE = timedelta(minutes=1)


def a_breaker(state=State.CLOSED, ended=0, failed=0, *, since=NOW, probed=0, at=NOW):
    return Breaker(LAMBDA, 0.5, 10, MINUTE, PAUSE, 3, "ann", "", NOW, state, since, probed, at, ended, failed)


# ---- the decision ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ended", "failed", "opens"),
    [(10, 5, True), (10, 4, False), (9, 9, False), (0, 0, False), (100, 100, True)],
)
def test_a_closed_breaker_opens_at_its_rate_and_not_before_its_minimum(ended, failed, opens):
    assert (judge(a_breaker(ended=ended, failed=failed), has_gate=False).state is State.OPEN) is opens


def test_an_open_breaker_lets_probes_through_after_its_pause():
    early = judge(a_breaker(State.OPEN, at=NOW + PAUSE - SECOND), has_gate=True)
    due = judge(a_breaker(State.OPEN, at=NOW + PAUSE), has_gate=True)

    assert (early.state, early.probes) == (None, 0)
    assert (due.state, due.probes, due.reason) == (State.HALF_OPEN, 3, "paused for 30s")


@pytest.mark.parametrize(
    ("ended", "failed", "probed", "state", "more"),
    [
        (0, 0, 0, None, 3),
        (0, 0, 1, None, 2),
        (2, 1, 3, None, 0),
        (3, 0, 3, State.CLOSED, 0),
        (3, 1, 3, State.CLOSED, 0),
        (2, 2, 3, State.OPEN, 0),
    ],
)
def test_probes_decide(ended, failed, probed, state, more):
    verdict = judge(a_breaker(State.HALF_OPEN, ended, failed, probed=probed), has_gate=True)

    assert (verdict.state, verdict.probes) == (state, more)


def test_other_probes_are_let_through_when_the_first_do_not_end():
    verdict = judge(a_breaker(State.HALF_OPEN, probed=3, at=NOW + PAUSE), has_gate=True)

    assert (verdict.state, verdict.probes) == (State.HALF_OPEN, 3)


def test_a_breaker_closes_when_an_operator_removes_its_gate():
    assert judge(a_breaker(State.OPEN), has_gate=False).state is State.CLOSED


# ---- in the store ------------------------------------------------------------------------------------------


@dataclass
class Lambda:
    """A lambda with a breaker, and what a host and a Store Consumer do with it."""

    store: object
    cache: GateCache

    async def schedule(self, count, name=LAMBDA):
        made = [NewTask(new_task_id().bytes, name, b"{}") for _ in range(count)]
        await schedule.schedule(self.store, made)

    async def claim(self, most=100):
        await self.cache.run_once()
        gate_set = self.cache.now
        picks = [
            Pick(QueueKey(LAMBDA, priority), most, 0)
            for priority in Priority
            if not gate_set.is_closed(QueueKey(LAMBDA, priority))
        ]
        work = await claims.claim_work(
            self.store, picks, [Caller("host", os.urandom(14))], most, CLAIM_TIMEOUT, gate_set
        )
        return work.tasks

    async def end(self, tasks, *, failed=False, ended_as=Outcome.SUCCESS):
        outcome = Outcome.RETRIABLE_FAILURE if failed else ended_as
        kind = FailureKind.EXCEPTION if failed else None
        results = [
            Result(
                task.task_id,
                task.token,
                outcome,
                failure_kind=kind,
                retry_after=timedelta(hours=1),
                completion_hash=os.urandom(32),
                complete_within=timedelta(hours=1),
            )
            for task in tasks
        ]
        counts = BreakerCounts(self.store, lambda: self.cache.breaker_lambdas)
        counts.note(results, (await set_results(self.store, results)).verdicts)
        await counts.run_once()

    async def judge(self):
        judged = await breakers.judge_breakers(self.store, [LAMBDA, f"{LAMBDA}@2"])
        await self.cache.run_once()
        return [moved.state for moved in judged.moved]


@pytest.fixture
async def guarded(store, task_states, clock):
    await task_states.register()
    await whole.put_breaker(store, NewBreaker(LAMBDA, 0.5, 10, MINUTE, PAUSE, 3, "ann", "a test"))
    made = Lambda(store, GateCache(store))
    await made.cache.run_once()
    await clock.tick(SECOND)  # a second counts as a whole
    return made


@pytest.mark.parametrize("ended_as", [Outcome.SUCCESS, Outcome.COMPLETE_LATER])
async def test_a_bad_deploy_is_paused_probed_and_resumed(store, guarded, clock, ended_as):
    await guarded.schedule(50)
    await guarded.end(await guarded.claim(12), failed=True)

    assert await guarded.judge() == [State.OPEN]
    (gate,) = await gates.list_gates(store)
    assert (gate.gate.name, gate.gate.owner) == (f"breaker:{LAMBDA}", "breaker")
    assert gate.gate.reason == "12 of 12 runs failed"
    assert await guarded.claim() == []

    await clock.tick(PAUSE)
    assert await guarded.judge() == [State.HALF_OPEN]
    probes = await guarded.claim()
    assert len(probes) == 3
    assert await guarded.claim() == []
    await guarded.end(probes, ended_as=ended_as)

    assert await guarded.judge() == [State.CLOSED]
    assert await gates.list_gates(store) == []
    assert len(await guarded.claim()) == 50 - 12 - 3


async def test_probes_that_fail_open_it_again_and_the_next_probes_are_others(guarded, clock):
    await guarded.schedule(50)
    await guarded.end(await guarded.claim(12), failed=True)
    await guarded.judge()
    await clock.tick(PAUSE)
    await guarded.judge()
    failing = await guarded.claim()
    await guarded.end(failing, failed=True)

    assert await guarded.judge() == [State.OPEN]
    await clock.tick(timedelta(hours=2))  # the failed ones are due again
    assert await guarded.judge() == [State.HALF_OPEN]
    assert len(await guarded.claim()) == 3


async def test_failures_of_other_lambdas_and_snoozes_do_not_count(store, guarded, task_states):
    await task_states.register("report.make")
    await guarded.schedule(20, "report.make")
    picks = [Pick(QueueKey("report.make", Priority.NORMAL), 20, 0)]
    others = await claims.claim_work(store, picks, [Caller("host", os.urandom(14))], 20, CLAIM_TIMEOUT)
    await guarded.end(others.tasks, failed=True)

    assert await guarded.judge() == []
    assert (await breakers.list_breakers(store))[0].ended == 0


async def test_failures_that_left_the_window_do_not_open_it(guarded, clock):
    await guarded.schedule(20)
    await guarded.end(await guarded.claim(9), failed=True)
    await clock.tick(MINUTE + SECOND)
    await guarded.end(await guarded.claim(3), failed=True)

    assert await guarded.judge() == []


class NoGuard:
    """Reclaims at any time: it would take the ticks of the test's clock for steps of Postgres's."""

    looked_at = None

    def take(self, _found):
        """Whatever the leases are."""

    def on_change(self, changed):
        """Never."""

    async def left(self, _connection):
        return timedelta()


async def silence(guarded, clock):
    """Let the holders of all claims fall silent, and handle that as a Store Consumer does."""
    await clock.tick(CLAIM_TIMEOUT + SECOND)
    config = LiveConfig(guarded.store, StoreConsumerSettings(reclaim_rate=10_000))
    timeouts = Timeouts(guarded.store, NoGuard(), config, lambda: guarded.cache.breaker_lambdas)
    found, _ = await timeouts.handle_due(asyncio.get_running_loop().time())
    return found


async def test_runs_whose_holders_fell_silent_open_a_breaker(guarded, clock):
    await guarded.schedule(20)
    await guarded.claim(12)

    found = await silence(guarded, clock)

    assert len(found.silent) == 12
    (breaker,) = await breakers.list_breakers(guarded.store)
    assert (breaker.ended, breaker.failed) == (12, 12)
    assert await guarded.judge() == [State.OPEN]


async def test_a_run_that_is_quarantined_for_silence_counts_and_one_that_was_cancelled_does_not(
    guarded, clock, store
):
    await store.run(Statement("strict", "update lambda set max_crashes = 1 returning name"), {})
    await guarded.schedule(2)
    one, other = await guarded.claim(2)
    await tasks.cancel_tasks(store, [other.task_id])

    found = await silence(guarded, clock)

    assert (found.silent, found.ended) == ((one.task_id,), 2)
    (breaker,) = await breakers.list_breakers(store)
    assert (breaker.ended, breaker.failed) == (1, 1)


async def test_a_probe_whose_holder_fell_silent_opens_the_breaker_again_and_runs_from_before_do_not(
    guarded, clock
):
    await guarded.schedule(50)
    lost = await guarded.claim(5)  # of the bad deploy
    await guarded.end(await guarded.claim(12), failed=True)
    assert await guarded.judge() == [State.OPEN]
    await clock.tick(PAUSE)
    assert await guarded.judge() == [State.HALF_OPEN]

    found = await silence(guarded, clock)
    assert {*found.silent} == {task.task_id for task in lost}
    assert (await guarded.judge(), len(await guarded.claim())) == ([], 3)
    await silence(guarded, clock)

    assert await guarded.judge() == [State.OPEN]


async def test_a_probe_that_was_replaced_before_its_silence_was_noticed_counts(guarded, clock):
    await guarded.schedule(50)
    await guarded.end(await guarded.claim(12), failed=True)
    await guarded.judge()
    await clock.tick(PAUSE)
    await guarded.judge()
    assert len(await guarded.claim()) == 3
    await clock.tick(PAUSE)
    assert await guarded.judge() == []  # other probes are let through

    await silence(guarded, clock)

    assert await guarded.judge() == [State.OPEN]


async def test_each_move_is_in_the_audit_log(store, guarded):
    await guarded.schedule(12)
    await guarded.end(await guarded.claim(12), failed=True)
    await guarded.judge()

    (event,) = await audit.list_events(store, before=2**62, limit=10, actor="breaker")
    assert event.entry.method == "GateService/Breaker"
    assert '"to": "open"' in event.entry.request


async def test_probes_that_starve_are_replaced_and_the_audit_log_has_changes_only(store, guarded, clock):
    await guarded.schedule(30)
    await guarded.end(await guarded.claim(12), failed=True)
    await guarded.judge()
    await clock.tick(PAUSE)
    await guarded.judge()
    first = await guarded.claim()

    await clock.tick(PAUSE)
    moved = await guarded.judge()
    others = await guarded.claim()

    assert (moved, len(first), len(others)) == ([], 3, 3)
    events = await audit.list_events(store, before=2**62, limit=10, actor="breaker")
    assert [json.loads(event.entry.request)["to"] for event in events] == ["half_open", "open"]


async def test_removing_a_breaker_removes_its_gate(store, guarded):
    await guarded.schedule(12)
    await guarded.end(await guarded.claim(12), failed=True)
    await guarded.judge()

    assert await breakers.delete_breakers(store, [LAMBDA, "unknown"]) == {LAMBDA}
    assert await gates.list_gates(store) == []


async def test_nothing_is_judged_while_somebody_changes_gates_who_would_wait_for_the_breaker(store, guarded):
    await guarded.schedule(12)
    await guarded.end(await guarded.claim(12), failed=True)

    async with store.connection() as operator, operator.transaction():
        await gates.change_gates(operator)
        assert await guarded.judge() == []
        await operator.execute("update breaker set reason = 'changed'")

    assert await guarded.judge() == [State.OPEN]


async def test_what_was_not_written_now_does_not_count_and_nothing_is_written_without_breakers(store):
    counts = BreakerCounts(store, lambda: frozenset({LAMBDA}))
    result = Result(new_task_id().bytes, os.urandom(16), Outcome.FATAL_FAILURE)
    counts.note([result, result], [Applied.LOST, Applied.ALREADY_APPLIED])
    assert counts._noted == []

    none = BreakerCounts(store, frozenset)
    none.note([result], [Applied.APPLIED])
    assert none._noted == []


async def test_who_has_nothing_to_write_of_a_quiet_cell_rests_until_there_is_something(store):
    pace = Pace(60 * SECOND)
    counts = BreakerCounts(store, lambda: frozenset({LAMBDA}), pace)
    failure = Result(new_task_id().bytes, os.urandom(16), Outcome.FATAL_FAILURE)
    assert await counts.run_once() == SECOND, "nobody listens"
    counts.note([failure], [Applied.APPLIED])
    assert not counts.wake.is_set(), "it comes within a second"
    await counts.run_once()

    with pace.listening():
        assert await counts.run_once() == 60 * SECOND
        counts.note([failure], [Applied.LOST])
        assert not counts.wake.is_set()
        counts.note([failure], [Applied.APPLIED])

        assert counts.wake.is_set()
        assert await counts.run_once() == SECOND
    assert counts._noted == []


async def test_the_gauge_shows_a_breaker_while_it_is_open_or_half_open(guarded, clock):
    loop = BreakerLoop(guarded.store, guarded.cache, lambda: [LAMBDA], lambda *_: None)

    async def shown():
        await loop.run_once()
        await guarded.cache.run_once()
        return REGISTRY.get_sample_value("duly_breaker_open", {"lambda": LAMBDA}) or 0

    await guarded.schedule(50)
    assert await shown() == 0
    await guarded.end(await guarded.claim(12), failed=True)
    assert await shown() == 1
    await clock.tick(PAUSE)
    assert await shown() == 1
    await guarded.end(await guarded.claim())
    assert await shown() == 0


async def test_a_breaker_in_a_state_that_only_a_newer_release_knows_is_left_alone(guarded, store):
    await guarded.schedule(12)
    await guarded.end(await guarded.claim(12), failed=True)
    async with store.connection() as connection:
        await connection.execute("alter table breaker drop constraint breaker_state_check")
        await connection.execute("update breaker set state = 'disabled'")

    assert await guarded.judge() == []
    assert (await breakers.list_breakers(store))[0].state == "disabled"
