"""Dead letters: tasks that failed for good, by cause; redrive one, those of a cause, or those that a filter finds."""

import asyncio
from datetime import timedelta
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from starlette.responses import Response

from duly_console import formatting
from duly_console.causes import PACE, grouped
from duly_console.errors import PageError
from duly_console.formatting import count, counted
from duly_console.page import PAGE_SIZE, Page
from duly_console.pages.tasks import Wanted, instant
from duly_console.rendering import query
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import frontend_pb2, task_pb2

_MOST_A_REQUEST = 20
"""Calls of 1,000 tasks each: what is left is redriven by the next click."""
_SPENT = 0.5
"""No call begins when this part of the page's time is over: a page that took too long could not say what was done."""
_FILTERS = ("lambda", "collection", "failure", "ended_from", "ended_before")
_FIELDS = (*_FILTERS, "cause", "rate", "as_of")
_GROUPED_A_CALL = 500
_MOST_GROUPED = 2_000
"""Dead letters that are read to be grouped, the newest."""


async def show_list(page: Page) -> Response:
    """List the causes of the newest dead letters; or, by task, all that match, or those of one cause."""
    wanted = Wanted.of(page)
    said = {name: value for name, value in wanted.parameters().items() if name in _FILTERS}
    lambda_name, by, cause = said["lambda"], page.asked("by"), page.asked("cause")
    shown: dict[str, Any] = {
        "wanted": said,
        "by": by,
        "is_filtered": any(said.values()),
        "can_redrive": page.viewer.may("REDRIVE", lambda_name)
        if lambda_name
        else page.viewer.may_somewhere("REDRIVE"),
        "group": None,
        "pace": PACE,
        "first": "",
        "next": "",
    }
    if by == "task":
        answer = await _read(page, wanted.request(page.asked("page")))
        here = {**said, "by": by}
        if page.asked("page"):
            shown["first"] = query("/dead-letters", **here)
        if answer.next_page_token:
            shown["next"] = query("/dead-letters", **here, page=answer.next_page_token)
        return page.render("dead_letters.html", tasks=answer.tasks, groups=[], left_out=False, **shown)
    tasks, left_out = await _newest(page, wanted)
    groups = grouped(tasks)
    if cause:
        shown["group"] = next((each for each in groups if each.cause.fingerprint == cause), None)
        if shown["group"] is None:
            raise PageError(404, "None of the newest dead letters that match has this cause any more.")
        tasks = shown["group"].tasks[:PAGE_SIZE]
    return page.render("dead_letters.html", tasks=tasks, groups=groups, left_out=left_out, **shown)


async def _read(page: Page, request: frontend_pb2.ListTasksRequest) -> frontend_pb2.ListTasksResponse:
    del request.statuses[:]
    request.statuses.append(task_pb2.TASK_STATUS_FATAL_FAILURE)
    return await page.call(page.stubs.frontend.ListTasks, request)


async def _newest(page: Page, wanted: Wanted) -> tuple[list[task_pb2.Task], bool]:
    """Return the newest dead letters that match, and whether there are more."""
    found: list[task_pb2.Task] = []
    request = wanted.request("")
    request.page_size = _GROUPED_A_CALL
    until = asyncio.get_running_loop().time() + page.timeout * _SPENT
    while True:
        answer = await _read(page, request)
        found += answer.tasks
        request.page_token = answer.next_page_token
        is_enough = len(found) >= _MOST_GROUPED or asyncio.get_running_loop().time() > until
        if not request.page_token or is_enough:
            return found, bool(request.page_token)


async def redrive(page: Page) -> Response:
    """Redrive what a filter finds, or those of a cause: count first, then ask, then do it."""
    form = {name: value for name, value in page.form.items() if name in _FIELDS}
    request = _request(page)
    shown = {name: value for name, value in form.items() if name not in ("rate", "as_of", "cause")}
    back = page.back(query("/dead-letters", **shown))
    until = asyncio.get_running_loop().time() + page.timeout * _SPENT
    if not page.is_confirmed:
        request.dry_run = True
        would, is_more = await _in_pages(page, request, until)
        if not would:
            which = "has this cause any more" if request.cause else "of a registered lambda matches"
            return page.redirect(back, f"No dead letter {which}: nothing to redrive.")
        number = f"{'at least ' if is_more else ''}{counted(would, 'dead letter')}"
        text = f"{await _said(page, request, number, would)} Failures and crashes count from 0 again. "
        return page.confirm(
            f"Redrive {number}?",
            text + "Those that end after this count stay dead letters.",
            f"Redrive {'all' if is_more else count(would)}",
            back,
            **{**form, "as_of": request.as_of.ToJsonString(), "back": page.form.get("back", "")},
        )
    done, is_more = await _in_pages(page, request, until)
    rest = " More match: redrive again." if is_more else ""
    return page.redirect(back, f"{counted(done, 'task was', 'tasks were')} redriven.{rest}")


async def _in_pages(page: Page, request: frontend_pb2.RedriveTasksRequest, until: float) -> tuple[int, bool]:
    """Send a request for one page after the other; return how many tasks they redrove, and whether there are more."""
    done, is_more = 0, True
    for _ in range(_MOST_A_REQUEST):
        answer: frontend_pb2.RedriveTasksResponse = await page.call(page.stubs.frontend.RedriveTasks, request)
        if answer.cause != request.cause:
            raise PageError(503, "The Frontend is of an older release, which cannot redrive by cause.")
        done += answer.count
        is_more = answer.more
        request.as_of.CopyFrom(answer.as_of)
        if not is_more or asyncio.get_running_loop().time() > until:
            break
        request.offset.CopyFrom(answer.next_offset)
        request.after = answer.next_after
    return done, is_more


async def _said(page: Page, request: frontend_pb2.RedriveTasksRequest, number: str, would: int) -> str:
    """Return what a redrive does, in words."""
    pace = "all at once"
    if request.rate:
        last = formatting.span(timedelta(seconds=(would - 1) / request.rate))
        pace = f"at {request.rate:g} a second" + (f", the last in {last}" if would > 1 else "")
    if not request.cause:
        return f"{number} {'matches' if would == 1 else 'match'}, due {pace}."
    listed = frontend_pb2.ListTasksRequest(page_size=_GROUPED_A_CALL)
    setattr(listed, "lambda", getattr(request, "lambda"))
    groups = grouped((await _read(page, listed)).tasks)
    cause = next((each.cause for each in groups if each.cause.fingerprint == request.cause), None)
    said = f" ({f'{cause.exception} {cause.message[:200]}'.strip()})" if cause else ""
    of = f" of {cause.lambda_name}" if cause else ""
    return f"{number}{of} failed by this cause{said}, due {pace}."


def _request(page: Page) -> frontend_pb2.RedriveTasksRequest:
    form = page.form
    request = frontend_pb2.RedriveTasksRequest(
        collection=form.get("collection", ""), cause=form.get("cause", "")
    )
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
