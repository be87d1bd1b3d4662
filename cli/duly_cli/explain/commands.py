"""`duly explain`: why a task does not run, what to do about it, and what happened to it."""

import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Annotated

import typer

import duly
from duly_cli.output.colour import Line, Span, say_lines, status_style
from duly_cli.output.json_text import as_object
from duly_cli.output.safe_text import one_line, say
from duly_cli.output.table import terminal_width
from duly_cli.output.task_text import moment_text
from duly_cli.output.watching import Watch, age_text, repeatedly
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, add_to_tasks, connected
from duly_cli.tasks.references import OfLambda, named_tasks

_WIDTH = 80
_COMMAND = re.compile("`duly [^`]*`")
_NO_BREAK = "\N{NO-BREAK SPACE}"
_KIND = 17
_INDENT = " " * 4
_SHOWN_TASKS = 5
_EXACT_BELOW = timedelta(seconds=10)


def add_command(app: typer.Typer) -> None:
    """Add `explain`."""
    add_to_tasks(app, explain)


def explain(
    task_id: Annotated[
        str | None,
        typer.Argument(help="The task's id; or name the task by --lambda and --key.", metavar="TASK_ID"),
    ] = None,
    lambda_name: OfLambda = "",
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            help="With --lambda: the idempotency key that the task was scheduled with.",
            show_default=False,
        ),
    ] = None,
    history: Annotated[
        bool, typer.Option("--history/--no-history", help="Show what happened to it, too.")
    ] = True,
    watch: Watch = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Say why a task does not run, what to do about it, and what happened to it; exit 1 if it does not exist."""
    named = named_tasks([task_id] if task_id else [], lambda_name, [key] if key else [])
    if len(named) > 1:
        message = "name one task: by its id, or by --lambda and --key"
        raise typer.BadParameter(message)

    def show() -> None:
        with connected(address) as client:
            found = client.explain(named[0], history=history)
        if as_json:
            say(json.dumps(as_object(found)))
        else:
            say_lines(lines(found))

    repeatedly(show, watch, as_json=as_json)


def lines(found: "duly.Explanation", width: int | None = None) -> Iterator[str]:
    """Yield an explanation, within `width`; None: that of the terminal, and 80 for a pipe or a file."""
    width = max(40, width or terminal_width() or _WIDTH)
    status = found.status.name.lower()
    cell = f"cell {found.cell}  " if found.cell else ""
    *before, last = _wrapped(
        f"{found.task_id}  {found.lambda_name}  {found.priority.name.lower()}  {cell}{status}",
        width,
        first="",
    )
    yield from before
    yield Line.of(last, [Span(len(last) - len(status), len(last), status_style(status))])
    for place, reason in enumerate(found.reasons, start=1):
        yield from _marked(_wrapped(reason.text, width, first=f"{place:>2}. "), "head")
        if reason.action:
            yield from _marked(_wrapped(reason.action, width, first=f"{_INDENT}-> "), "busy")
        yield from _tasks(reason, found.explained_at, width)
    if found.history:
        yield "history:"
    day = ""
    for event in found.history:
        yield from _event(event, width, day)
        day = _day(event.happened_at)


def _marked(lines: Sequence[str], style: str) -> Iterator[str]:
    """Yield lines whose first begins with a mark, which gets a colour."""
    first, *others = lines
    start = len(first) - len(first.lstrip())
    yield Line.of(first, [Span(start, first.index(" ", start), style)])
    yield from others


def _tasks(reason: "duly.Reason", now: datetime, width: int) -> Iterator[str]:
    for task in reason.tasks[:_SHOWN_TASKS]:
        status = task.status.name.lower() if task.status else "removed"
        label = f"{task.label}: " if task.label else ""
        held = "" if task.held_since_at is None else f" for {age_text(now - task.held_since_at)}"
        units = f"  {task.units} {'unit' if task.units == 1 else 'units'}" if task.units else ""
        yield from _wrapped(
            f"{label}{task.task_id}  {task.lambda_name}  {status}{units}{held}", width, first=f"{_INDENT}- "
        )
    if len(reason.tasks) > _SHOWN_TASKS:
        yield f"{_INDENT}- and {len(reason.tasks) - _SHOWN_TASKS} more (--json)"


def _day(moment: datetime) -> str:
    return moment_text(moment)[:10]


def _event(event: "duly.HistoryEvent", width: int, day_before: str) -> Iterator[str]:
    """Yield a line of the history: its day where that changes, its time, what happened, and the rest."""
    if _day(event.happened_at) != day_before:
        yield f"  {_day(event.happened_at)}"
    kind = event.kind.name.lower().replace("_", " ")
    head = f"  {event.happened_at:%H:%M:%S.%f}"[:-3] + f"Z  {kind:<{_KIND}} "
    yield from _wrapped("; ".join(_details(event)) or "-", width, first=head)


def _details(event: "duly.HistoryEvent") -> Iterator[str]:
    if event.attempt or event.fence:
        attempt = f"attempt {event.attempt}, " if event.attempt else ""
        yield f"{attempt}run {event.fence}"
    if event.outcome is not None:
        yield event.outcome.name.lower()
    elif event.kind is duly.HistoryKind.ENDED and event.status is not None:
        yield event.status.name.lower()
    if event.holder:
        yield f"on {event.holder}"
    if event.principal:
        yield f"by {event.principal}"
    if event.next_trigger_at is not None:
        yield _next(event.next_trigger_at - event.happened_at)
    failure = event.failure_kind.name.lower() if event.failure_kind else ""
    if why := ": ".join(filter(None, (failure, event.reason))):
        yield why


def _next(distance: timedelta) -> str:
    """Say when Duly looks at the task again; backoffs of less than some seconds with a fraction."""
    if distance <= timedelta():
        return "due at once"
    if distance < _EXACT_BELOW:
        return f"next in {distance.total_seconds():.1f}s"
    return f"next in {age_text(distance)}"


def _wrapped(text: str, width: int, *, first: str) -> list[str]:
    """Return a text on lines of at most `width` characters; those after the first are indented as far as its head.

    A command stays on one line if it fits, so that it can be copied.
    """
    room = width - len(first)
    unbroken = _COMMAND.sub(
        lambda found: found[0].replace(" ", _NO_BREAK) if len(found[0]) <= room else found[0], one_line(text)
    )
    wrapped = textwrap.wrap(
        unbroken,
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in wrapped]
