"""Dead letters: tasks that failed for good; redrive one, or those that a filter finds."""

import asyncio

from google.protobuf.timestamp_pb2 import Timestamp
from starlette.responses import Response

from duly_console import formatting
from duly_console.errors import PageError
from duly_console.formatting import count
from duly_console.page import Page
from duly_console.pages.tasks import Wanted, instant
from duly_console.rendering import query
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import frontend_pb2, task_pb2

_MOST_A_REQUEST = 20
"""Calls of 1,000 tasks each: what is left is redriven by the next click."""
_SPENT = 0.5
"""No call begins when this part of the page's time is over: a page that took too long could not say what was done."""
_FIELDS = ("lambda", "collection", "failure", "ended_from", "ended_before", "rate", "as_of")


async def show_list(page: Page) -> Response:
    """List dead letters, the newest task first."""
    wanted = Wanted.of(page)
    request = wanted.request(page.asked("page"))
    del request.statuses[:]
    request.statuses.append(task_pb2.TASK_STATUS_FATAL_FAILURE)
    answer: frontend_pb2.ListTasksResponse = await page.call(page.stubs.frontend.ListTasks, request)
    said = {name: value for name, value in wanted.parameters().items() if name not in ("status", "priority")}
    lambda_name = said["lambda"]
    return page.render(
        "dead_letters.html",
        tasks=answer.tasks,
        wanted=said,
        is_filtered=any(said.values()),
        can_redrive=page.viewer.may("REDRIVE", lambda_name)
        if lambda_name
        else page.viewer.may_somewhere("REDRIVE"),
        first=query("/dead-letters", **said) if page.asked("page") else "",
        next=query("/dead-letters", **said, page=answer.next_page_token) if answer.next_page_token else "",
    )


async def redrive(page: Page) -> Response:
    """Redrive what a filter finds: count first, then ask, then do it."""
    form = {name: value for name, value in page.form.items() if name in _FIELDS}
    request = _request(page)
    back = query(
        "/dead-letters",
        **{name: value for name, value in form.items() if name not in ("rate", "as_of")},
    )
    if not page.is_confirmed:
        request.dry_run = True
        counted: frontend_pb2.RedriveTasksResponse = await page.call(
            page.stubs.frontend.RedriveTasks, request
        )
        if not counted.count:
            return page.redirect(back, "No dead letter of a registered lambda matches: nothing to redrive.")
        pace = f"at {request.rate:g} a second" if request.rate else "all at once"
        text = (
            f"{count(counted.count)} dead letters match, and become due {pace}. Their failures and crashes count from 0 "
            "again. Those that end after this count stay dead letters."
        )
        return page.confirm(
            f"Redrive {count(counted.count)} dead letters?",
            text,
            f"Redrive {count(counted.count)}",
            back,
            **{**form, "as_of": counted.as_of.ToJsonString()},
        )
    done, is_more = 0, True
    until = asyncio.get_running_loop().time() + page.timeout * _SPENT
    for _ in range(_MOST_A_REQUEST):
        answer: frontend_pb2.RedriveTasksResponse = await page.call(page.stubs.frontend.RedriveTasks, request)
        done += answer.count
        is_more = answer.more
        if not is_more or asyncio.get_running_loop().time() > until:
            break
        request.as_of.CopyFrom(answer.as_of)
        request.offset.CopyFrom(answer.next_offset)
    rest = " More match: redrive again." if is_more else ""
    return page.redirect(back, f"{count(done)} tasks were redriven.{rest}")


def _request(page: Page) -> frontend_pb2.RedriveTasksRequest:
    form = page.form
    request = frontend_pb2.RedriveTasksRequest(collection=form.get("collection", ""))
    setattr(request, "lambda", form.get("lambda", ""))
    if kind := form.get("failure"):
        found = formatting.number(kind, "failure")
        if not found:
            raise PageError(400, f"There is no kind of failure {kind[:50]!r}.")
        request.failure_kinds.append(found)
    if after := form.get("ended_from"):
        request.finished_after.CopyFrom(to_timestamp(instant(after)))
    if before := form.get("ended_before"):
        request.finished_before.CopyFrom(to_timestamp(instant(before)))
    if as_of := form.get("as_of"):
        request.as_of.CopyFrom(_counted_at(as_of))
    if rate := form.get("rate", "").strip():
        try:
            request.rate = float(rate)
        except ValueError:
            raise PageError(400, f"{rate[:50]!r} is not a number of tasks a second.") from None
    return request


def _counted_at(text: str) -> Timestamp:
    """Read when the dead letters were counted, as the form that asks to confirm has it."""
    found = Timestamp()
    try:
        found.FromJsonString(text)
    except ValueError:
        raise PageError(400, "The form is not valid. Count again.") from None
    return found
