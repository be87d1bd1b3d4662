"""Payload, result, checkpoint, attachments, output and tracebacks of a task: shown when asked for, which the audit log keeps."""

from typing import Any

from starlette.responses import Response

from duly_console.page import Page, check
from duly_console.pages.attachments import rows
from duly_console.pages.output import read as read_output
from duly_console.pages.tasks import explain, facts
from duly_wire.v1 import inspection_pb2


async def reveal(page: Page) -> Response:
    """Show the task with all that it holds."""
    request = inspection_pb2.RevealTaskRequest(
        task_id=page.request.path_params["task_id"], reason=page.form.get("reason", "").strip()
    )
    answer: inspection_pb2.RevealTaskResponse = await page.call(page.stubs.inspection.RevealTask, request)
    check(answer.error)
    task = answer.revealed_task
    tracebacks = [attempt for attempt in task.attempts if attempt.traceback]
    shown: dict[str, Any] = {
        "task": task,
        "tracebacks": tracebacks,
        "attachments": await rows(page, task.task_id),
        "output": await read_output(page, task.task_id),
        "is_revealed": True,
    }
    if page.is_fragment:
        return page.render("bodies.html", **shown)
    return page.render("task.html", **facts(page, task, await explain(page)), **shown)
