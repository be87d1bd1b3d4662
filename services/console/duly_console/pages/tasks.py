"""Tasks: the list with its filters, one task with its history, cancel and redrive."""

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any

from starlette.responses import RedirectResponse, Response

from duly_console import formatting
from duly_console.causes import cause_of
from duly_console.errors import PageError
from duly_console.page import PAGE_SIZE, Page, check
from duly_console.rendering import query
from duly_console.waterfall import WIDTH, bars, is_success, scale, waterfall
from duly_wire.enums import TaskStatus
from duly_wire.time_conversion import to_datetime, to_timestamp
from duly_wire.v1 import explain_pb2, frontend_pb2, task_pb2

FINAL: frozenset[int] = frozenset(status.value for status in TaskStatus if status.is_final)
"""The statuses in which a task has ended."""
HELD = frozenset((task_pb2.TASK_STATUS_CLAIMED, task_pb2.TASK_STATUS_PROCESSING))
"""Those in which a worker has it."""
_EVENT = "event:"
_ATTRIBUTE = re.compile(
    r'(?P<name>[a-z][a-z0-9_.-]*)\s*=\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<plain>[^\s,"][^,]*))\s*(?:,|$)'
)
_LONGEST_WHERE = 4_000
"""Characters. The longest eight attributes have fewer."""
LIVE: Any = tuple(status.value for status in TaskStatus if not status.is_final)
"""The others."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The filters of a list of tasks, as the form has them."""

    lambda_: str = ""
    collection: str = ""
    status: str = ""
    priority: str = ""
    ended_from: str = ""
    ended_before: str = ""
    failure: str = ""
    cell: str = ""
    where: str = ""
    """Attributes: NAME=VALUE, with commas between; a comma in a value stands within quotes, as in JSON."""

    @classmethod
    def of(cls, said: "Page | Mapping[str, str]") -> "Wanted":
        """Read the address of a page, or what a form sent."""
        asked = said.asked if isinstance(said, Page) else lambda name: said.get(name, "").strip()
        return cls(**{each.name: asked(each.name.rstrip("_")) for each in fields(cls)})

    def parameters(self) -> dict[str, str]:
        """Return them as an address has them."""
        return {name.rstrip("_"): value for name, value in asdict(self).items()}

    def request(self, token: str) -> frontend_pb2.ListTasksRequest:
        """Return the call that lists such tasks.

        Raises:
            PageError: a filter is not valid.
        """
        request = frontend_pb2.ListTasksRequest(
            collection=self.collection, cell=self.cell, page_size=PAGE_SIZE, page_token=token
        )
        setattr(request, "lambda", self.lambda_)
        if self.status == "live":
            request.statuses.extend(LIVE)
        elif self.status:
            request.statuses.append(_number(self.status, "status"))
        if self.priority:
            request.priorities.append(_number(self.priority, "priority"))
        if self.failure:
            request.failure_kinds.append(_number(self.failure, "failure"))
        for name, value in attributes(self.where):
            request.attributes.add(name=name, value=value)
        if self.ended_from:
            request.finished_after.CopyFrom(to_timestamp(instant(self.ended_from)))
        if self.ended_before:
            request.finished_before.CopyFrom(to_timestamp(instant(self.ended_before)))
        return request


def attributes(text: str) -> list[tuple[str, str]]:
    """Read attributes as people write them.

    >>> attributes('order=17, city="Rome, Italy"')
    [('order', '17'), ('city', 'Rome, Italy')]

    Raises:
        PageError: the text is not such.
    """
    if len(text) > _LONGEST_WHERE:
        raise PageError(
            400, f"The attributes have {len(text):,} characters; at most {_LONGEST_WHERE:,} are read."
        )
    found, rest = [], text.strip()
    while rest:
        match = _ATTRIBUTE.match(rest)
        if match is None:
            raise PageError(
                400, f"{rest[:50]!r} is no attribute: write NAME=VALUE, and commas between several."
            )
        quoted = match["quoted"]
        found.append((match["name"], match["plain"].strip() if quoted is None else _unquoted(quoted)))
        rest = rest[match.end() :].strip()
    return found


def _unquoted(text: str) -> str:
    try:
        found = str(json.loads(text))
        found.encode()
    except ValueError:  # an escape of half a character is JSON, and no text that can be sent
        raise PageError(400, f"{text[:50]!r} is no text in quotes.") from None
    return found


def _number(text: str, kind: str) -> Any:
    found = formatting.number(text, kind)
    if not found:
        raise PageError(400, f"There is no {kind} {text[:50]!r}.")
    return found


def instant(text: str) -> datetime:
    """Read an instant as forms send it: in UTC, unless the text has an offset.

    Raises:
        PageError: the text is not an instant.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise PageError(400, f"{text[:50]!r} is not a time: write 2026-11-22T21:40.") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


async def show_list(page: Page) -> Response:
    """List tasks, the newest first."""
    sought = page.asked("q")
    if sought:  # as the field for searches asked before it had a page of its own
        return RedirectResponse(query("/search", q=sought), status_code=303)
    wanted = Wanted.of(page)
    request = wanted.request(page.asked("page"))
    answer: frontend_pb2.ListTasksResponse = await page.call(page.stubs.frontend.ListTasks, request)
    said = wanted.parameters()
    return page.render(
        "tasks.html",
        tasks=answer.tasks,
        cells=answer.cell_names,
        wanted=said,
        is_filtered=any(said.values()),
        first=query("/tasks", **said) if page.asked("page") else "",
        next=query("/tasks", **said, page=answer.next_page_token) if answer.next_page_token else "",
    )


async def read_task(page: Page) -> task_pb2.Task:
    """Read the task of the address, without payload, result and tracebacks.

    Raises:
        PageError: no task has this id, or the person may not see it.
    """
    request = frontend_pb2.GetTaskRequest(
        task_ids=[page.request.path_params["task_id"]], view=task_pb2.TASK_VIEW_BASIC
    )
    answer: frontend_pb2.GetTaskResponse = await page.call(page.stubs.frontend.GetTask, request)
    check(answer.results[0].error)
    return answer.results[0].task


class _Said:
    """What the page says already: a message of five runs is read once."""

    def __init__(self, reasons: Iterable[explain_pb2.Reason]) -> None:
        self._reasons = [each.text for each in reasons]
        self._said: set[str] = set()

    def already(self, message: str) -> bool:
        """Whether the page said a message before; from now on it has."""
        line = " ".join(message.split())
        begin = line.removesuffix("…")  # histories have the begin of a long one
        is_said = any(each.startswith(begin) for each in self._said)
        is_said |= any(line in reason for reason in self._reasons)
        self._said.add(line)
        return is_said


def facts(page: Page, task: task_pb2.Task, explained: explain_pb2.ExplainTaskResponse) -> dict[str, Any]:
    """Return what the page of a task needs beside the task."""
    lambda_name = getattr(task, "lambda")
    is_final = task.status in FINAL
    is_dead = task.status == task_pb2.TASK_STATUS_FATAL_FAILURE
    rows = waterfall(
        explained.history,
        to_datetime(explained.explained_at),
        is_processing=task.status == task_pb2.TASK_STATUS_PROCESSING,
    )
    return {
        "explained": explained,
        "runs": [(row, drawn, is_success(row)) for row, drawn in zip(rows, bars(rows), strict=True)],
        "bar_width": WIDTH,
        "scale": scale(rows),
        "cause": cause_of(task).fingerprint if is_dead and task.HasField("last_failure") else "",
        "said": _Said(explained.reasons),
        "path_of_task": f"/tasks/{task.task_id}",
        "is_final": is_final,
        "awaited": awaited(task, explained),
        "can_answer": page.viewer.may("SEND", lambda_name),
        "can_cancel": not is_final and page.viewer.may("CHANGE", lambda_name),
        "can_kill": task.status in HELD and page.viewer.may("CHANGE", lambda_name),
        "can_redrive": is_dead and page.viewer.may("REDRIVE", lambda_name),
        "can_reveal": page.viewer.may("READ_PAYLOAD", lambda_name),
    }


@dataclass(frozen=True, slots=True)
class Awaited:
    """The events for which a task waits."""

    keys: tuple[str, ...]
    reason: explain_pb2.Reason
    """Has since when, and until when."""


def awaited(task: task_pb2.Task, explained: explain_pb2.ExplainTaskResponse) -> Awaited | None:
    """Return what a task waits for; None: it waits for no event."""
    if not task.parked_on.startswith(_EVENT):
        return None
    found = (each for each in explained.reasons if each.kind == explain_pb2.REASON_KIND_EVENT)
    return Awaited(keys_of(task), next(found, explain_pb2.Reason()))


def keys_of(task: task_pb2.Task) -> tuple[str, ...]:
    """Return the keys of the events for which a task waits."""
    return tuple(task.parked_on.removeprefix(_EVENT).split(", "))


async def explain(page: Page) -> explain_pb2.ExplainTaskResponse:
    """Ask why the task of the address stands as it does, and what happened to it."""
    request = explain_pb2.ExplainTaskRequest(task_id=page.request.path_params["task_id"])
    return await page.call(page.stubs.explain.ExplainTask, request)


async def show(page: Page) -> Response:
    """Show a task."""
    task, explained = await asyncio.gather(read_task(page), explain(page))
    return page.render("task.html", task=task, is_revealed=False, **facts(page, task, explained))


async def cancel(page: Page) -> Response:
    """Cancel a task, or ask its callback to stop."""
    task_id = page.request.path_params["task_id"]
    if not page.is_confirmed:
        text = f"Task {task_id} ends without a further run. If it runs now, its callback is asked to stop."
        return page.confirm("Cancel this task?", text, "Cancel the task", f"/tasks/{task_id}")
    request = frontend_pb2.CancelTaskRequest(task_ids=[task_id])
    answer: frontend_pb2.CancelTaskResponse = await page.call(page.stubs.frontend.CancelTask, request)
    check(answer.results[0].error)
    is_done = answer.results[0].status == task_pb2.TASK_STATUS_CANCELLED
    told = "The task is cancelled." if is_done else "Its callback is asked to stop, or it is about to end."
    return page.redirect(f"/tasks/{task_id}", told)


async def kill(page: Page) -> Response:
    """Cancel a task, and end its callback even if it does not stop."""
    task_id = page.request.path_params["task_id"]
    if not page.is_confirmed:
        text = (
            f"Task {task_id} is cancelled. Its callback is interrupted with the next heartbeat. If it goes on, its process is "
            "killed. Other callbacks in that process get a short time to end; then they run again, uncharged."
        )
        return page.confirm("Kill this task?", text, "Kill the task", f"/tasks/{task_id}")
    request = frontend_pb2.CancelTaskRequest(task_ids=[task_id], kill=True)
    answer: frontend_pb2.CancelTaskResponse = await page.call(page.stubs.frontend.CancelTask, request)
    check(answer.results[0].error)
    is_done = answer.results[0].status == task_pb2.TASK_STATUS_CANCELLED
    told = "The task is cancelled." if is_done else "Its callback is killed with the next heartbeat."
    return page.redirect(f"/tasks/{task_id}", told)


async def redrive(page: Page) -> Response:
    """Let a dead letter run again."""
    task_id = page.request.path_params["task_id"]
    if not page.is_confirmed:
        text = f"Task {task_id} becomes due at once. Its failures and crashes count from 0 again."
        return page.confirm("Redrive this task?", text, "Redrive", f"/tasks/{task_id}")
    request = frontend_pb2.RedriveTaskRequest(task_ids=[task_id])
    answer: frontend_pb2.RedriveTaskResponse = await page.call(page.stubs.frontend.RedriveTask, request)
    check(answer.results[0].error)
    return page.redirect(f"/tasks/{task_id}", "The task was redriven.")
