"""From what happened to figures and claims, and to the JSON of both."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import duly
from duly_local.demo import figures
from duly_local.demo.checker import Ending, check
from duly_local.demo.course import Course
from duly_local.demo.executions import ExecutionLog
from duly_local.demo.figures import Account, Row, TaskTimes
from duly_local.demo.files import Facts
from duly_local.demo.killing import Killing
from duly_local.demo.verdict import Claim, claim_of_killing, claims_of


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a run has shown."""

    rows: Mapping[tuple[str, int, bool], Row]
    """By lambda, priority, and whether scheduled ahead."""
    total: Row
    account: Account
    killing: Killing | None
    claims: Sequence[Claim]

    @property
    def passed(self) -> bool:
        """Whether every claim holds."""
        return all(claim.holds for claim in self.claims)

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        rows = [
            {"lambda": name, "priority": duly.Priority(priority).name, "ahead": ahead, **row.as_json()}
            for (name, priority, ahead), row in self.rows.items()
        ]
        return {
            "kill": self.killing.as_json() if self.killing else None,
            "passed": self.passed,
            "claims": [asdict(claim) for claim in self.claims],
            "executions": asdict(self.account),
            "rows": rows,
            "total": self.total.as_json(),
        }


def evaluate(
    course: Course, log: ExecutionLog, facts: Mapping[str, Facts | None], *, kill: bool
) -> Evaluation:
    """Judge a run whose processes have all ended."""
    executions = log.executions()
    killed = course.killing.callback_processes if course.killing else ()
    findings = check(_endings(course), executions, facts, killed)
    of_task = figures.by_task(executions)
    times = _times(course)
    account = figures.account(executions)
    to_fail = [of_task.get(task_id, []) for task_id in _tasks_that_fail_first(course)]
    retries = len(to_fail), sum(map(figures.was_retried, to_fail))
    claims = claims_of(findings, account, len(course.task_ids), retries, log.unreadable)
    if kill:
        claims.append(claim_of_killing(course.killing, executions))
    groups: dict[tuple[str, int, bool], list[TaskTimes]] = {}
    for task in sorted(times, key=lambda task: (task.lambda_name, task.priority, task.is_ahead)):
        groups.setdefault((task.lambda_name, task.priority, task.is_ahead), []).append(task)
    rows = {key: figures.row(tasks, of_task) for key, tasks in groups.items()}
    return Evaluation(rows, figures.row(times, of_task), account, course.killing, claims)


def _endings(course: Course) -> list[Ending]:
    endings = []
    for planned, task_id, task in zip(course.planned, course.task_ids, course.tasks, strict=True):
        if task is None:
            endings.append(Ending(task_id, planned.path, "", is_final=False))
            continue
        failure = task.failure.message if task.failure else ""
        endings.append(
            Ending(task_id, planned.path, task.status.name, task.status.is_final, task.result, failure)
        )
    return endings


def _tasks_that_fail_first(course: Course) -> list[str]:
    return [
        task_id
        for planned, task_id in zip(course.planned, course.task_ids, strict=True)
        if planned.fails_first
    ]


def _times(course: Course) -> list[TaskTimes]:
    return [
        TaskTimes(
            task.task_id,
            task.lambda_name,
            int(task.priority),
            _ns(task.scheduled_at),
            planned.delay is not None,
        )
        for planned, task in zip(course.planned, course.tasks, strict=True)
        if task is not None and task.scheduled_at is not None
    ]


def _ns(instant: datetime) -> int:
    return int(instant.timestamp() * 1_000_000) * 1_000
