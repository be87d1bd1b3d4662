"""How long work stood still because of a fault: from the history of a run, pure."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from tests.chaos.history import AckedTask, Fault, History

_AFTER_NS = 10 * 10**9
"""So long after a fault was healed, what stands still is its doing."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Of one fault."""

    fault: Fault
    acked_s: float
    """The longest time in which no task was acknowledged."""
    started_s: float
    """The longest time in which no task started that was acknowledged after the fault began."""
    slowest_s: float
    """The longest time from the acknowledgement of a task of that window to its start."""
    busy: bool
    """The machine had no time for the system meanwhile."""


def flows(history: History) -> list[Flow]:
    """One for each fault, in their order."""
    started: dict[str, int] = {}
    for execution in history.executions:
        before = started.get(execution.task_id)
        started[execution.task_id] = min(execution.started_ns, before or execution.started_ns)
    plain = [task for task in history.acked if _is_due_at_once(task)]
    faults = sorted(
        (fault for fault in history.faults if fault.kind != "machine_busy"), key=lambda each: each.from_ns
    )
    traffic_ends_ns = max((task.acked_ns for task in history.acked), default=0)
    busy = [fault for fault in history.faults if fault.kind == "machine_busy"]
    found = []
    for number, fault in enumerate(faults):
        ends_ns = min(
            [
                fault.until_ns + _AFTER_NS,
                history.healed_ns,
                max(traffic_ends_ns, fault.from_ns),
                *(each.from_ns for each in faults[number + 1 : number + 2]),
            ]
        )
        window = [task for task in plain if fault.from_ns <= task.acked_ns < ends_ns]
        starts = [started[task.task_id] for task in window if task.task_id in started]
        waits = [started[task.task_id] - task.acked_ns for task in window if task.task_id in started]
        found.append(
            Flow(
                fault,
                _longest(fault.from_ns, ends_ns, (task.acked_ns for task in window)),
                _longest(fault.from_ns, ends_ns, starts),
                max(waits, default=0) / 1e9,
                any(each.from_ns < ends_ns and each.until_ns > fault.from_ns for each in busy),
            )
        )
    return found


def _is_due_at_once(task: AckedTask) -> bool:
    """Nothing but the system keeps it from starting."""
    return not (task.due_ns or task.session or task.graph or task.resources or task.expires_ns)


def _longest(from_ns: int, ends_ns: int, instants: Iterable[int]) -> float:
    """The longest stretch between two of these instants, the beginning and the end of the window included; in seconds."""
    inside = sorted(each for each in instants if from_ns <= each <= ends_ns)
    points: Sequence[int] = [from_ns, *inside, ends_ns]
    return max((b - a for a, b in pairwise(points)), default=0) / 1e9


def as_json(found: Iterable[Flow]) -> list[dict[str, Any]]:
    """For a report."""
    return [asdict(flow) for flow in found]


def read_flows(reports: Iterable[dict[str, Any]]) -> list[Flow]:
    """Those of many reports."""
    return [
        Flow(**each | {"fault": Fault(**each["fault"])})
        for report in reports
        for each in report.get("flows", ())
    ]


def table(found: Iterable[Flow]) -> list[str]:
    """A line for each kind of fault: how many, and the median and the longest of each time."""
    by_kind: dict[str, list[Flow]] = {}
    for flow in found:
        by_kind.setdefault(flow.fault.kind.removesuffix("?"), []).append(flow)
    lines = [f"{'fault':<20} {'count':>5}  {'no schedule':>13}  {'no start':>13}  {'slowest start':>13}"]
    for kind in sorted(by_kind):
        group = by_kind[kind]
        columns = [
            _middle_and_most([getattr(each, name) for each in group])
            for name in ("acked_s", "started_s", "slowest_s")
        ]
        lines.append(f"{kind:<20} {len(group):>5}  " + "  ".join(f"{column:>13}" for column in columns))
    return lines


def _middle_and_most(values: list[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:.1f} / {ordered[-1]:.1f} s"
