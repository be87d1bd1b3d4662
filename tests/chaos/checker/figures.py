"""Numbers about a run, for its report."""

from collections import Counter
from collections.abc import Sequence

from duly_core.tasks.lifecycle import FINAL, Status
from tests.chaos.checker.cases import Case
from tests.chaos.checker.fair_keys import waits_of
from tests.chaos.checker.moves import by_silence
from tests.chaos.history import History

_AGAIN = {Status.ENQUEUED, Status.RETRIABLE_FAILURE}


def figures_of(history: History, cases: dict[str, Case]) -> dict[str, float]:
    """What happened, counted; times in seconds."""
    figures: dict[str, float] = {
        "tasks": len(history.acked),
        "unacknowledged": sum(case.acked is None for case in cases.values()),
        "executions": len(history.executions),
        "cut_off": sum(execution.ended_ns is None for execution in history.executions),
        "transitions": len(history.transitions),
        "claims": sum(len(case.claims) for case in cases.values()),
        "faults": len(history.faults),
        "in_sessions": sum(bool(task.session) for task in history.acked),
        "limited": sum(bool(task.resources) for task in history.acked),
        "parked": sum(any(move.parked_on for move in case.transitions) for case in cases.values()),
        "waited": sum(
            any(move.after == Status.WAITING for move in case.transitions) for case in cases.values()
        ),
        "fair_waits": sum(wait.is_contended for wait in waits_of(history, cases)[1]),
        "graphs": len(history.graphs),
        "nodes": len(history.nodes),
        "skipped": sum(row.skipped for row in history.graphs),
        "ticks": len(history.ticks),
        "changed": sum(bool(change.acked_ns) for change in history.changes),
        "files_read": sum(bool(each.got) for each in history.file_reads),
        "files_refused": sum(bool(each.refused) for each in history.file_reads),
        "files_kept": len(history.file_uses),
        "reclaims": sum(by_silence(move) and move.after in _AGAIN for move in history.transitions),
        "again": sum(max(0, len(case.executions) - 1) for case in cases.values()),
    }
    ends = Counter(row.status for row in history.final if row.status in FINAL)
    figures |= {f"ended_{status}": ends[status] for status in sorted(ends)}
    late = sorted(_lateness(cases))
    if late:
        figures |= {
            "start_p50_s": _share(late, 0.5),
            "start_p99_s": _share(late, 0.99),
            "start_max_s": late[-1],
        }
    if history.samples:
        figures["most_connections"] = max(sample.connections for sample in history.samples)
        figures["most_processes"] = max(sample.processes for sample in history.samples)
    settled = [case.end.at_ns for case in cases.values() if case.end is not None]
    if settled:
        figures["settled_after_heal_s"] = round(max(0, max(settled) - history.healed_ns) / 1e9, 3)
    return figures


def _lateness(cases: dict[str, Case]) -> list[float]:
    """From when a task could start to when it did for the first time."""
    return [
        round(
            (
                case.executions[0].started_ns
                - max(case.acked.acked_ns, case.acked.due_ns, case.released_ns, case.unparked_ns)
            )
            / 1e9,
            3,
        )
        for case in cases.values()
        if case.acked is not None and case.executions
    ]


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
