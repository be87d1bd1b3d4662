"""Judges a run: what Duly says against the execution log and against the files. Pure: all that it looks at is given.

Lost: a task that Duly took and that did not end, or that no execution in the log ended for.
Concurrent: an execution that began while another one of the same task was not over.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from duly_local.demo.executions import Execution
from duly_local.demo.files import Facts

SUCCESS = "SUCCESS"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a task stands at the end, as Duly tells it."""

    task_id: str
    path: str
    status: str
    """The name of its status; empty: Duly does not know it."""
    is_final: bool
    result: Any = None
    failure: str = ""


@dataclass(slots=True)
class Findings:
    """What was found, each fault in words."""

    succeeded: int = 0
    """Tasks that ended in SUCCESS."""
    compared: int = 0
    """Those of them whose result was held against its file."""
    lost: list[str] = field(default_factory=list)
    concurrent: list[str] = field(default_factory=list)
    """Of each task the first time."""
    wrong: list[str] = field(default_factory=list)
    """Results that are not what reading the file gives."""
    failed: list[str] = field(default_factory=list)
    """Tasks that ended, but not in SUCCESS."""
    unexplained: list[str] = field(default_factory=list)
    """What the log holds and nothing that happened explains."""
    changed: list[str] = field(default_factory=list)
    """Files that changed while the demo ran; nothing can be said about their tasks' results. No fault."""


def check(
    endings: Sequence[Ending],
    executions: Sequence[Execution],
    facts: Mapping[str, Facts | None],
    killed: Collection[int],
) -> Findings:
    """Hold them against each other.

    `facts` by path; None: the file changed meanwhile. `killed`: the callback processes that were killed.
    """
    findings = Findings(changed=sorted(path for path, fact in facts.items() if fact is None))
    by_task: dict[str, list[Execution]] = defaultdict(list)
    for execution in sorted(executions, key=lambda execution: execution.started_boot_ns):
        by_task[execution.task_id].append(execution)
    for ending in endings:
        _check_ending(findings, ending, by_task.get(ending.task_id, ()), facts[ending.path])
    paths = {ending.task_id: ending.path for ending in endings}
    for task_id, of_task in by_task.items():
        name = paths.get(task_id, "")
        if not name:
            findings.unexplained.append(f"task {task_id} ran, and was never scheduled")
        findings.concurrent += list(_concurrent(f"{name} ({task_id})", of_task))[:1]
        findings.unexplained += _unexplained(f"{name} ({task_id})", of_task, killed)
    return findings


def _check_ending(
    findings: Findings, ending: Ending, executions: Iterable[Execution], facts: Facts | None
) -> None:
    name = f"{ending.path} ({ending.task_id})"
    if not ending.status:
        findings.lost.append(f"{name}: Duly does not know the task any more")
    elif not ending.is_final:
        findings.lost.append(f"{name}: still {ending.status}")
    elif ending.status != SUCCESS:
        if facts is not None:  # else the callback found it changed, or gone, and said so
            findings.failed.append(f"{name}: {ending.status}: {ending.failure}")
    elif not any(execution.succeeded for execution in executions):
        findings.lost.append(f"{name}: SUCCESS, but no execution of it ended well")
    else:
        findings.succeeded += 1
        _compare(findings, ending, facts)


def _compare(findings: Findings, ending: Ending, facts: Facts | None) -> None:
    if facts is not None:
        findings.compared += 1
        expected = {"sha256": facts.sha256, "size": facts.size, "lines": facts.lines}
        if ending.result != expected:
            name = f"{ending.path} ({ending.task_id})"
            findings.wrong.append(f"{name}: the result is {ending.result}, the file says {expected}")


def _concurrent(name: str, executions: Sequence[Execution]) -> Iterable[str]:
    """Two independent proofs: the instants in the log, and the kernel's locks.

    An execution that a kill cut off wrote no end. That it was over when the next one began is proven by
    the lock alone, which the kernel drops when the process is dead.
    """
    latest: Execution | None = None  # of those that ended, the last to end
    for execution in executions:
        if not execution.alone:
            yield f"{name}: fence {execution.fence} began while another execution held the task's lock"
        elif latest and latest.ended_boot_ns and latest.ended_boot_ns > execution.started_boot_ns:
            early = (latest.ended_boot_ns - execution.started_boot_ns) / 1e6
            yield f"{name}: fence {execution.fence} began {early:.3f} ms before fence {latest.fence} ended"
        if execution.ended_boot_ns and (
            latest is None or execution.ended_boot_ns > (latest.ended_boot_ns or 0)
        ):
            latest = execution


def _unexplained(name: str, executions: Sequence[Execution], killed: Collection[int]) -> Iterable[str]:
    for execution in executions:
        if execution.ended_boot_ns is None and execution.pid not in killed:
            yield f"{name}: never ended in process {execution.pid}, which was not killed"
    for earlier, later in pairwise(executions):
        if later.fence <= earlier.fence:
            yield f"{name}: ran with fence {later.fence} after fence {earlier.fence}"
