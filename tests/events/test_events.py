"""Sending events from the wire, the SDK and the shell, against a Frontend that serves."""

import asyncio
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

import duly
from duly_core.results.store import set_results
from duly_core.tasks import polling
from duly_wire.enums import HistoryKind, ReasonKind
from duly_wire.v1 import events_pb2
from tests.events.test_store_events import many_that_wait, wait, waits_for
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.services import refusal
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, LAMBDA, SECOND

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("changed", "field", "words"),
    [
        ({"key": ""}, "key", "1 to 255 bytes"),
        ({"key": "é" * 128}, "key", "1 to 255 bytes"),
        ({"key": "a\x00"}, "key", "NUL"),
        ({"namespace": "no space"}, "namespace", "before '/'"),
        ({"event_id": "x" * 256}, "event_id", "0 to 255 bytes"),
        ({"value": b"x" * (64 * 1024 + 1)}, "value", "65,537 bytes exceed 65,536"),
        ({"value_encoding": 4}, "value_encoding", "ENCODING_JSON"),
        ({"value_encoding": 99}, "value_encoding", "ENCODING_JSON"),
        ({"value_encoding": 3, "value": b"{}"}, "value", "D0 01"),
    ],
)
async def test_what_is_wrong_with_an_event_is_named_and_changes_nothing(
    client, task_states, processing_task, changed, field, words
):
    await wait(task_states.store, processing_task, "approved")
    asked = events_pb2.NewEvent(**{"key": "approved"} | changed)
    stub = client._caller.events

    bad, good = (
        await stub.SendEvents(events_pb2.SendEventsRequest(events=[asked, events_pb2.NewEvent(key="other")]))
    ).results

    assert bad.error.field == field
    assert words in bad.error.message
    assert not good.HasField("error")
    assert await task_states.status(processing_task.task_id) == "waiting"


async def test_a_call_has_one_to_a_thousand_events(client):
    one = events_pb2.NewEvent(key="approved")
    stub = client._caller.events

    for events in [], [one] * 1_001:
        refused = await refusal(stub.SendEvents(events_pb2.SendEventsRequest(events=events)))

        assert "events: there must be 1 to 1,000" in refused.message


async def test_a_client_sends_an_event_once_and_sees_who_waits_and_what_is_kept(
    client, task_states, processing_task
):
    await wait(task_states.store, processing_task, "approved", timeout=HOUR)

    waiting = await client.get_event_key("approved")
    sent = await client.send_event("approved", {"by": "ann"}, event_id="1")
    again = await client.send_event("approved", {"by": "ann"}, event_id="1")
    kept = await client.get_event_key("approved")
    keys = [key async for key in client.event_keys()]

    task_id = str(UUID(bytes=processing_task.task_id))
    assert [(each.task_id, each.lambda_name) for each in waiting.waiters] == [(task_id, LAMBDA)]
    assert (sent.receivers, sent.is_repeated, again.receivers, again.is_repeated) == (1, False, 0, True)
    assert ([each.value for each in kept.events], kept.waiters) == ([{"by": "ann"}], ())
    assert [(each.key, each.event_count) for each in keys] == [("approved", 1)]
    assert (await client.get(task_id)).status is duly.TaskStatus.NEW


async def test_a_sender_does_not_wait_for_the_crowd_of_another(client, task_states, dsn):
    ids = await many_that_wait(task_states, 501, "open")
    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute("select from task_assoc where task_id = %s for update", [UUID(bytes=max(ids))])
        crowd = asyncio.create_task(client.send_event("open", 1))
        await until_a_statement_waits_for_a_lock(dsn)
        other = await asyncio.wait_for(client.send_event("other", 1), 20)
        is_waiting = not crowd.done()
    given = await crowd

    assert (other.receivers, is_waiting, given.receivers) == (0, True, 501)


async def test_a_full_key_and_a_large_value_are_errors_of_the_sdk(client):
    await client.send_events(duly.NewEvent("full", number) for number in range(1_000))

    with pytest.raises(duly.QuotaExceededError, match="1,000 events of this key"):
        await client.send_event("full")
    with pytest.raises(duly.PayloadTooLargeError):
        await client.send_event("other", "x" * 65_536)
    with pytest.raises(duly.EncodingError):
        await client.send_event("other", object())


async def test_people_see_which_event_a_task_waits_for_and_what_came_of_it(client, task_states, clock):
    task, other = await task_states.processing(), await task_states.processing()
    await set_results(task_states.store, [waits_for(task, "approved"), waits_for(other, "never")])
    task_id, other_id = (UUID(bytes=each.task_id).hex for each in (task, other))

    waiting = await client.explain(task_id)
    seen = await client.get(task_id)
    await client.send_event("approved", "secret")
    received = await client.explain(task_id)
    await clock.tick(HOUR + SECOND)
    await polling.handle_timeouts(task_states.store, None, ENQUEUE_TIMEOUT, 100)
    late = await client.explain(other_id)

    (reason,) = waiting.reasons
    assert reason.kind is ReasonKind.EVENT
    assert reason.text.startswith("it waits for the event approved, for another 59 min")
    assert (
        reason.action
        == "send it with the value that its callback expects, such as true: `duly events send approved true`"
    )
    assert abs(reason.until_at - reason.since_at - HOUR) < SECOND / 10
    assert (seen.status, seen.parked_on) == (duly.TaskStatus.WAITING, "event:approved")
    assert seen.attempts[0].outcome is duly.AttemptOutcome.WAITED
    kinds = [event.kind for event in received.history]
    assert kinds[-2:] == [HistoryKind.EVENT_AWAITED, HistoryKind.EVENT_RECEIVED]
    assert late.history[-1].kind is HistoryKind.EVENT_TIMED_OUT
    assert late.history[-1].reason == "an event did not come in time: never"
    for told in (waiting, received, late):
        assert "secret" not in repr(told)


async def test_the_command_sends_events_and_shows_them(run_duly, task_states, processing_task):
    await wait(task_states.store, processing_task, "approved")

    listed = await run_duly("events", "list")
    shown = await run_duly("events", "get", "approved")
    sent = await run_duly("events", "send", "approved", '{"by": "ann"}', "--id", "1")
    again = await run_duly("events", "send", "approved", "null", "--id", "1")
    kept = await run_duly("events", "send", "other", "-", "--raw", stdin="bytes")
    after = await run_duly("events", "get", "approved")

    assert "approved  0" in listed.stdout
    assert f"waits  {UUID(bytes=processing_task.task_id)}  mail.send, until " in shown.stdout
    assert sent.stdout == "approved: sent, 1 task runs\n"
    assert again.stdout == "approved: this event was sent before; nothing was done\n"
    assert kept.stdout == "other: sent; no task waits for it yet, and it is kept for one that does\n"
    assert 'kept  {"by": "ann"}  sent ' in after.stdout
