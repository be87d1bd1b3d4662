"""Dead letters: tasks that failed for good, by cause; redrive one, those of a cause, or those that a filter finds."""

import asyncio
from collections.abc import Sequence
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from starlette.responses import Response

from duly_console import formatting
from duly_console.causes import grouped
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
_FIELDS = (*_FILTERS, "rate", "as_of")
_GROUPED_A_CALL = 500
_REDRIVEN_A_CALL = 100
"""Tasks of one cause: after each call the page looks at its time."""
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


async def redrive_cause(page: Page) -> Response:
    """Redrive the dead letters of one cause: count first, then ask, then do it."""
    form = {name: value for name, value in page.form.items() if name in (*_FILTERS, "cause", "as_of")}
    back = query("/dead-letters", **{name: form.get(name, "") for name in _FILTERS})
    until = asyncio.get_running_loop().time() + page.timeout * _SPENT
    tasks, _ = await _newest(page, Wanted.of(form))
    group = next((each for each in grouped(tasks) if each.cause.fingerprint == form.get("cause")), None)
    if group is None:
        return page.redirect(back, "No dead letter has this cause any more: nothing to redrive.")
    if not page.is_confirmed:
        number = counted(len(group.tasks), "dead letter")
        text = (
            f"{number} of {group.cause.lambda_name} failed by this cause, and all become due at once: "
            f"{group.cause.exception} {group.cause.message[:200]}. Their failures and crashes count from 0 again. "
            "Those that end after this count stay dead letters."
        )
        newest = max((task.finished_at for task in group.tasks), key=lambda stamp: stamp.ToNanoseconds())
        return page.confirm(
            f"Redrive {number}?",
            text,
            f"Redrive {count(len(group.tasks))}",
            back,
            **{**form, "as_of": newest.ToJsonString()},
        )
    counted_at = _counted_at(form.get("as_of", ""))
    ids = [
        task.task_id for task in group.tasks if task.finished_at.ToNanoseconds() <= counted_at.ToNanoseconds()
    ]
    done, refusals = await _redrive_named(page, ids, until)
    told = f"{counted(done, 'task was', 'tasks were')} redriven."
    if refusals:
        told += f" {counted(len(refusals), 'was', 'were')} not: {refusals[0]}."
    if done + len(refusals) < len(ids):
        told += " More have this cause: redrive again."
    return page.redirect(back, told)


async def _redrive_named(page: Page, ids: Sequence[str], until: float) -> tuple[int, list[str]]:
    """Redrive tasks by their ids, some at least; return how many, and why others were not that were tried by `until`."""
    done, refusals = 0, []
    for start in range(0, len(ids), _REDRIVEN_A_CALL):
        if start and asyncio.get_running_loop().time() > until:
            break
        request = frontend_pb2.RedriveTaskRequest(task_ids=ids[start : start + _REDRIVEN_A_CALL])
        answer: frontend_pb2.RedriveTaskResponse = await page.call(page.stubs.frontend.RedriveTask, request)
        refused = [each.error.message for each in answer.results if each.error.code]
        done += len(answer.results) - len(refused)
        refusals += refused
    return done, refusals


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
        would: frontend_pb2.RedriveTasksResponse = await page.call(page.stubs.frontend.RedriveTasks, request)
        if not would.count:
            return page.redirect(back, "No dead letter of a registered lambda matches: nothing to redrive.")
        pace = f"at {request.rate:g} a second" if request.rate else "all at once"
        number = counted(would.count, "dead letter")
        text = (
            f"{number} {'matches' if would.count == 1 else 'match'}, due {pace}. Failures and crashes count from 0 "
            "again. Those that end after this count stay dead letters."
        )
        return page.confirm(
            f"Redrive {number}?",
            text,
            f"Redrive {count(would.count)}",
            back,
            **{**form, "as_of": would.as_of.ToJsonString()},
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
    return page.redirect(back, f"{counted(done, 'task was', 'tasks were')} redriven.{rest}")


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
