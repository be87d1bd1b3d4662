"""Counts: how many tasks ran how often, how late they started, how many a second. Pure."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from duly_local.demo.executions import Execution


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """What the figures need to know of a task."""

    task_id: str
    lambda_name: str
    priority: int
    due_at_ns: int
    """Nanoseconds since 1970, as the store has it."""
    is_ahead: bool
    """Whether it was scheduled ahead; otherwise it was due at once."""


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of some tasks."""

    tasks: int
    done: int
    executions: int
    lateness_s: Mapping[str, float]
    """From when a task was due to the start of its first execution: p50, p95, p99. Empty: none has started."""
    per_second: float
    """Tasks done between the first start and the last end."""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Account:
    """Where all executions went: the parts add up to `total`."""

    total: int
    succeeded: int
    """The first of each task that ended well."""
    failed: int
    """The callback said so."""
    cut_off: int
    """Their process was killed."""
    repeated: int
    """Ended well again: an earlier one had too, but the process died before its result was stored."""


def row(tasks: Iterable[TaskTimes], executions: Mapping[str, Sequence[Execution]]) -> Row:
    """The figures of these tasks; `executions` by task, in the order of their starts."""
    wanted = list(tasks)
    latenesses = []
    ran: list[Execution] = []
    done = 0
    for task in wanted:
        of_task = executions.get(task.task_id, ())
        ran += of_task
        done += any(execution.succeeded for execution in of_task)
        if of_task:
            latenesses.append((of_task[0].started_at_ns - task.due_at_ns) / 1e9)
    started = min((execution.started_boot_ns for execution in ran), default=0)
    ended = max((execution.ended_boot_ns or 0 for execution in ran), default=0)
    return Row(
        len(wanted),
        done,
        len(ran),
        {f"p{percent}": percentile(latenesses, percent) for percent in (50, 95, 99)} if latenesses else {},
        done / ((ended - started) / 1e9) if ended > started else 0,
    )


def by_task(executions: Iterable[Execution]) -> dict[str, list[Execution]]:
    """Executions of each task, in the order given."""
    found: dict[str, list[Execution]] = defaultdict(list)
    for execution in executions:
        found[execution.task_id].append(execution)
    return found


def was_retried(executions: Sequence[Execution]) -> bool:
    """Whether the first execution that ended failed, and a later one did not."""
    ended = [execution.succeeded for execution in executions if execution.ended_boot_ns is not None]
    return bool(ended) and not ended[0] and any(ended)


def account(executions: Collection[Execution]) -> Account:
    """Sort all executions by how they ended."""
    succeeded = [execution.task_id for execution in executions if execution.succeeded]
    cut_off = sum(execution.ended_boot_ns is None for execution in executions)
    first = len(set(succeeded))
    return Account(
        total=len(executions),
        succeeded=first,
        failed=len(executions) - len(succeeded) - cut_off,
        cut_off=cut_off,
        repeated=len(succeeded) - first,
    )


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that so many percent of all are not above."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
