"""Judges a run: what Duly says about each task, against the execution log and the files. Pure functions."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from duly import TaskStatus

Facts = Mapping[str, object]
"""What indexing a file must return."""


@dataclass(slots=True)
class Execution:
    """One run of a callback, as its own process logged it."""

    task_id: str
    fence: int
    executor: int
    """The pid of the Executor whose callback process it was."""
    alone: bool
    """Whether no other execution held the task's lock when it began."""
    started_ns: int
    """Since the machine started; comparable with the ends of executions."""
    wall_s: float
    """The same instant by the wall clock; comparable with due times."""
    ended_ns: int | None = None
    """None: its process died first."""
    succeeded: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """A task at the end of the run, as Duly describes it."""

    task_id: str
    path: str
    status: TaskStatus | None = None
    """None: Duly does not know the task."""
    result: Any = None
    failure: str = ""
    due_at: datetime | None = None

    def __str__(self) -> str:
        return f"{self.path} ({self.task_id})"


@dataclass(frozen=True, slots=True)
class Check:
    """One claim of the demo; it holds if there is no fault."""

    claim: str
    count: int
    faults: Sequence[str]


def read_log(lines: Iterable[str]) -> list[Execution]:
    """Return the executions in the order of their starts.

    Raises:
        ValueError: a line is not a record, or is an end without a start.
    """
    executions: list[Execution] = []
    running: dict[tuple[str, int, int], Execution] = {}
    for line in lines:
        try:
            record = json.loads(line)
            key = record["task_id"], record["fence"], record["executor"]
            if record["event"] == "started":
                running[key] = Execution(*key, record["alone"], record["at_ns"], record["wall_s"])
                executions.append(running[key])
            else:
                ended = running.pop(key)
                ended.ended_ns, ended.succeeded = record["at_ns"], record["event"] == "succeeded"
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"the execution log has a line that cannot be: {line.strip()}") from error
    return sorted(executions, key=lambda execution: execution.started_ns)


def check(
    endings: Sequence[Ending],
    executions: Sequence[Execution],
    expected: Mapping[str, Facts],
    killed: int | None,
) -> list[Check]:
    """Return the demo's claims, each with its faults.

    `expected`: the facts about each file, read directly. `killed`: the pid of the Executor that was killed.
    """
    runs: dict[str, list[Execution]] = defaultdict(list)
    for execution in executions:
        runs[execution.task_id].append(execution)
    done = [ending for ending in endings if ending.status is TaskStatus.SUCCESS]
    failed = [
        f"{ending}: {ending.status.name}: {ending.failure}"
        for ending in endings
        if ending.status is not None and ending.status is not TaskStatus.SUCCESS
    ]
    wrong = [
        f"{ending}: the result is {ending.result}, the file held {expected[ending.path]}"
        for ending in done
        if ending.result != expected[ending.path]
    ]
    lost = [fault for ending in endings for fault in _lost(ending, runs[ending.task_id])]
    overlaps = [fault for ending in endings for fault in _overlaps(ending, runs[ending.task_id])]
    cut_off = [run for run in executions if run.ended_ns is None]
    dropped = [fault for run in cut_off for fault in _dropped(run, runs[run.task_id], killed)]
    if not any(run.executor == killed for run in cut_off):
        dropped.append("no Executor was killed in the middle of a task")
    return [
        Check("ended in SUCCESS", len(done), failed if done else ["no task"]),
        Check("equal to direct hashing", len(done) - len(wrong), wrong),
        Check("lost", len(lost), lost),
        Check("run twice at a time", len(overlaps), overlaps),
        Check("killed, then run again", len(cut_off), dropped),
    ]


def _lost(ending: Ending, runs: Sequence[Execution]) -> Iterator[str]:
    if ending.status is None:
        yield f"{ending}: Duly does not know the task"
    elif not ending.status.is_final:
        yield f"{ending}: still {ending.status.name}"
    elif ending.status is TaskStatus.SUCCESS and not any(run.succeeded for run in runs):
        yield f"{ending}: SUCCESS, but no execution of it succeeded"


def _overlaps(ending: Ending, runs: Sequence[Execution]) -> Iterator[str]:
    """Yield the task's first overlap, by the times in the log or by the task's file lock.

    A killed execution logged no end. Only the lock proves that it was over when the next one began.
    """
    latest = 0
    for run in runs:
        if not run.alone:
            yield f"{ending}: fence {run.fence} began while another execution held the task's lock"
            return
        if run.started_ns < latest:
            early = (latest - run.started_ns) / 1e6
            yield f"{ending}: fence {run.fence} began {early:.3f} ms before an earlier execution ended"
            return
        latest = max(latest, run.ended_ns or 0)


def _dropped(cut_off: Execution, runs: Sequence[Execution], killed: int | None) -> Iterator[str]:
    if cut_off.executor != killed:
        yield f"task {cut_off.task_id}: it has no end, and its Executor {cut_off.executor} was not killed"
    if not any(run.succeeded and run.executor != killed and run.fence > cut_off.fence for run in runs):
        yield f"task {cut_off.task_id}: no other Executor ran it again"
