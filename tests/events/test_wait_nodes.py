"""Nodes of graphs that wait for an event and have no callback: served by the HSC, written and read by the SDK's client."""

import asyncio
import json
from datetime import timedelta

import pytest

import duly
from duly.callbacks.codec import event_of, head_of, payload_of, result_of, reveal, reveal_if_possible
from duly.encryption import AesGcm
from duly_cli.graphs import drawing
from duly_core.errors import OverloadedError, StoreUnavailableError
from duly_core.gates.cache import FixedGates
from duly_core.tasks import polling
from duly_hsc.wait_nodes import WaitNodes
from duly_store_consumer.live_config import LiveConfig
from duly_store_consumer.settings import StoreConsumerSettings
from duly_wire.encrypted_events import EncryptedEvents, SentValue, written
from duly_wire.encrypted_events import read as read_events
from duly_wire.enums import ReasonKind
from duly_wire.v1 import events_pb2, graphs_pb2, registry_pb2, task_pb2
from tests.fixtures.graph_states import claim_work, end
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, LAMBDA, SECOND

HOUR = timedelta(hours=1)


@pytest.fixture
def wait_nodes(hsc, task_states):
    return WaitNodes(task_states.store, hsc.servicer, asyncio.Event())


async def statuses(client, graph):
    nodes = (await client.get_graph(graph)).nodes
    return {label: node.status.name for label, node in nodes.items()}


@pytest.mark.parametrize("sent", ["before the release", "between the release and the wait", "after the wait"])
async def test_a_node_waits_for_its_event_whenever_that_is_sent_and_its_value_is_its_result(
    client, task_states, wait_nodes, sent
):
    store = task_states.store
    async with client.graph("order") as g:
        check = g.task(LAMBDA, label="check")
        g.task(LAMBDA, label="ship", after=g.wait("approval", after=check))
    key = f"{g.graph_id}/approval"

    if sent == "before the release":
        await client.send_event(key, {"approved": True})
    await end(store, await claim_work(store))
    if sent == "between the release and the wait":
        await client.send_event(key, {"approved": True})
    await wait_nodes.run_once()
    if sent == "after the wait":
        approval = await client.get(g.scheduled.task_ids["approval"])
        assert (approval.status.name, approval.parked_on) == ("WAITING", f"event:{key}")
        await client.send_event(key, {"approved": True})
    await wait_nodes.run_once()

    approval = await client.get(g.scheduled.task_ids["approval"])
    assert (approval.status.name, approval.result) == ("SUCCESS", {"approved": True})
    assert (await statuses(client, g.graph_id))["ship"] == "NEW"


@pytest.mark.parametrize(
    ("on_timeout", "ended", "follower"),
    [
        ("fail", ("FATAL_FAILURE", None, "EVENT_TIMEOUT"), "late"),
        ("succeed", ("SUCCESS", None, None), "next"),
        ("skip", ("DROPPED", None, "EVENT_TIMEOUT"), "skipped"),
    ],
)
async def test_a_wait_that_nobody_answers_fails_succeeds_or_is_skipped_and_a_redrive_waits_again(
    client, task_states, wait_nodes, clock, on_timeout, ended, follower
):
    async with client.graph("order") as g:
        approval = g.wait("approval", key="order-7", timeout=HOUR, on_timeout=on_timeout)
        g.task(LAMBDA, label="next", after=approval)
        g.task(LAMBDA, label="late", after=approval.failed)
        g.task(LAMBDA, label="skipped", after=approval.skipped)
    await wait_nodes.run_once()

    await clock.tick(HOUR + SECOND)
    await polling.handle_timeouts(task_states.store, None, ENQUEUE_TIMEOUT, 100)
    await wait_nodes.run_once()

    task = await client.get(g.scheduled.task_ids["approval"])
    kind = task.failure.kind.name if task.failure else None
    assert (task.status.name, task.result, kind) == ended
    assert (await statuses(client, g.graph_id))[follower] == "NEW"
    graph = await client.get_graph(g.graph_id)
    assert graph.nodes["next"].status.name == ("NEW" if on_timeout == "succeed" else "WAITING")
    if on_timeout == "fail":
        await client.redrive(task)
        await wait_nodes.run_once()
        assert (await client.send_event("order-7", 1)).receivers == 1


async def test_a_node_that_waits_ends_with_its_cancel_and_with_the_graph_that_fails_fast(
    client, task_states, wait_nodes
):
    store = task_states.store
    async with client.graph("order", fail_fast=True) as failing:
        failing.wait("approval")
        failing.task(LAMBDA, label="check")
    async with client.graph("order") as cancelled:
        cancelled.wait("approval")
    await wait_nodes.run_once()

    await client.cancel_graph(cancelled.graph_id)
    (check,) = await claim_work(store)
    await task_states.fail(check)
    await polling.handle_timeouts(store, None, ENQUEUE_TIMEOUT, 100)

    assert await statuses(client, cancelled.graph_id) == {"approval": "CANCELLED"}
    assert (await statuses(client, failing.graph_id))["approval"] == "DROPPED"


@pytest.mark.parametrize(
    ("needs", "result"),
    [
        ("first", {"key": "finance", "value": {"by": "ann"}}),
        ("all", {"legal": "é", "finance": {"by": "ann"}}),
    ],
)
async def test_a_node_waits_for_the_first_or_all_of_several_keys(
    client, task_states, wait_nodes, needs, result
):
    async with client.graph("order") as g:
        g.wait("approval", key=["legal", "finance"], needs=needs)
    await wait_nodes.run_once()

    await client.send_event("finance", {"by": "ann"})
    if needs == "all":
        await wait_nodes.serve(frozenset(("duly.wait",)), timedelta())
        await client.send_event("legal", "é")
    await wait_nodes.run_once()

    approval = await client.get(g.scheduled.task_ids["approval"])
    assert (approval.status.name, approval.result) == ("SUCCESS", result)


async def test_a_redrive_of_a_node_that_needs_all_waits_for_what_did_not_come(
    client, task_states, wait_nodes, clock
):
    async with client.graph("order") as g:
        g.wait("approval", key=["legal", "finance"], needs="all", timeout=HOUR)
    await wait_nodes.run_once()
    await client.send_event("finance", 1)
    await clock.tick(HOUR + SECOND)
    await polling.handle_timeouts(task_states.store, None, ENQUEUE_TIMEOUT, 100)
    await wait_nodes.run_once()
    late = await client.get(g.scheduled.task_ids["approval"])

    await client.redrive(late)
    await wait_nodes.run_once()
    await client.send_event("legal", 2)
    await wait_nodes.run_once()

    assert late.failure.message.startswith("no event legal came within")
    assert (await client.get(late)).result == {"legal": 2, "finance": 1}


@pytest.mark.parametrize(("value", "encoding"), [(b'1,"x":2', 1), (b"NaN", 1), (b"1e400", 1), (b"7", 2)])
async def test_a_value_that_is_no_json_makes_no_result_of_several_keys(
    client, task_states, wait_nodes, value, encoding
):
    async with client.graph("order") as g:
        g.wait("approval", key=["legal", "finance"])
    sent = events_pb2.NewEvent(key="legal", value=value, value_encoding=encoding)
    await client._caller.events.SendEvents(events_pb2.SendEventsRequest(events=[sent]))

    await wait_nodes.run_once()
    await wait_nodes.run_once()

    approval = await client.get(g.scheduled.task_ids["approval"])
    assert (approval.status.name, approval.failure.kind.name) == ("FATAL_FAILURE", "BAD_RESULT")


async def test_each_run_of_a_definition_waits_for_an_event_of_its_own(client, task_states, wait_nodes):
    graph = duly.NewGraph("order")
    graph.task(LAMBDA, {}, label="ship", after=graph.wait("approval"))
    await client.put_graph_definition(graph)
    first, second = [await client.run_graph("order", {"*": {"number": 7}}) for _ in range(2)]
    await wait_nodes.run_once()

    await client.send_event(f"{second.graph_id}/approval", True)
    await wait_nodes.run_once()

    assert await statuses(client, first) == {"ship": "WAITING", "approval": "WAITING"}
    assert await statuses(client, second) == {"ship": "NEW", "approval": "SUCCESS"}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"payload": b"{"}, "must be JSON"),
        ({"payload": b"7"}, "must be a JSON object"),
        ({"payload": b'{"timeout_seconds": 9, "other": 1}'}, "'other', which is unknown"),
        ({"payload": b"{}"}, "timeout_seconds must be a number"),
        ({"payload": b'{"timeout_seconds": 0}'}, "timeout_seconds must be"),
        ({"payload": b'{"timeout_seconds": NaN}'}, "timeout_seconds must be"),
        ({"payload": b'{"timeout_seconds": 1e999}'}, "timeout_seconds must be"),
        ({"payload": b'{"timeout_seconds": true}'}, "timeout_seconds must be"),
        ({"payload": json.dumps({"timeout_seconds": 9, "key": "é" * 128}).encode()}, "at most 255 bytes"),
        ({"payload": b'{"timeout_seconds": 9, "key": "\\ud800"}'}, "at most 255 bytes"),
        ({"payload": b'{"timeout_seconds": 9, "on_timeout": "stop"}'}, "fail, succeed, skip"),
        ({"payload": b'{"timeout_seconds": 9, "keys": []}'}, "1 to 16 keys"),
        ({"payload": b'{"timeout_seconds": 9, "keys": ["a", "a"]}'}, "each once"),
        ({"payload": b'{"timeout_seconds": 9, "keys": ["a", 7]}'}, "list of texts"),
        ({"payload": b'{"timeout_seconds": 9, "keys": "ab"}'}, "list of texts"),
        ({"payload": b'{"timeout_seconds": 9, "keys": ["a"], "key": "b"}'}, "both key and keys"),
        ({"payload": b'{"timeout_seconds": 9, "keys": ["a"], "needs": "most"}'}, "first, all"),
        ({"payload": b'{"timeout_seconds": 9, "needs": "all"}'}, "goes with keys"),
        ({"payload_encoding": task_pb2.ENCODING_RAW}, "must be JSON"),
        ({"lambda": "duly.wait@~eu"}, "no domain"),
        ({"lambda": "shop/duly.wait"}, "namespace"),
    ],
)
async def test_a_wait_that_is_invalid_is_refused_with_its_graph(client, task_states, changed, words):
    task = {"lambda": "duly.wait", "payload": b'{"timeout_seconds": 9}'} | changed
    nodes = [
        graphs_pb2.GraphNode(label="approval", task=task),
        graphs_pb2.GraphNode(label="ship", task={"lambda": LAMBDA}),
    ]

    answer = await client._caller.graphs.ScheduleGraph(
        graphs_pb2.ScheduleGraphRequest(name="order", nodes=nodes)
    )

    assert "approval" in answer.error.field
    assert words in answer.error.message
    assert not answer.task_ids


async def test_a_wait_in_a_namespace_that_is_no_name_is_refused(client, task_states):
    graph = duly.NewGraph("order")
    graph.wait("approval", namespace="no space")

    with pytest.raises(duly.InvalidTaskError, match="a namespace and"):
        await client.schedule_graph(graph)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"key": ""}, "1 to 255 bytes"),
        ({"key": "x" * 256}, "255 bytes"),
        ({"key": "a\0"}, "NUL"),
        ({"key": 7}, "one text"),
        ({"key": ["a", "a"]}, "each once"),
        ({"key": [str(each) for each in range(17)]}, "1 to 16 keys"),
        ({"key": ["a", ""]}, "1 to 255 bytes"),
        ({"key": ["a"], "needs": "most"}, '"first" or "all"'),
        ({"key": "a", "needs": "all"}, "list of keys"),
        ({"timeout": timedelta(0)}, "between 1 s"),
        ({"timeout": timedelta(days=366)}, "365 days"),
        ({"timeout": 9}, "timedelta"),
        ({"on_timeout": "stop"}, '"fail", "succeed" or "skip"'),
    ],
)
def test_the_sdk_names_what_is_wrong_with_a_wait(asked, words):
    with pytest.raises(duly.InvalidTaskError, match=words):
        duly.NewGraph("order").wait("approval", **asked)


async def test_what_no_node_could_serve_fails_for_good(client, task_states, wait_nodes):
    async with client.graph("order") as g:
        g.wait("approval")  # the first node that waits makes the lambda known
    no_key, no_wait = [
        await client.schedule("duly.wait", payload) for payload in ({"timeout_seconds": 9}, {"other": 1})
    ]

    await wait_nodes.run_once()
    await wait_nodes.run_once()

    ended = await client.get_many([no_key, no_wait])
    assert [each.failure.kind.name for each in ended] == ["BAD_PAYLOAD", "BAD_PAYLOAD"]


CODEC = AesGcm({"1": bytes(32)}, "1")


@pytest.mark.parametrize(
    ("asked", "result"),
    [
        ({"key": "finance"}, "secret"),
        ({"key": ["legal", "finance"]}, {"key": "finance", "value": "secret"}),
        ({"key": ["legal", "finance"], "needs": "all"}, {"legal": True, "finance": "secret"}),
    ],
    ids=["one", "first", "all"],
)
async def test_with_a_codec_the_server_sees_no_value_and_who_has_the_key_reads_the_result(
    client, frontend, task_states, wait_nodes, asked, result
):
    async with duly.AsyncClient(frontend.address, codec=CODEC) as owner:
        async with owner.graph("order") as g:
            g.task(LAMBDA, label="ship", after=g.wait("approval", **asked))
        await owner.send_event("finance", "secret")
        await wait_nodes.run_once()
        await client.send_event("legal", True)  # a person in the console, who has no key
        await wait_nodes.run_once()
        approval = g.scheduled.task_ids["approval"]
        stranger, reader = await client.get(approval), await owner.get(approval)

        assert reader.result == result
        assert b"secret" not in stranger.result_bytes
    (claimed,) = await claim_work(task_states.store)
    assert claimed.lambda_name == LAMBDA


def _wrapped(namespace, needs, *events):
    values = tuple(SentValue(key, encoding, data) for key, encoding, data in events)
    return written(EncryptedEvents(namespace, needs, values), head_of("1"))


def test_a_value_that_was_encrypted_for_another_key_is_no_result():
    sent = duly.NewEvent("order-8", True).to_proto(CODEC)
    own = _wrapped("", "", ("order-8", sent.value_encoding, sent.value))
    moved = _wrapped("", "", ("order-7", sent.value_encoding, sent.value))
    elsewhere = _wrapped("shop", "", ("order-8", sent.value_encoding, sent.value))
    bound_to = result_of(bytes(16))

    assert reveal(CODEC, own, task_pb2.ENCODING_ENCRYPTED, bound_to) == (b"true", task_pb2.ENCODING_JSON)
    for each in (moved, elsewhere, own[:-9], own[:20], own.replace(b'"needs":""', b'"needs":"x"')):
        with pytest.raises(duly.DecryptionError):
            reveal(CODEC, each, task_pb2.ENCODING_ENCRYPTED, bound_to)
    with pytest.raises(duly.DecryptionError):  # as a payload it is nothing
        reveal(CODEC, own, task_pb2.ENCODING_ENCRYPTED, payload_of(LAMBDA))
    with pytest.raises(duly.DecryptionError, match="key 1"):
        reveal(None, own, task_pb2.ENCODING_ENCRYPTED, bound_to)


def test_bytes_among_several_keys_are_no_result():
    sent = duly.NewEvent("a", b"\xff").to_proto(CODEC)
    wrapped = _wrapped("", "first", ("a", sent.value_encoding, sent.value))

    with pytest.raises(duly.DecryptionError, match="no JSON"):
        reveal(CODEC, wrapped, task_pb2.ENCODING_ENCRYPTED, result_of(bytes(16)))


@pytest.mark.parametrize("needs", ["first", "all"])
def test_a_number_that_json_cannot_have_among_several_keys_is_no_result(needs):
    sent = CODEC.encrypt(bytes([task_pb2.ENCODING_JSON]) + b"1e400", event_of("", "a"), b"")
    wrapped = _wrapped("", needs, ("a", task_pb2.ENCODING_ENCRYPTED, sent))

    with pytest.raises(duly.DecryptionError, match="no JSON"):
        reveal(CODEC, wrapped, task_pb2.ENCODING_ENCRYPTED, result_of(bytes(16)))


@pytest.mark.parametrize(
    "said",
    [
        '{"namespace": "", "needs": "", "events": [["a", 1e400, ""]]}',
        '{"namespace": "", "needs": "", "events": [["\\ud800", 1, ""]]}',
        '{"namespace": "", "needs": "", "events": [[7, 1, ""]]}',
        '{"namespace": "\\ud800", "needs": "", "events": [["a", 1, ""]]}',
        '{"namespace": null, "needs": "", "events": [["a", 1, ""]]}',
        '{"namespace": "", "needs": ["first"], "events": [["a", 1, ""]]}',
        '{"namespace": "", "needs": "", "events": 7}',
        "[]",
    ],
)
def test_what_a_callback_wrote_in_place_of_events_stays_unread_and_raises_nothing_else(said):
    data = head_of("1") + b"\0duly.events\0" + said.encode()
    bound_to = result_of(bytes(16))

    assert read_events(data) is None
    assert reveal_if_possible(CODEC, data, task_pb2.ENCODING_ENCRYPTED, bound_to) == (
        data,
        task_pb2.ENCODING_ENCRYPTED,
    )


def test_a_codec_leaves_what_a_node_waits_for_to_the_server():
    graph = duly.NewGraph("order")
    graph.task(LAMBDA, "secret", label="check")
    graph.wait("approval", key="order-7")

    check, approval = graph.to_proto(CODEC).nodes

    assert check.task.payload_encoding == task_pb2.ENCODING_ENCRYPTED
    assert json.loads(approval.task.payload)["key"] == "order-7"
    assert json.loads(graph.to_definition(CODEC)[1].task.payload)["key"] == "order-7"


async def test_what_could_not_be_written_is_handed_back(client, hsc, task_states, wait_nodes, monkeypatch):
    async with client.graph("order") as g:
        g.wait("approval")
    task = g.scheduled.task_ids["approval"]

    async def fail(*_: object) -> None:
        raise OverloadedError("too much")

    with monkeypatch.context() as patched:
        patched.setattr(hsc.servicer, "write", fail)
        with pytest.raises(OverloadedError):
            await wait_nodes.run_once()
    await wait_nodes.run_once()

    assert (await client.get(task)).status.name == "WAITING"


async def test_a_claim_whose_answer_was_lost_is_handed_back_and_counts_as_no_crash(
    client, hsc, task_states, wait_nodes, monkeypatch
):
    async with client.graph("order") as g:
        g.wait("approval")
    task = g.scheduled.task_ids["approval"]
    really = hsc.servicer.claim_for

    async def lose(*asked):
        await really(*asked)
        raise StoreUnavailableError("as the test said")

    with monkeypatch.context() as patched:
        patched.setattr(hsc.servicer, "claim_for", lose)
        with pytest.raises(StoreUnavailableError):
            await wait_nodes.run_once()
    assert (await client.get(task)).status.name == "CLAIMED"
    await wait_nodes.run_once()

    found = await client.get(task)
    assert (found.status.name, found.crashes) == ("WAITING", 0)


async def test_no_worker_declares_the_lambda_of_nodes_that_wait(frontend):
    request = registry_pb2.RegisterLambdasRequest(lambdas=[registry_pb2.Lambda(name="shop/duly.wait")])

    (result,) = (await frontend.registry.RegisterLambdas(request)).results

    assert result.error.field == "name"
    assert "Duly's own" in result.error.message


async def test_with_queues_the_store_consumer_leaves_these_nodes_to_the_hsc(client, task_states, wait_nodes):
    async with client.graph("order") as g:
        g.wait("approval")
    config = LiveConfig(task_states.store, StoreConsumerSettings(), FixedGates())

    await config.read(0)

    assert "duly.wait" in config.lambdas
    assert {queue.lambda_name for queue in config.queues} == {LAMBDA}


async def test_a_graph_tells_which_event_a_node_waits_for_since_when_and_until_when(
    client, task_states, wait_nodes, clock
):
    async with client.graph("order") as g:
        g.task(LAMBDA, label="ship", after=g.wait("approval", key=["a", "b"], timeout=HOUR))
    before = (await client.get_graph(g.graph_id)).nodes["approval"]
    await wait_nodes.run_once()

    graph = await client.get_graph(g.graph_id)
    nodes = graph.nodes
    lines = [*drawing.text(await client.get_graph(g.graph_id))]

    assert (before.awaited_events, before.awaited_since_at, before.awaited_until_at) == ("", None, None)
    assert nodes["approval"].awaited_events == "a, b"
    waited = nodes["approval"].awaited_until_at - nodes["approval"].awaited_since_at
    assert HOUR - SECOND < waited <= HOUR
    assert nodes["ship"].awaited_events == ""
    assert f"the event a, b since {nodes['approval'].awaited_since_at:%Y-%m-%d %H:%M:%S}Z, until" in lines[2]
    assert lines[3].endswith("approval")
    assert (nodes["approval"].runs, nodes["approval"].started_at) == (1, None)
    (step,) = graph.critical_path
    assert (step.label, step.open, step.ran) == ("approval", True, timedelta())


async def test_people_read_what_a_node_waits_for_and_are_not_told_to_start_a_worker(
    client, task_states, wait_nodes
):
    async with client.graph("order") as g:
        g.wait("approval", key="order-7")
    before = await client.explain(g.scheduled.task_ids["approval"])

    await wait_nodes.run_once()
    waiting = await client.explain(g.scheduled.task_ids["approval"])

    assert ReasonKind.NO_HOST not in {reason.kind for reason in before.reasons}
    assert "order-7" in waiting.reasons[0].text
