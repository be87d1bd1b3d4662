"""Dead letters: tasks that failed for good, by cause; redrive one, those of a cause, or those that a filter finds."""

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from starlette.responses import Response

from duly_console import formatting
from duly_console.causes import PACE, grouped
from duly_console.errors import PageError
from duly_console.formatting import count, counted
from duly_console.page import PAGE_SIZE, Page
from duly_console.pages.tasks import Wanted, instant
from duly_console.rendering import query
from duly_wire.time_conversion import to_datetime, to_timestamp
from duly_wire.v1 import frontend_pb2, task_pb2

_MOST_A_REQUEST = 20
"""Calls of 1,000 tasks each: a page asks whether to go on with what is left."""
_SPENT = 0.5
"""No call begins when this part of the page's time is over: a page that took too long could not say what was done."""
_FILTERS = ("lambda", "collection", "failure", "ended_from", "ended_before", "cell", "where")
_PLACE = ("as_of", "offset", "after")
"""Where a redrive goes on, as the answer before had it."""
_FIELDS = (*_FILTERS, "cause", "rate", *_PLACE)
_LOOKED_AT_A_CALL = 5_000
"""Dead letters that a call looks at for those of a cause, as RedriveTasksRequest has it."""
_GROUPED_A_CALL = 500
_MOST_GROUPED = 1_000
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
        "narrows": _narrows(said),
        "can_redrive": page.viewer.may("REDRIVE", lambda_name)
        if lambda_name
        else page.viewer.may_somewhere("REDRIVE"),
        "group": None,
        "is_cause_gone": False,
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
        return page.render(
            "dead_letters.html",
            tasks=answer.tasks,
            groups=[],
            left_out=False,
            cells=answer.cell_names,
            **shown,
        )
    tasks, left_out, cells = await _newest(page, wanted)
    groups = grouped(tasks)
    if cause:
        shown["group"] = next((each for each in groups if each.cause.fingerprint == cause), None)
        if shown["group"] is None and not page.is_fragment:
            raise PageError(404, "None of the newest dead letters that match has this cause any more.")
        # an open page follows a redrive: it shows that the last letter is gone
        shown["is_cause_gone"] = shown["group"] is None
        tasks = shown["group"].tasks[:PAGE_SIZE] if shown["group"] else []
    return page.render(
        "dead_letters.html", tasks=tasks, groups=groups, left_out=left_out, cells=cells, **shown
    )


def _narrows(said: Mapping[str, str]) -> str:
    """Return which filter there is that a redrive of many does not know; empty: none."""
    return "attributes" if said.get("where") else "cell" if said.get("cell") else ""


async def _read(page: Page, request: frontend_pb2.ListTasksRequest) -> frontend_pb2.ListTasksResponse:
    del request.statuses[:]
    request.statuses.append(task_pb2.TASK_STATUS_FATAL_FAILURE)
    return await page.call(page.stubs.frontend.ListTasks, request)


async def _newest(page: Page, wanted: Wanted) -> tuple[list[task_pb2.Task], bool, Sequence[str]]:
    """Return the newest dead letters that match, whether there are more, and the names of all cells."""
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
            return found, bool(request.page_token), answer.cell_names


@dataclass(frozen=True, slots=True)
class _Walk:
    """What some calls of a redrive did, or counted."""

    count: int
    is_more: bool
    calls: int
    before_first: str
    """Behind which the first that matches stands; empty: it is not known."""


async def redrive(page: Page) -> Response:
    """Redrive what a filter finds, or those of a cause: count first, then ask, then do it, in steps that each take a moment."""
    form = {name: value for name, value in page.form.items() if name in _FIELDS}
    request = _request(page)
    back = page.back(
        query("/dead-letters", **{name: value for name, value in form.items() if name in _FILTERS})
    )
    until = asyncio.get_running_loop().time() + page.timeout * _SPENT
    if not page.is_confirmed:
        request.dry_run = True
        would = await _in_pages(page, request, until)
        if not would.count:
            return page.redirect(back, _none(request, would))
        number = f"{'at least ' if would.is_more else ''}{counted(would.count, 'dead letter')}"
        text = f"{await _said(page, request, number, would.count)} Failures and crashes count from 0 again. "
        return page.confirm(
            f"Redrive {number}?",
            text + "Those that end after this count stay dead letters.",
            f"Redrive {'all' if would.is_more else count(would.count)}",
            back,
            **{**form, "as_of": request.as_of.ToJsonString(), "after": would.before_first, "back": back},
        )
    done = await _in_pages(page, request, until)
    told = f"{counted(done.count, 'task was', 'tasks were')} redriven."
    if not done.is_more:
        return page.redirect(back, told)
    return page.confirm(
        "Redrive more?",
        f"{told} There are more dead letters to look at. Those that match become due after these, at the same rate. "
        "Those that end after the count stay dead letters.",
        "Redrive more",
        back,
        **{
            **form,
            "as_of": request.as_of.ToJsonString(),
            "offset": request.offset.ToJsonString(),
            "after": request.after,
            "back": back,
        },
    )


async def _in_pages(page: Page, request: frontend_pb2.RedriveTasksRequest, until: float) -> _Walk:
    """Send a request for one page after the other; it is then the one to go on with."""
    done, is_more, calls, before_first = 0, True, 0, request.after
    while is_more and calls < _MOST_A_REQUEST:
        answer: frontend_pb2.RedriveTasksResponse = await page.call(page.stubs.frontend.RedriveTasks, request)
        if answer.cause != request.cause:
            raise PageError(503, "The Frontend is of an older release, which cannot redrive by cause.")
        if not done:
            before_first = request.after
        done, is_more, calls = done + answer.count, answer.more, calls + 1
        request.as_of.CopyFrom(answer.as_of)
        request.offset.CopyFrom(answer.next_offset)
        request.after = answer.next_after
        if asyncio.get_running_loop().time() > until:
            break
    return _Walk(done, is_more, calls, before_first)


def _none(request: frontend_pb2.RedriveTasksRequest, found: _Walk) -> str:
    """Say that no dead letter was counted, or none yet."""
    if not request.cause:
        return "No dead letter of a registered lambda matches: nothing to redrive."
    if not found.is_more:
        return "No dead letter has this cause any more: nothing to redrive."
    return (
        f"None of the {found.calls * _LOOKED_AT_A_CALL:,} dead letters that ended first has this cause, and there are more: "
        f"nothing was redriven. This command looks at all of them: {_command(request)}"
    )


def _command(request: frontend_pb2.RedriveTasksRequest) -> str:
    """Return the command that redrives what a request does."""
    after, before = request.finished_after, request.finished_before
    said = {
        "--lambda": getattr(request, "lambda"),
        "--collection": request.collection,
        "--kind": formatting.word(request.failure_kinds[0], "failure").replace(" ", "_")
        if request.failure_kinds
        else "",
        "--since": to_datetime(after).isoformat() if request.HasField("finished_after") else "",
        "--until": to_datetime(before).isoformat() if request.HasField("finished_before") else "",
        "--cause": request.cause,
        "--rate": f"{request.rate:g}/s" if request.rate else "",
    }
    return shlex.join(["duly", "redrive", *(word for option in said.items() if option[1] for word in option)])


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
    if narrows := _narrows(form):
        raise PageError(
            400,
            f"A redrive of many takes no {narrows}: it would redrive tasks with others, too. Nothing was redriven. "
            "List the dead letters by task, and redrive them one by one.",
        )
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
    _go_on(request, form)
    if rate := form.get("rate", "").strip():
        try:
            request.rate = float(rate)
        except ValueError:
            raise PageError(400, f"{rate[:50]!r} is not a number of tasks a second.") from None
    return request


def _go_on(request: frontend_pb2.RedriveTasksRequest, form: Mapping[str, str]) -> None:
    """Have a request begin where the form that asks to confirm says."""
    request.after = form.get("after", "")
    try:
        if as_of := form.get("as_of"):
            request.as_of.FromJsonString(as_of)
        if offset := form.get("offset"):
            request.offset.FromJsonString(offset)
    except ValueError:
        raise PageError(400, "The form is not valid. Count again.") from None
