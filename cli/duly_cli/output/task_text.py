"""Tasks and lambdas as people and as scripts read them."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import duly
from duly_cli.output.cell_column import with_cells
from duly_cli.output.colour import status_style
from duly_cli.output.json_text import as_json, as_object, instant, is_deep
from duly_cli.output.safe_text import one_line, printable
from duly_cli.output.table import columns

if TYPE_CHECKING:
    from duly.tasks.attributes import AttributeValue

_SECOND_COLUMN = 18
_LONGEST_LINE = 80
_NOT_LISTED = {"payload", "result", "attempts", "attachments", "checkpoint", "graph_label"}
_WAITING = {duly.TaskStatus.NEW, duly.TaskStatus.ENQUEUED, duly.TaskStatus.RETRIABLE_FAILURE}
_RUNNING = {duly.TaskStatus.CLAIMED, duly.TaskStatus.PROCESSING}


def moment_text(moment: datetime | None) -> str:
    """Return an instant as tables have it; None: nothing."""
    return moment.strftime("%Y-%m-%d %H:%M:%SZ") if moment else ""


def listed_as_json(task: "duly.Task") -> dict[str, Any]:
    """Return what a list tells of a task: payload, result and attempts are in `task_as_json` only."""
    told = task_as_json(task)
    return {name: value for name, value in told.items() if name not in _NOT_LISTED}


def task_as_json(task: "duly.Task") -> dict[str, Any]:
    """Everything that is known of a task."""
    told = as_object(task) | {
        "session": task.session and task.session.key,
        "time_table": task.time_table or None,
        "graph_id": task.graph_id or None,
        "graph_label": task.graph_label or None,
        "resources": [str(need) for need in task.resources],
        "parked_on": task.parked_on or None,
        "scheduled_by": task.scheduled_by or None,
    }
    told["attachments"] = [
        f"{each.role.name.lower()} {one_line(each.attachment.name)} ({each.stored_bytes:,} bytes)"
        for each in task.attachments
    ]
    for body in ("payload", "result"):
        del told[f"{body}_bytes"], told[f"{body}_encoding"]
        told[body] = _body(task, body)
    del told["checkpoint_bytes"]
    told["checkpoint"] = _body(task, "checkpoint")
    return told


def _body(task: "duly.Task", name: str) -> Any:
    """Return a body as JSON has it. One that cannot be shown is its bytes."""
    if _problem(task, name):
        return {"base64": base64.b64encode(getattr(task, f"{name}_bytes")).decode()}
    try:
        return as_json(getattr(task, name))
    except duly.DecryptionError as error:
        return str(duly.EncryptedPayload(error.key_id))


def _problem(task: "duly.Task", name: str) -> str:
    """Return why a body cannot be shown, such as one that another program sent; empty: it can."""
    try:
        return "nested too deeply to be shown" if is_deep(getattr(task, name)) else ""
    except duly.DecryptionError:
        return ""
    except duly.PayloadError as error:
        return error.problem


def attributes_text(attributes: "Mapping[str, AttributeValue]") -> str:
    """Return attributes as options have them."""
    return ", ".join(f"{name}={as_json(value)}" for name, value in attributes.items())


def task_lines(task: "duly.Task", max_attempts: int | None = None) -> list[str]:
    """A task, a line for each thing that is worth one; `max_attempts` is its lambda's."""
    values = task_as_json(task)
    values["attributes"] = attributes_text(task.attributes)
    if task.progress:
        values["progress"] = f"{task.progress * 100:.0f} %"
    if since := _overdue_since(task):
        values["due since"] = instant(since)
        if since == task.next_trigger_at:
            del values["next_trigger_at"]
    if task.status in _RUNNING and "next_trigger_at" in values:
        values["claimed until"] = values.pop("next_trigger_at")  # its Executor renews it
    if not task.status.is_final and (task.failures or task.crashes or task.status in _RUNNING):
        values["attempt"] = _attempt_number(task, max_attempts)
    failure = values.pop("failure")
    values.pop("attempts")
    values["attachments"] = ", ".join(values["attachments"])
    bodies = {name: values.pop(name) for name in ("payload", "result", "checkpoint")}
    if task.status is not duly.TaskStatus.SUCCESS:
        del bodies["result"]
    if bodies["checkpoint"] is None:
        del bodies["checkpoint"]
    if failure:
        values["last failure"] = f"{failure['kind']}: {failure['message']} ({failure['failed_at']})"
    interesting = {name: one_line(str(value)) for name, value in values.items() if value}
    for name, body in bodies.items():
        problem = _problem(task, name)
        interesting[name] = f"({problem}: --json has its bytes)" if problem else _readable(body)
    lines = [f"{name.replace('_', ' '):>16}  {value}" for name, value in interesting.items()]
    if task.attempts:
        lines += ["", "runs that did not succeed, oldest first:", *_attempt_table(task.attempts)]
        lines += traceback_lines(task.attempts)
    return lines


def traceback_lines(attempts: "Iterable[duly.Attempt]") -> list[str]:
    """The newest traceback, indented; none: no lines. `--json` has those of the last three attempts."""
    told = [attempt for attempt in attempts if attempt.traceback]
    if not told:
        return []
    newest = told[-1]
    older = f"; --json has {len(told) - 1} more" if len(told) > 1 else ""
    head = f"traceback of attempt {newest.attempt} (fence {newest.fence}){older}:"
    return ["", head, *(f"  {printable(line)}" for line in newest.traceback.split("\n"))]


def _overdue_since(task: "duly.Task") -> datetime | None:
    """Return since when a task could have started; None: it started, or its time has not come."""
    if task.status not in _WAITING:
        return None
    due_at = task.next_trigger_at
    if task.status is duly.TaskStatus.ENQUEUED:  # what is triggered next is that its reference is sent again
        due_at = None if task.failures or task.crashes else task.scheduled_at
    return due_at if due_at is not None and due_at < datetime.now(UTC) else None


def _attempt_number(task: "duly.Task", max_attempts: int | None) -> str:
    """Return which attempt runs, or comes next. Crashes are not counted against max_attempts."""
    number = f"{task.failures + task.crashes + 1}"
    if max_attempts is None:
        return number
    return f"{number} of {max_attempts + task.crashes}"


def _readable(body: Any) -> str:
    """JSON on one line where that is short, else indented, to stand in the second column."""
    line = printable(json.dumps(body, ensure_ascii=False))
    if len(line) <= _LONGEST_LINE:
        return line
    return printable(json.dumps(body, ensure_ascii=False, indent=2)).replace(
        "\n", "\n" + " " * _SECOND_COLUMN
    )


def _attempt_table(attempts: "Iterable[duly.Attempt]") -> Iterator[str]:
    rows = []
    for attempt in attempts:
        reason = attempt.failure_message
        if attempt.failure_kind:
            reason = f"{attempt.failure_kind.name.lower()}: {reason}"
        rows.append(
            (
                str(attempt.attempt) if attempt.charged else f"{attempt.attempt} (not charged)",
                str(attempt.fence),
                attempt.outcome.name.lower() if attempt.outcome else "unknown",
                moment_text(attempt.started_at),
                moment_text(attempt.ended_at),
                attempt.holder,
                " ".join(reason.splitlines()),
            )
        )
    heads = ("ATTEMPT", "FENCE", "OUTCOME", "STARTED", "ENDED", "HOLDER", "REASON")
    return columns(heads, rows, left_out_first=("ENDED", "HOLDER", "FENCE"))


def task_table(tasks: "Iterable[duly.Task]") -> Iterator[str]:
    """Tasks, a line each."""
    rows, cells = [], []
    for task in tasks:
        cells.append(task.cell)
        since = _overdue_since(task)
        moment = moment_text(task.finished_at or task.next_trigger_at)
        rows.append(
            (
                task.task_id,
                task.lambda_name,
                task.priority.name.lower(),
                task.status.name.lower(),
                f"due since {moment_text(since)}" if since else moment,
                f"{task.failure.kind.name.lower()}: {task.failure.message}" if task.failure else "",
            )
        )
    if not rows:
        return iter(
            ["no tasks yet: `duly schedule LAMBDA PAYLOAD` makes one, `duly lambdas` lists the lambdas"]
        )
    heads = ("TASK ID", "LAMBDA", "PRIORITY", "STATUS", "NEXT OR END", "LAST FAILURE")
    left_out_first = ("PRIORITY", "LAST FAILURE", "NEXT OR END")
    heads_of_all, rows_of_all = with_cells(heads, rows, cells, before="PRIORITY")
    return columns(heads_of_all, rows_of_all, left_out_first=left_out_first, styles={"STATUS": status_style})


def dead_letter_table(tasks: "Iterable[duly.Task]") -> Iterator[str]:
    """Dead letters, a line each."""
    listed = list(tasks)
    rows = [
        (
            task.task_id,
            task.lambda_name,
            task.collection,
            moment_text(task.finished_at),
            str(task.failures),
            str(task.crashes),
            str(task.redrives),
            f"{task.failure.kind.name.lower()}: {task.failure.message}" if task.failure else "",
        )
        for task in listed
    ]
    if not rows:
        return iter(["no dead letters"])
    heads = ("TASK ID", "LAMBDA", "COLLECTION", "ENDED", "FAILURES", "CRASHES", "REDRIVES", "WHY")
    cells = [task.cell for task in listed]
    heads_of_all, rows_of_all = with_cells(heads, rows, cells, before="COLLECTION")
    return columns(
        heads_of_all, rows_of_all, left_out_first=("REDRIVES", "CRASHES", "FAILURES", "COLLECTION", "ENDED")
    )
