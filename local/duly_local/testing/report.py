"""What a failed test shows of Duly: where the clock stands, what ran, and each task with its reasons and its history."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

import duly

if TYPE_CHECKING:
    from duly_local.testing.stack import TestStack

TITLE = "Duly: tasks and their history"
_MOST_TASKS = 20
_MOST_RUNS = 20
_MOST_EVENTS = 20
"""Of one task: the newest."""
_OF_TESTS_ONLY = (duly.ReasonKind.NO_HOST, duly.ReasonKind.CLOCK_SKEW)
"""The worker of a test is no host that reports itself, and its clock was stepped."""
_PATIENCE = timedelta(seconds=5)


def section(stack: TestStack) -> str:
    """Return the text; of services that do not answer it says so."""
    try:
        return "\n".join(_lines(stack))
    except Exception as error:  # noqa: BLE001 (the test has failed for another reason, which people must see)
        return f"the tasks cannot be read: {error}"


def _lines(stack: TestStack) -> Iterator[str]:
    passed = stack.now - stack.began_at
    yield f"the clock stands at {stack.now.isoformat()}, {passed} after the test began"
    runs = sorted((run for worker in stack.workers for run in worker.runs), key=lambda run: run.at)
    if runs:
        yield f"runs{_of(len(runs), _MOST_RUNS)}:"
        yield from (f"  {run}" for run in runs[-_MOST_RUNS:])
    with duly.Client(stack.address, unreachable_after=_PATIENCE) as client:
        tasks = [*islice(client.list(), _MOST_TASKS + 1)]
        # what did not succeed first
        tasks.sort(key=lambda task: task.status is duly.TaskStatus.SUCCESS)
        yield f"tasks{' (not all)' if len(tasks) > _MOST_TASKS else ''}:" if tasks else "no tasks"
        for task in tasks[:_MOST_TASKS]:
            yield from _task(client.explain(task), stack.began_at)


def _of(count: int, most: int) -> str:
    return f" (the last {most} of {count})" if count > most else ""


def _task(found: duly.Explanation, began_at: datetime) -> Iterator[str]:
    yield f"  {found.task_id}  {found.lambda_name}  {found.status.name}"
    yield from (f"    {each.text}" for each in found.reasons if each.kind not in _OF_TESTS_ONLY)
    for event in found.history[-_MOST_EVENTS:]:
        yield f"      +{event.happened_at - began_at}  {event.kind.name.lower()}{_details(event)}"


def _details(event: duly.HistoryEvent) -> str:
    said = [
        f"attempt {event.attempt}" if event.attempt else "",
        event.outcome.name.lower() if event.outcome is not None else "",
        f"next in {event.next_trigger_at - event.happened_at}" if event.next_trigger_at is not None else "",
        event.reason,
    ]
    return "".join(f"; {each}" for each in said if each)
