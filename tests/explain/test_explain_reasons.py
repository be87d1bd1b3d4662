"""Why a task does not run, for each status and each thing that it may wait for."""

import os
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

import duly
from duly_core.explain import reads as explain_reads
from duly_core.explain import turns as explain_turns
from duly_core.gates.cache import GateCache
from duly_core.lambdas.names import QueueKey
from duly_core.results.store import set_results
from duly_core.tasks import claims
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.task import ReleasedClaim, Result, TaskHeartbeat
from duly_core.tasks.turns import TurnGiver, find_fair_lambdas
from duly_frontend.explain import turns as frontend_turns
from duly_store_consumer.gate_loop import GateLoop
from duly_wire.enums import FailureKind, Outcome, Priority, ReasonKind
from duly_wire.ids import new_task_id_text
from duly_wire.v1 import fleet_pb2, fleet_pb2_grpc
from tests.fixtures.graph_states import claim_work, end
from tests.fixtures.task_states import CLAIM_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, SECOND

DATABASE = "database"
MINUTE = timedelta(minutes=1)


@pytest.fixture
async def registered(task_states, fleet):
    """A lambda that a live host serves."""
    await task_states.register(max_attempts=5)
    await fleet.ReportHost(a_report("rack-1:1:a", "rack-1", LAMBDA, interval=600))
    return task_states


def text_of(task_id: bytes) -> str:
    return str(UUID(bytes=task_id))


async def pick(task_states, most=100, holder="host-1"):
    picks = [Pick(QueueKey(LAMBDA, priority), most, 0) for priority in Priority]
    work = await claims.claim_work(
        task_states.store, picks, [Caller(holder, os.urandom(14))], most, CLAIM_TIMEOUT
    )
    return work.tasks


async def write(task_states, task, outcome, **fields):
    failed = {} if outcome in (Outcome.SUCCESS, Outcome.SNOOZED) else {"failure_kind": FailureKind.CALLBACK}
    await set_results(task_states.store, [Result(task.task_id, task.token, outcome, **failed, **fields)])


def kinds(explanation):
    return [reason.kind for reason in explanation.reasons]


async def only(client, task):
    """The one reason of a task."""
    (reason,) = (await client.explain(task)).reasons
    return reason


async def test_a_task_whose_time_has_not_come_is_due_later(client, registered):
    due_at = datetime.now(UTC) + MINUTE
    task = await client.schedule(LAMBDA, at=due_at)

    explanation = await client.explain(task)

    (reason,) = explanation.reasons
    assert (reason.kind, reason.until_at) == (ReasonKind.DUE_LATER, due_at)
    assert reason.text.startswith("it is due in 59 s")
    assert (explanation.task_id, explanation.lambda_name) == (task.task_id, LAMBDA)
    assert (explanation.status, explanation.priority) == (duly.TaskStatus.NEW, duly.Priority.NORMAL)


async def test_an_unknown_task_is_not_found(client, registered):
    with pytest.raises(duly.TaskNotFoundError):
        await client.explain(new_task_id_text())
    with pytest.raises(duly.InvalidTaskError):
        await client.explain("nonsense")


async def test_a_task_that_is_due_now_is_about_to_be_picked_and_later_waits_for_a_slot(
    client, registered, clock
):
    task = await client.schedule(LAMBDA)

    at_once = await only(client, task)
    await clock.tick(10 * SECOND)
    waited = await only(client, task)

    assert (at_once.kind, waited.kind) == (ReasonKind.READY, ReasonKind.READY)
    assert "about to be picked" in at_once.text
    assert "it has been due for 10 s" in waited.text


async def test_a_lambda_whose_due_tasks_nobody_claims_has_no_host(client, task_states, clock):
    task = await client.schedule(LAMBDA)

    (nobody,) = (await client.explain(task)).reasons
    (first,) = await pick(task_states)
    await client.schedule(LAMBDA)
    late = await client.schedule(LAMBDA)
    await clock.tick(timedelta(seconds=10))
    served = await client.explain(late)

    assert nobody.kind is ReasonKind.NO_HOST
    assert "no host reports itself, none is known to have claimed a task of mail.send" in nobody.text
    assert first.task_id.hex() in task.task_id.replace("-", "")
    assert kinds(served) == [ReasonKind.BACKLOG]


async def test_tasks_before_it_are_counted_and_its_wait_is_predicted_by_the_rate_of_claims(
    client, registered, clock
):
    for _ in range(40):
        await registered.new()
    for _ in range(20):
        await write(registered, (await pick(registered, 1))[0], Outcome.SUCCESS)
    await clock.tick(10 * SECOND)
    await registered.new(priority=Priority.HIGH)
    task = await client.schedule(LAMBDA)

    reason = (await client.explain(task)).reasons[-1]

    assert reason.kind is ReasonKind.BACKLOG
    assert (reason.count, reason.is_estimated) == (20, False)
    assert "20 tasks of mail.send are before it, and 1 task of higher priorities" in reason.text
    assert reason.predicted_wait is not None
    # 20 claims in a little more than 10 s
    assert timedelta(seconds=10) <= reason.predicted_wait < timedelta(seconds=30)


async def test_turns_are_named_if_the_keys_of_its_lambda_take_turns(client, registered, store, clock):
    await registered.new(fair_key="later", delay=MINUTE)
    for key in ("ada", "ada", "ada", "bob", "cyd", None):
        await registered.new(fair_key=key)
    late = await client.schedule(LAMBDA, fair_key="ada")
    new = await client.schedule(LAMBDA, fair_key="dan")
    await find_fair_lambdas(store)
    await TurnGiver(store).run_once([LAMBDA])
    await client.set_fair_weights(LAMBDA, {"ada": 2})

    behind, first = [(await client.explain(task)).reasons[-1] for task in (late, new)]

    assert (behind.kind, first.kind) == (ReasonKind.BACKLOG, ReasonKind.BACKLOG)
    assert (behind.count, first.count) == (3, 0)
    assert behind.text == (
        "key 'ada' has 3 due tasks before this one; 4 other keys take turns with it; 2 tasks of it start in its turn"
    )
    assert first.text == "it is the next task of key 'dan'; 4 other keys take turns with it"


async def test_a_long_queue_of_a_key_is_counted_up_to_a_bound(client, registered, store, monkeypatch):
    for name, most in (("MOST_COUNTED", 2), ("MOST_KEYS", 3)):
        monkeypatch.setattr(explain_turns, name, most)
    monkeypatch.setattr(frontend_turns, "MOST_COUNTED", 2)
    for key in ("ada", "ada", "ada", "ada", "bob", "cyd", "dan", "eve"):
        await registered.new(fair_key=key)
    task = await client.schedule(LAMBDA, fair_key="ada")
    await find_fair_lambdas(store)

    reason = (await client.explain(task)).reasons[-1]

    assert (reason.count, reason.is_estimated) == (2, True)
    assert reason.text.startswith(
        "key 'ada' has more than 2 due tasks before this one; more than 2 other keys take turns"
    )


async def test_a_long_backlog_is_estimated_and_says_so(client, registered, dsn, monkeypatch):
    monkeypatch.setattr(explain_reads, "MOST_COUNTED", 50)
    for _ in range(120):
        await registered.new()
    task = await client.schedule(LAMBDA)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("analyze task_assoc")

    reason = (await client.explain(task)).reasons[-1]

    assert reason.kind is ReasonKind.BACKLOG
    assert reason.is_estimated
    assert reason.text.startswith("about ")
    assert reason.count is not None
    assert 50 <= reason.count <= 400


async def test_a_task_that_expires_says_when_and_that_it_expired(client, registered, clock):
    expires_at = datetime.now(UTC) + MINUTE
    task = await client.schedule(LAMBDA, expires_at=expires_at)

    before = await client.explain(task)
    await clock.tick(2 * MINUTE)
    after = await client.explain(task)

    assert before.reasons[-1].kind is ReasonKind.EXPIRES
    assert before.reasons[-1].until_at == expires_at
    assert after.reasons[0].kind is ReasonKind.ENDS_SOON


async def test_a_retry_waits_for_its_backoff_and_says_what_failed(client, registered):
    task = await client.schedule(LAMBDA)
    (claimed,) = await pick(registered)
    await write(
        registered,
        claimed,
        Outcome.RETRIABLE_FAILURE,
        failure_message="no route to host",
        retry_after=MINUTE,
    )

    reason = await only(client, task)

    assert (reason.kind, reason.count, reason.limit) == (ReasonKind.BACKOFF, 1, 5)
    assert "it failed 1 of 5 times; it runs again in" in reason.text
    assert "no route to host" in reason.text


async def test_a_task_behind_others_in_its_session_names_their_number_and_the_first(client, registered):
    first = await client.schedule(LAMBDA, session="vlan-7")
    for _ in range(3):
        await client.schedule(LAMBDA, session="vlan-7")
    last = await client.schedule(LAMBDA, session="vlan-7")

    reason = await only(client, last)

    assert (reason.kind, reason.count, reason.session) == (ReasonKind.SESSION, 4, "vlan-7")
    assert [task.task_id for task in reason.tasks] == [first.task_id]
    assert reason.tasks[0].status is duly.TaskStatus.NEW
    assert f"duly explain {first.task_id}" in reason.action


async def test_a_blocked_session_names_the_task_that_failed(client, registered):
    first = await client.schedule(LAMBDA, session=duly.Session("vlan-7", on_failure=duly.SessionPolicy.BLOCK))
    second = await client.schedule(LAMBDA, session="vlan-7")
    await registered.end_all_that_may_run(Outcome.FATAL_FAILURE)

    reason = await only(client, second)

    assert (reason.kind, reason.session) == (ReasonKind.SESSION_BLOCKED, "vlan-7")
    assert [task.task_id for task in reason.tasks] == [first.task_id]
    assert f"duly redrive {first.task_id}" in reason.action
    assert reason.since_at is not None


async def test_a_sessions_key_is_quoted_in_the_command_that_is_advised(client, registered):
    session = duly.Session("x; reboot", on_failure=duly.SessionPolicy.BLOCK)
    await client.schedule(LAMBDA, session=session)
    second = await client.schedule(LAMBDA, session="x; reboot")
    await registered.end_all_that_may_run(Outcome.FATAL_FAILURE)

    reason = await only(client, second)

    assert reason.action.endswith("`duly sessions unblock 'x; reboot'`")


async def test_the_advice_names_the_namespace_of_a_session(client, registered):
    await registered.register("shop/order.price", max_attempts=1)
    session = duly.Session("K", on_failure=duly.SessionPolicy.BLOCK)
    await client.schedule("shop/order.price", session=session)
    second = await client.schedule("shop/order.price", session="K")
    await registered.fail(await registered.take_of("shop/order.price"))

    reason = (await client.explain(second)).reasons[0]

    assert reason.session == "K"
    assert reason.action.endswith("`duly sessions unblock --namespace shop K`")


async def test_tasks_of_a_session_that_fails_with_one_say_that_they_end(client, registered):
    rest = duly.Session("vlan-7", on_failure=duly.SessionPolicy.FAIL_REST)
    await client.schedule(LAMBDA, session=rest)
    second = await client.schedule(LAMBDA, session=rest)
    await registered.end_all_that_may_run(Outcome.FATAL_FAILURE)

    reason = await only(client, second)

    assert reason.kind is ReasonKind.ENDS_SOON
    assert "a task before it in its session failed" in reason.text


async def test_a_node_of_a_graph_names_the_nodes_that_it_waits_for(client, registered):
    async with client.graph("discovery") as g:
        a = g.task(LAMBDA, label="a")
        b = g.task(LAMBDA, label="b")
        done = g.task(LAMBDA, label="done")
        last = g.task(LAMBDA, label="last", after=[a, b, done])
    nodes = {label: node.task_id for label, node in (await client.get_graph(g.scheduled)).nodes.items()}
    first = next(
        each for each in await claim_work(registered.store) if text_of(each.task_id) == nodes["done"]
    )
    await end(registered.store, [first])

    reason = await only(client, nodes["last"])

    assert last.label == "last"
    assert (reason.kind, reason.count, reason.graph_id) == (ReasonKind.GRAPH, 2, g.graph_id)
    assert [(task.label, task.task_id) for task in reason.tasks] == [("a", nodes["a"]), ("b", nodes["b"])]
    assert "it waits for 2 nodes of its graph: a, b" in reason.text


async def test_a_skipped_node_says_that_it_ends_and_then_how_it_ended(client, registered):
    async with client.graph("discovery") as g:
        a = g.task(LAMBDA, label="a")
        g.task(LAMBDA, label="alarm", after=a.failed)
    nodes = (await client.get_graph(g.scheduled)).nodes
    await end(registered.store, await claim_work(registered.store))

    reason = await only(client, nodes["alarm"].task_id)

    assert (reason.kind, reason.graph_id) == (ReasonKind.ENDS_SOON, g.graph_id)


async def test_a_parked_task_names_the_resource_its_use_and_who_holds_it(client, registered):
    await client.put_resource(DATABASE, 1, note="20 connections")
    first = await client.schedule(LAMBDA, resources=[DATABASE])
    await client.schedule(LAMBDA, resources=[DATABASE])
    third = await client.schedule(LAMBDA, resources=[DATABASE])
    await pick(registered)

    reason = await only(client, third)

    assert (reason.kind, reason.resource, reason.count, reason.limit) == (ReasonKind.RESOURCE, DATABASE, 1, 1)
    (holder,) = reason.tasks
    assert (holder.task_id, holder.lambda_name, holder.units) == (first.task_id, LAMBDA, 1)
    assert holder.held_since_at is not None
    assert "1 of 1 units of database are taken; 1 task of its lambda waits before it" in reason.text
    assert f"{first.task_id} ({LAMBDA}) has held 1 unit for 1 s" in reason.text


async def test_a_task_that_is_not_parked_yet_says_that_units_are_missing(client, registered):
    await client.put_resource("tenant", 0, per_key=True)
    task = await client.schedule(LAMBDA, resources=[duly.ResourceNeed("tenant", "acme")])

    explanation = await client.explain(task)

    assert kinds(explanation) == [ReasonKind.RESOURCE]
    assert explanation.reasons[0].resource == "tenant/acme"
    assert "it holds back every task that needs it" in explanation.reasons[0].text


async def test_the_quota_of_a_lambda_is_a_resource_that_its_tasks_do_not_name(client, registered):
    await client.put_resource(f"lambda:{LAMBDA}", 0)
    task = await client.schedule(LAMBDA)
    await pick(registered)

    reason = await only(client, task)

    assert (reason.kind, reason.resource) == (ReasonKind.RESOURCE, f"lambda:{LAMBDA}")


async def test_the_quota_of_a_namespace_is_a_resource_too(client, registered):
    await client.put_resource("namespace:default", 0)
    task = await client.schedule(LAMBDA)

    explanation = await client.explain(task)
    await pick(registered)
    reason = await only(client, task)

    assert explanation.reasons[0].resource == "namespace:default"
    assert (reason.kind, reason.resource) == (ReasonKind.RESOURCE, "namespace:default")


async def test_a_task_that_a_rate_puts_off_says_until_when(client, registered):
    await client.put_resource("mail", rate=duly.Rate(1, period=MINUTE))
    for _ in range(2):
        task = await client.schedule(LAMBDA, resources=["mail"])
    await pick(registered)

    reason = await only(client, task)

    assert reason.kind is ReasonKind.RATE
    assert reason.until_at == (await client.get(task)).next_trigger_at


async def test_a_deleted_lambda_is_named_before_anything_else(client, registered, dsn):
    task = await client.schedule(LAMBDA)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("delete from lambda")

    unknown = await only(client, task)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "insert into deleted_lambda values (%s, 'team', '1', 1, duly_now(), 'ann')", [LAMBDA]
        )
    deleted = await only(client, task)

    assert unknown.kind is ReasonKind.LAMBDA_UNKNOWN
    assert deleted.kind is ReasonKind.LAMBDA_DELETED
    assert "by ann" in deleted.text
    assert f"duly lambdas restore {LAMBDA}" in deleted.action


async def test_a_task_pinned_to_a_version_that_nobody_declared_says_so(client, registered, dsn):
    await registered.register(f"{LAMBDA}@7")
    task = await client.schedule(f"{LAMBDA}@7")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("delete from lambda_declaration")

    reason = await only(client, task)

    assert reason.kind is ReasonKind.VERSION_UNKNOWN
    assert "no host has declared version 7 of mail.send" in reason.text


async def test_an_enqueued_task_says_since_when_and_how_many_are_before_it(client, registered, clock):
    await registered.enqueued()
    await clock.tick(SECOND)
    task = await registered.enqueued()
    await clock.tick(3 * SECOND)

    explanation = await client.explain(text_of(task.task_id))

    enqueued, backlog = explanation.reasons
    assert (enqueued.kind, backlog.kind) == (ReasonKind.ENQUEUED, ReasonKind.BACKLOG)
    assert enqueued.since_at is not None
    assert enqueued.until_at == (await client.get(text_of(task.task_id))).next_trigger_at
    assert "3 s ago" in enqueued.text
    assert backlog.count == 1


async def test_a_claimed_task_names_its_holder(client, claimed_task):
    reason = await only(client, text_of(claimed_task.task_id))

    assert (reason.kind, reason.holder) == (ReasonKind.CLAIMED, "test-host")
    assert reason.since_at is not None


async def test_a_running_task_says_since_when_its_heartbeat_and_its_progress(client, task_states, clock):
    task = await task_states.processing()
    beat = TaskHeartbeat(task.task_id, task.token, 0.6, "page 6")
    await claims.heartbeat(task_states.store, [beat], HEARTBEAT_TIMEOUT)
    await clock.tick(3 * SECOND)
    await client.cancel(text_of(task.task_id))

    running, cancelled = (await client.explain(text_of(task.task_id))).reasons

    assert (running.kind, running.holder) == (ReasonKind.RUNNING, "test-host")
    assert "last heartbeat 3 s ago; 60 % done (page 6)" in running.text
    assert cancelled.kind is ReasonKind.CANCEL_REQUESTED


async def test_a_silent_holder_is_named_and_after_a_failover_the_grace(client, task_states, clock, dsn):
    task = await task_states.processing()
    await clock.tick(HEARTBEAT_TIMEOUT + 2 * SECOND)

    (silent,) = (await client.explain(text_of(task.task_id))).reasons
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("update store_epoch set changed_at = duly_now() - interval '5 s'")
    again = (await client.explain(text_of(task.task_id))).reasons

    assert (silent.kind, silent.holder) == (ReasonKind.HOLDER_SILENT, "test-host")
    assert [reason.kind for reason in again] == [ReasonKind.HOLDER_SILENT, ReasonKind.FAILOVER_GRACE]
    assert "for another 9 s" in again[1].text or "for another 10 s" in again[1].text


@pytest.mark.parametrize(
    ("outcome", "text", "action"),
    [
        (Outcome.SUCCESS, "it succeeded", ""),
        (Outcome.FATAL_FAILURE, "it failed for good", "duly redrive"),
    ],
)
async def test_a_task_that_ended_says_how_and_what_to_do(client, registered, outcome, text, action):
    task = await client.schedule(LAMBDA)
    (claimed,) = await pick(registered)
    fields = {"failure_message": "no such user"} if action else {}
    await write(registered, claimed, outcome, **fields)

    reason = await only(client, task)

    assert reason.kind is ReasonKind.ENDED
    assert text in reason.text
    assert reason.action.count("duly redrive") == bool(action)
    assert ("no such user" in reason.text) == bool(action)
    assert reason.since_at is not None


async def test_a_cancelled_task_says_so(client, registered):
    task = await client.schedule(LAMBDA, delay=MINUTE)
    await client.cancel(task)

    reason = await only(client, task)

    assert reason.kind is ReasonKind.ENDED
    assert "it was cancelled" in reason.text


async def test_a_gate_on_a_lambda_is_named_with_its_owner_its_reason_and_its_end(client, registered):
    await client.put_gate(
        "black-friday", duly.GateKind.PAUSE, LAMBDA, reason="too much mail", duration=MINUTE, owner="ann"
    )
    task = await client.schedule(LAMBDA, delay=MINUTE)

    due_later, gate = (await client.explain(task)).reasons

    assert due_later.kind is ReasonKind.DUE_LATER
    assert (gate.kind, gate.gate) == (ReasonKind.GATE, "black-friday")
    assert "the gate 'black-friday' holds it back, for another 59 s" in gate.text
    assert "by ann: too much mail" in gate.text
    assert gate.action.endswith("`duly gates delete black-friday`")
    assert gate.until_at is not None


async def test_a_gate_on_a_collection_parks_the_task_and_its_history_says_so(client, registered, store):
    await client.put_gate("spring", duly.GateKind.PAUSE, LAMBDA, collection="spring", owner="ann")
    task = await client.schedule(LAMBDA, collection="spring")
    cache = GateCache(store)
    await cache.run_once()
    loop = GateLoop(store, cache, lambda: [LAMBDA], lambda *_: None, has_queues=False)
    await loop.run_once()

    held = await client.explain(task)
    await client.delete_gate("spring")
    gone = await only(client, task)
    await cache.run_once()
    await loop.run_once()
    released = await client.explain(task)

    assert held.status is duly.TaskStatus.WAITING
    assert [(reason.kind, reason.gate) for reason in held.reasons] == [(ReasonKind.GATE, "spring")]
    assert (gone.kind, gone.gate) == (ReasonKind.GATE, "spring")
    assert "is gone: a Store Consumer releases it" in gone.text
    assert kinds(released) == [ReasonKind.READY]
    assert [event.kind for event in released.history] == [
        duly.HistoryKind.SCHEDULED,
        duly.HistoryKind.GATED,
        duly.HistoryKind.UNGATED,
    ]
    assert "spring" in released.history[1].reason


async def test_a_delay_gate_says_what_it_will_do_and_then_what_it_did(client, registered, store):
    await client.put_gate("slow", duly.GateKind.DELAY, LAMBDA, delay=MINUTE, owner="ann")
    task = await client.schedule(LAMBDA)
    cache = GateCache(store)
    await cache.run_once()
    loop = GateLoop(store, cache, lambda: [LAMBDA], lambda *_: None, has_queues=False)

    before = await only(client, task)
    await loop.run_once()
    after = await client.explain(task)

    assert "delays it by 1 min once it is due" in before.text
    assert kinds(after) == [ReasonKind.DUE_LATER]
    assert after.history[-1].kind is duly.HistoryKind.DELAYED


def a_report(host_id, name, served, interval=10):
    return fleet_pb2.ReportHostRequest(
        host_id=host_id,
        name=name,
        version="0.1.0",
        queue_backend="store",
        started_at=Timestamp(seconds=1_790_000_000),
        interval=Duration(seconds=interval),
        lambdas_digest=b"d" * 16,
        lambda_sets=[{"lambdas": [{"name": served, "version": "1"}]}],
    )


@pytest.fixture
def fleet(frontend):
    return fleet_pb2_grpc.FleetServiceStub(frontend.channel)


async def test_hosts_that_report_tell_whether_one_serves_the_lambda(client, task_states, fleet, clock):
    task = await client.schedule(LAMBDA)
    await fleet.ReportHost(a_report("other:1:a", "rack-2", "report.make"))
    nobody = (await client.explain(task)).reasons
    await fleet.ReportHost(a_report("rack-1:1:a", "rack-1", LAMBDA))
    served = await client.explain(task)
    await clock.tick(5 * MINUTE)
    silent = (await client.explain(task)).reasons

    assert [reason.kind for reason in nobody] == [ReasonKind.NO_HOST]
    assert nobody[0].text == "no live host serves mail.send"
    assert kinds(served) == [ReasonKind.READY]
    assert [reason.kind for reason in silent] == [ReasonKind.NO_HOST]
    assert "the last one, rack-1, is silent, and reported 5 min" in silent[0].text


async def test_a_callback_that_does_not_end_is_said_to_wait_for_its_neighbours(
    client, registered, clock, run_duly
):
    late, released = await registered.processing(), await registered.processing()
    for task in (late, released):
        beat = TaskHeartbeat(task.task_id, task.token, overdue_for=12 * SECOND, overdue_neighbours=3)
        await claims.heartbeat(registered.store, [beat], HEARTBEAT_TIMEOUT)
    forged = TaskHeartbeat(late.task_id, os.urandom(16), overdue_for=MINUTE, overdue_neighbours=9)
    await claims.heartbeat(registered.store, [forged], HEARTBEAT_TIMEOUT)
    await claims.release(registered.store, [ReleasedClaim(released.task_id, released.token)])

    explanation = await client.explain(text_of(late.task_id))
    task, again = await client.get(text_of(late.task_id)), await client.get(text_of(released.task_id))
    shown = (await run_duly("get", text_of(late.task_id))).stdout

    assert (
        "; over max_runtime, has not ended for 12 s: it waits for 3 neighbours in its process"
        in explanation.reasons[0].text
    )
    assert task.overdue_since_at is not None
    assert task.overdue_neighbours == 3
    assert "overdue neighbours  3" in shown
    assert again.overdue_since_at is None
