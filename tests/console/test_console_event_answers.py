"""A person answers a task that waits, from its page."""

import json
from datetime import timedelta

import pytest

from duly_core.events import store as store_events
from duly_core.events.rules import EventWait
from duly_core.events.store import EventKeyId
from duly_core.results.store import set_results
from duly_core.tasks.task import Result
from duly_wire.enums import Outcome
from tests.console.test_console_pages import text_id
from tests.fixtures.console import browse

KEY = 'order "7"/<approved>'


async def waiting(task_states, *keys):
    """A task that waits for an event."""
    claimed = await task_states.claimed()
    wait = EventWait("answer", keys or (KEY,), False, timedelta(hours=2))
    await set_results(
        task_states.store, [Result(claimed.task_id, claimed.token, Outcome.WAIT_FOR_EVENT, event_wait=wait)]
    )
    return claimed


async def kept(store, key=KEY):
    found = await store_events.read_keys(store, [EventKeyId("", key)], 10)
    return [(json.loads(event.value), event.sent_by) for event in found[EventKeyId("", key)].events]


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ({"answer": "approve"}, True),
        ({"answer": "deny"}, False),
        ({"answer": "send", "value": '{"by": "ann"}'}, {"by": "ann"}),
    ],
    ids=["approve", "deny", "json"],
)
async def test_an_answer_lets_the_task_run(browser, store, task_states, form, value):
    task = await waiting(task_states)
    page = await browser.get(f"/tasks/{text_id(task.task_id)}")

    told = await browser.confirmed(f"/tasks/{text_id(task.task_id)}/answer", key=KEY, **form)

    assert "order &#34;7&#34;/&lt;approved&gt;" in page.text
    assert "The answer was sent." in told.text
    assert await task_states.status(task.task_id) == "new"
    assert await kept(store) == [(value, None)]


async def test_a_second_answer_is_refused_and_sends_nothing(browser, store, task_states):
    task = await waiting(task_states)
    path = f"/tasks/{text_id(task.task_id)}/answer"
    await browser.get(f"/tasks/{text_id(task.task_id)}")
    await browser.confirmed(path, key=KEY, answer="approve")

    again = await browser.post(path, key=KEY, answer="deny", confirm="yes")

    assert again.status_code == 409
    assert "does not wait for this event any more" in again.text
    assert await kept(store) == [(True, None)]


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"answer": "send", "value": "{"}, 400),
        ({"answer": "send", "value": "NaN"}, 400),
        ({"answer": "send", "value": "[" * 15_000}, 400),
        ({"answer": "other"}, 400),
        ({"answer": "approve", "key": "another"}, 409),
    ],
    ids=["no-json", "nan", "deep", "no-answer", "another-key"],
)
async def test_what_is_no_answer_sends_nothing(browser, store, task_states, form, status):
    task = await waiting(task_states)
    await browser.get(f"/tasks/{text_id(task.task_id)}")

    answer = await browser.post(
        f"/tasks/{text_id(task.task_id)}/answer", **{"key": KEY, "confirm": "yes"} | form
    )

    assert answer.status_code == status
    assert "Nothing was sent." in answer.text
    assert await kept(store) == []


async def test_roles_decide_who_answers_and_the_audit_log_keeps_it(guarded, store, task_states):
    task = await waiting(task_states)
    path = f"/tasks/{text_id(task.task_id)}"
    async with browse(guarded) as auditor, browse(guarded) as operator:
        await auditor.sign_in("auditor")
        seen = await auditor.get(path)
        refused = await auditor.post(f"{path}/answer", key=KEY, answer="approve", confirm="yes")
        await operator.sign_in("operator")
        await operator.get(path)
        await operator.confirmed(f"{path}/answer", key=KEY, answer="approve")

    assert "Waits for an answer" in seen.text
    assert "Approve" not in seen.text
    assert refused.status_code == 403
    assert await kept(store) == [(True, "operator")]
    async with store.connection() as connection:
        cursor = await connection.execute(
            "select actor, outcome from audit_event where method like '%SendEvents'"
        )
        assert await cursor.fetchall() == [("auditor", "PERMISSION_DENIED"), ("operator", "OK")]
