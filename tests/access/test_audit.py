"""The audit log has each call that changed something, and each that was refused; it has no payloads."""

import asyncio
import json
from datetime import timedelta

import grpc
import pytest

from duly_core.access import cache as access_cache
from duly_core.access import store as access
from duly_core.access.audit_entries import describe
from duly_core.access.audit_log import list_events
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_wire.ids import new_task_id_text
from duly_wire.v1 import (
    access_pb2,
    frontend_pb2,
    gates_pb2,
    gates_pb2_grpc,
    hsc_pb2,
    hsc_pb2_grpc,
    settings_pb2,
)
from tests.access.test_access import access_stub, give_token, guarded, guarded_hsc, headers, operator
from tests.fixtures.services import refusal
from tests.fixtures.task_states import LAMBDA

__all__ = ["guarded", "guarded_hsc"]


async def events(guarded, **wanted):
    request = access_pb2.ListAuditEventsRequest(**wanted)
    return (await access_stub(guarded).ListAuditEvents(request, metadata=headers())).events


async def test_a_change_is_kept_with_who_made_it_what_it_named_and_what_came_of_it(guarded, store):
    await operator(store)
    new = settings_pb2.NewSetting(name="store_consumer.poll_interval", value="700ms")
    await guarded.settings.SetSettings(settings_pb2.SetSettingsRequest(settings=[new]), metadata=headers())
    (event,) = await events(guarded)
    assert (event.actor, event.method, event.outcome) == ("shop", "SettingsService/SetSettings", "OK")
    assert json.loads(event.request) == {"settings": [{"name": new.name, "value": "700ms"}]}
    assert event.peer.startswith("ipv")
    assert '"700ms"' in event.answer


async def test_a_change_that_was_not_made_or_in_part_only_or_only_counted_does_not_look_like_one_that_was(
    guarded, store
):
    await operator(store)

    async def set_settings(**values):
        asked = [
            settings_pb2.NewSetting(name=f"store_consumer.{name}", value=value)
            for name, value in values.items()
        ]
        request = settings_pb2.SetSettingsRequest(settings=asked)
        await guarded.settings.SetSettings(request, metadata=headers())

    gates = gates_pb2_grpc.GateServiceStub(guarded.channel)
    scope = gates_pb2.GateScope(**{"lambda": LAMBDA})
    pause = gates_pb2.Gate(name="g", kind=gates_pb2.GATE_KIND_PAUSE, scope=scope)
    await set_settings(poll_interval="fast")
    await set_settings(poll_interval="700ms", batching_gap="often")
    await set_settings(poll_interval="800ms")
    await gates.PutGate(gates_pb2.PutGateRequest(gate=pause, dry_run=True), metadata=headers())
    await gates.DeleteGates(gates_pb2.DeleteGatesRequest(names=["none"]), metadata=headers())

    found = [(each.method.partition("/")[2], each.outcome) for each in await events(guarded)]

    assert found[::-1] == [
        ("SetSettings", "NOTHING_DONE"),
        ("SetSettings", "PARTLY_DONE"),
        ("SetSettings", "OK"),
        ("PutGate", "DRY_RUN"),
        ("DeleteGates", "NOTHING_DONE"),
    ]


async def test_a_refused_call_is_kept(guarded, store):
    await operator(store)
    await give_token(store, "duly_b_x", "mallory")
    await refusal(
        guarded.stub.CancelTask(frontend_pb2.CancelTaskRequest(task_ids=["x"]), metadata=headers("duly_b_x"))
    )
    await refusal(guarded.stub.ListTasks(frontend_pb2.ListTasksRequest()))
    anonymous, mallory = await events(guarded, refused=True)
    assert (mallory.actor, mallory.outcome) == ("mallory", "PERMISSION_DENIED")
    assert json.loads(mallory.request) == {"task_ids": ["x"]}
    assert (anonymous.actor, anonymous.outcome) == ("", "UNAUTHENTICATED")
    assert anonymous.request == ""


async def test_what_a_caller_without_a_role_sent_that_cannot_be_read_is_refused_and_kept_without_it(
    guarded, store
):
    await operator(store)
    await give_token(store, "duly_b_x", "mallory")
    cancel = guarded.channel.unary_unary("/duly.v1.FrontendService/CancelTask")

    refused = await refusal(cancel(b"\xff\xff\xff", metadata=headers("duly_b_x")))

    assert refused.code is grpc.StatusCode.PERMISSION_DENIED
    (event,) = await events(guarded, refused=True)
    assert (event.actor, event.request) == ("mallory", "")


async def test_what_callbacks_wrote_is_not_in_the_log_of_a_refused_call(guarded, guarded_hsc, store):
    await operator(store)
    await give_token(store, "duly_b_x", "mallory")
    stub = hsc_pb2_grpc.HscServiceStub(guarded_hsc.channel)
    secret = "card 4111"
    heartbeat = hsc_pb2.HeartbeatRequest(holder="h", items=[hsc_pb2.HeartbeatItem(progress_note=secret)])
    result = hsc_pb2.TaskResult(failure_message=secret, traceback=secret)

    for call, request in (
        (stub.Heartbeat, heartbeat),
        (stub.SetResults, hsc_pb2.SetResultsRequest(results=[result])),
    ):
        refused = await refusal(call(request, metadata=headers("duly_b_x")))
        assert refused.code is grpc.StatusCode.PERMISSION_DENIED

    found = await events(guarded, refused=True)
    assert {each.method for each in found} == {"HscService/Heartbeat", "HscService/SetResults"}
    assert all("left out" in each.request and secret not in each.request for each in found)


async def test_a_large_request_that_is_refused_is_not_read(guarded, store):
    await operator(store)
    await give_token(store, "duly_b_x", "mallory")
    asked = frontend_pb2.CancelTaskRequest(task_ids=[new_task_id_text()] * 2_000)

    await refusal(guarded.stub.CancelTask(asked, metadata=headers("duly_b_x")))

    (event,) = await events(guarded, refused=True)
    assert (event.actor, event.request) == ("mallory", "")


async def test_a_refused_stream_and_a_refused_call_on_a_stream_are_kept(
    guarded, guarded_hsc, store, monkeypatch
):
    await operator(store)
    await give_token(store, "duly_b_x", "mallory")
    stub = hsc_pb2_grpc.HscServiceStub(guarded_hsc.channel)
    await refusal(stub.Work(metadata=headers("duly_b_x")).read())
    await access.add_grants(store, [Grant("mallory", Role.HOST, "mail.*")])
    monkeypatch.setattr(access_cache, "FRESH", timedelta(0))
    stream = stub.Work(metadata=headers("duly_b_x"))
    claim = hsc_pb2.ClaimWorkRequest(lambdas=["bill.pay"], max_tasks=1, token_prefix=bytes(14), holder="h")
    await stream.write(hsc_pb2.WorkRequest(call=1, claim_work=claim))
    assert (await stream.read()).error.code == grpc.StatusCode.PERMISSION_DENIED.value[0]
    stream.cancel()
    on_stream, opening = await events(guarded, actor="mallory")
    assert (opening.method, opening.outcome) == ("HscService/Work", "PERMISSION_DENIED")
    assert (on_stream.method, on_stream.outcome) == ("HscService/ClaimWork", "PERMISSION_DENIED")


async def test_the_items_of_a_served_call_that_were_refused_are_one_event(guarded, store, task_states):
    await operator(store)
    await task_states.register()
    await give_token(store, "duly_b_x", "mallory")
    await access.add_grants(store, [Grant("mallory", Role.CLIENT, LAMBDA)])
    names = [LAMBDA, "bill.pay", "bill.pay", *(f"bill.number-{number}" for number in range(30))]
    request = frontend_pb2.ScheduleRequest(tasks=[new_task(name) for name in names])

    response = await guarded.stub.Schedule(request, metadata=headers("duly_b_x"))
    await guarded.stub.Schedule(
        frontend_pb2.ScheduleRequest(tasks=[new_task(LAMBDA)]), metadata=headers("duly_b_x")
    )

    assert [each.HasField("error") for each in response.results] == [False] + [True] * 32
    (event,) = await events(guarded, actor="mallory", refused=True)
    assert (event.method, event.outcome) == ("FrontendService/Schedule", "PERMISSION_DENIED")
    refused = json.loads(event.request)["items"]["may not schedule"]
    assert refused["bill.pay"] == 2
    assert refused["..."] == 30 - 19
    assert LAMBDA not in refused


async def test_refused_items_of_a_call_on_a_stream_are_one_event(guarded, store, task_states):
    await operator(store)
    await task_states.register()
    await give_token(store, "duly_b_x", "mallory")
    await access.add_grants(store, [Grant("mallory", Role.CLIENT, LAMBDA)])
    tasks = [new_task("bill.pay"), new_task("bill.pay"), new_task(LAMBDA)]
    stream = guarded.stub.ScheduleStream(metadata=headers("duly_b_x"))
    await stream.write(
        frontend_pb2.ScheduleStreamRequest(call=1, schedule=frontend_pb2.ScheduleRequest(tasks=tasks))
    )

    answer = await stream.read()

    stream.cancel()
    assert not answer.HasField("error")
    (event,) = await events(guarded, actor="mallory", refused=True)
    assert json.loads(event.request) == {"items": {"may not schedule": {"bill.pay": 2}}}


def new_task(name):
    return frontend_pb2.NewTask(task_id=new_task_id_text(), **{"lambda": name})


async def test_a_change_whose_caller_hangs_up_is_kept(guarded, store, monkeypatch):
    await operator(store)
    written, goes_on = asyncio.Event(), asyncio.Event()
    add_grants = access.add_grants

    async def add_and_wait(*arguments: object) -> int:
        added = await add_grants(*arguments)
        written.set()
        await goes_on.wait()
        return added

    monkeypatch.setattr(access, "add_grants", add_and_wait)
    grant = access_pb2.Grant(principal="eve", role=access_pb2.ROLE_CLIENT, pattern="*")
    call = access_stub(guarded).AddGrants(access_pb2.AddGrantsRequest(grants=[grant]), metadata=headers())
    await asyncio.wait_for(written.wait(), 10)
    call.cancel()
    async with asyncio.timeout(10):
        while not (kept := await events(guarded, method="AddGrants")):
            pass  # each look is a call
    assert [(event.actor, event.outcome) for event in kept] == [("shop", "CANCELLED")]
    assert "eve" in kept[0].request


async def test_events_are_found_by_actor_method_and_what_they_mention(guarded, store):
    await operator(store)
    for principal in ("ann", "bob"):
        grant = access_pb2.Grant(principal=principal, role=access_pb2.ROLE_CLIENT, pattern="*")
        await access_stub(guarded).AddGrants(access_pb2.AddGrantsRequest(grants=[grant]), metadata=headers())
    assert len(await events(guarded, method="AddGrants")) == 2
    assert len(await events(guarded, mentions="bob")) == 1
    assert await events(guarded, actor="nobody") == []
    page = access_pb2.ListAuditEventsRequest(page_size=1)
    first = await access_stub(guarded).ListAuditEvents(page, metadata=headers())
    page.page_token = first.next_page_token
    second = await access_stub(guarded).ListAuditEvents(page, metadata=headers())
    assert [first.events[0].event_id > second.events[0].event_id, second.next_page_token] == [True, ""]


async def test_where_nobody_is_asked_who_they_are_cancels_of_single_tasks_are_not_kept_and_settings_are(
    frontend, store, task_states
):
    await task_states.register()
    task = new_task(LAMBDA)
    await frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=[task]))
    cancelled = await frontend.stub.CancelTask(frontend_pb2.CancelTaskRequest(task_ids=[task.task_id]))
    many = frontend_pb2.CancelTasksRequest(**{"lambda": LAMBDA})
    await frontend.stub.CancelTasks(many)

    kept = await list_events(store, before=2**62, limit=10)

    assert not cancelled.results[0].HasField("error")
    assert [event.entry.method for event in kept] == ["FrontendService/CancelTasks"]


async def test_where_nobody_is_asked_who_they_are_kills_are_kept(frontend, store):
    await frontend.stub.CancelTask(frontend_pb2.CancelTaskRequest(task_ids=["x"], kill=True))

    (event,) = await list_events(store, before=2**62, limit=10)
    assert (event.entry.actor, event.entry.method) == ("", "FrontendService/CancelTask")


async def test_a_known_callers_cancel_of_a_single_task_is_kept(guarded, store):
    await operator(store)
    asked = frontend_pb2.CancelTaskRequest(task_ids=["x"], kill=True)
    await guarded.stub.CancelTask(asked, metadata=headers())

    (event,) = await events(guarded)
    assert (event.method, event.request) == ("FrontendService/CancelTask", '{"task_ids":["x"],"kill":true}')


async def test_the_log_is_for_auditors(guarded, store):
    await give_token(store)
    await access.add_grants(store, [Grant("shop", Role.OWNER, "*")])
    refused = await refusal(
        access_stub(guarded).ListAuditEvents(access_pb2.ListAuditEventsRequest(), metadata=headers())
    )
    assert refused.code is grpc.StatusCode.PERMISSION_DENIED


def test_no_payload_gets_into_a_description():
    task = frontend_pb2.NewTask(task_id="t", payload=b"secret")
    text = describe(frontend_pb2.ScheduleRequest(tasks=[task] * 30))
    assert "secret" not in text
    assert json.loads(text)["tasks"][20] == "and 10 more"


def test_a_description_is_bounded():
    task = frontend_pb2.NewTask(task_id="t" * 5_000, collection="c" * 100_000)
    assert len(describe(frontend_pb2.ScheduleRequest(tasks=[task] * 5_000))) < 9_000


def test_a_token_gets_into_no_description():
    assert "duly_a" not in describe(access_pb2.CreateTokenResponse(token="duly_a_secret", token_id="a"))


@pytest.mark.parametrize("request_", [{"page_size": 1_001}, {"page_token": "x"}, {"mentions": "\x00"}])
async def test_an_invalid_list_is_refused(guarded, store, request_):
    await operator(store)
    refused = await refusal(
        access_stub(guarded).ListAuditEvents(
            access_pb2.ListAuditEventsRequest(**request_), metadata=headers()
        )
    )
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
