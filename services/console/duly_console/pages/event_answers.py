"""Answers to a task that waits for a person: an event of its key, sent from its page."""

import json

from starlette.responses import Response

from duly_console.errors import PageError
from duly_console.page import Page, check
from duly_console.pages.tasks import keys_of, read_task
from duly_core.lambdas.names import namespace_of
from duly_wire.v1 import events_pb2, task_pb2

_MOST_BYTES = 64 * 1024
_VALUES = {"approve": b"true", "deny": b"false"}


async def answer(page: Page) -> Response:
    """Send an event to the key for which a task waits: true, false, or JSON."""
    task = await read_task(page)
    key = page.form.get("key", "")
    if task.status != task_pb2.TASK_STATUS_WAITING or key not in keys_of(task):
        raise PageError(409, "The task does not wait for this event any more. Nothing was sent.")
    kind = page.form.get("answer", "")
    value = _value(kind, page.form.get("value", ""))
    back = f"/tasks/{task.task_id}"
    if not page.is_confirmed:
        shown = value.decode() if len(value) <= 200 else f"{len(value):,} bytes of JSON"
        text = f"Every task that waits for the event {key!r} receives {shown}, and runs."
        title = {"approve": "Approve?", "deny": "Deny?"}.get(kind, "Send this value?")
        return page.confirm(
            title, text, kind.capitalize(), back, key=key, answer=kind, value=page.form.get("value", "")
        )
    name = getattr(task, "lambda")
    # the same for each click of this wait: two people send one event
    event = events_pb2.NewEvent(
        key=key,
        namespace=namespace_of(name),
        value=value,
        value_encoding=task_pb2.ENCODING_JSON,
        event_id=f"console:{task.task_id}:{task.fence}",
    )
    request = events_pb2.SendEventsRequest(events=[event])
    done: events_pb2.SendEventsResponse = await page.call(page.stubs.events.SendEvents, request)
    (result,) = done.results
    check(result.error)
    if result.is_repeated:
        raise PageError(409, "Somebody has answered before. Nothing was sent.")
    return page.redirect(
        back, "The answer was sent." if result.receivers else "The answer is kept: nobody waits any more."
    )


def _value(kind: str, text: str) -> bytes:
    if kind in _VALUES:
        return _VALUES[kind]
    if kind != "send":
        raise PageError(400, "Say whether you approve, deny, or send a value. Nothing was sent.")
    try:
        json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise PageError(400, 'The value must be JSON, such as {"by": "ann"}. Nothing was sent.') from None
    value = text.encode("utf-8", "surrogatepass")
    if len(value) > _MOST_BYTES:
        raise PageError(413, f"The value must have at most {_MOST_BYTES:,} bytes. Nothing was sent.")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(name)
