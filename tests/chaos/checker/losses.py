"""C1, nothing is lost and every end is right; C6, everything ends in time."""

from collections.abc import Iterator

from duly_core.tasks.lifecycle import Status
from duly_wire.enums import FailureKind
from tests.chaos.checker.cases import Case
from tests.chaos.checker.lines import Lines
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import SUCCEEDED, AckedTask, FinalRow, History


def bound_ns(history: History, case: Case) -> int:
    """When a task must be final at the latest."""
    limits, acked = history.limits, case.acked
    free_ns = max(history.healed_ns, case.released_ns)
    if acked is None:
        return free_ns + limits.liveness_ns
    return max(free_ns, acked.acked_ns, acked.due_ns) + limits.liveness_ns + acked.longest_ns


def losses(history: History, case: Case, lines: Lines) -> Iterator[Violation]:
    """C1 and C6 of one task."""
    row, acked = case.final, case.acked
    shown = [lines.final(row), *map(lines.transition, case.transitions[-3:])]

    def violation(rule: str, expected: str) -> Violation:
        return Violation(rule, case.task_id, expected, tuple(shown))

    if row is None:
        if acked is not None and acked.purge_asked and case.transitions:
            if case.end is None:
                yield violation("C15.purge", "PurgeTasks deletes what has ended; it had not")
        elif acked is not None:
            yield violation(
                "C1.lost", f"a {acked.kind} task that was acknowledged is in the tables; it is gone"
            )
        elif case.executions:
            shown[1:] = map(lines.execution, case.executions[:3])
            yield violation("C1.unknown", "only tasks that are stored run; this one ran and is not")
        return
    in_time = history.limits.starved_ns <= history.limits.most_starved_ns  # else the run is inconclusive
    if not row.status:
        if in_time and bound_ns(history, case) <= history.finished_ns:  # else it is, too
            what = f"a {acked.kind} task" if acked else "a task (never acknowledged)"
            yield violation(
                "C1.lost", f"{what} ends; it is still {row.assoc_status or 'in no status at all'}"
            )
        return
    if row.status == Status.SUCCESS:
        yield from _success(case, lines)
    if acked is not None:
        for rule, expected in _ending(case, acked, row):
            yield violation(rule, expected)
    if acked is not None and in_time and history.limits.start_ns and case.claims:
        due_ns = max(acked.acked_ns, acked.due_ns, case.released_ns, case.unparked_ns)
        late = (case.claims[0].begun.at_ns - due_ns - history.limits.start_ns) / 1e9
        if late > 0:
            yield violation(
                "C6.start", f"nothing keeps it from its start; it was {late:.3f} s later than the bound"
            )
    if case.end is not None and in_time and case.end.at_ns > bound_ns(history, case):
        late = (case.end.at_ns - bound_ns(history, case)) / 1e9
        yield violation("C6.late", f"it ends within the bound after the last heal; it was {late:.3f} s late")


def _success(case: Case, lines: Lines) -> Iterator[Violation]:
    claim = case.ending_claim
    if claim is None or not any(execution.outcome == SUCCEEDED for execution in claim.executions):
        under = f"fence {claim.fence}" if claim else "no claim"
        yield Violation(
            "C1.unproven",
            case.task_id,
            f"a success has an execution that ended well under the claim that wrote it ({under}); there is none",
            (*map(lines.execution, case.executions), lines.final(case.final)),
        )


def _ending(case: Case, acked: AckedTask, row: FinalRow) -> Iterator[tuple[str, str]]:
    if acked.cancel_answered == "cancelled" and row.status != Status.CANCELLED:
        yield "C1.cancel", f"CancelTask answered that it is cancelled; it ended as {row.status}"
        return
    if row.status == Status.CANCELLED and acked.cancel_asked:
        return
    if row.status == Status.DROPPED and acked.graph:
        return  # C13 knows what may be skipped
    if row.status == Status.FATAL_FAILURE:
        if row.failure_kind == FailureKind.EXPIRED and acked.expires_ns:
            return
        if row.failure_kind == FailureKind.QUARANTINED:
            return  # C8 knows who may be quarantined
        if row.failure_kind == FailureKind.BAD_RESULT and acked.attaches:
            return  # C17 knows what may be gone
        if row.failure_kind == FailureKind.SESSION_FAILED and acked.session:
            return  # C10 knows whose failure may end others
    if row.status not in acked.legal:
        legal = " or ".join(sorted(acked.legal))
        yield (
            "C1.ending",
            f"a {acked.kind} task ends as {legal}; it ended as {row.status} (failure kind {row.failure_kind})",
        )
    elif len(case.executions) < acked.least_executions:
        yield (
            "C1.executions",
            f"a {acked.kind} task runs {acked.least_executions} times at least; it ran {len(case.executions)} times",
        )
