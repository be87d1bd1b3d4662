"""C15, what UpdateTask answered is in force for each start after the answer, and nothing starts before it is due."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.chaos.checker.cases import Case, Claim
from tests.chaos.checker.lines import Lines
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import Change, History


def changes(history: History, cases: Mapping[str, Case], lines: Lines) -> Iterator[Violation]:
    """C15 of all tasks."""
    asked: dict[str, list[Change]] = defaultdict(list)
    for change in history.changes:
        asked[change.task_id].append(change)
    for task_id in sorted(cases):
        case = cases[task_id]
        if not history.clock_moves:
            yield from _due(history, case, lines)
        for claim in case.claims if case.acked is not None else ():
            yield from _in_force(history, case, claim, asked[task_id], lines)


def _in_force(
    history: History, case: Case, claim: Claim, asked: Sequence[Change], lines: Lines
) -> Iterator[Violation]:
    slack = history.limits.clock_slack_ns
    begun = claim.begun
    sent = [change for change in asked if change.sent_ns <= begun.at_ns + slack]
    answered = [change.edit for change in sent if change.acked_ns and change.acked_ns + slack <= begun.at_ns]
    latest = max(answered, default=0)
    # an earlier one may come late, if a try of it was not answered
    possible = [change for change in sent if change.edit >= latest or change.tries > 1]
    edits = {change.edit for change in possible} | ({0} if not latest else set())
    for execution in claim.executions:
        if execution.edit not in edits:
            yield Violation(
                "C15.update",
                case.task_id,
                f"a run has the payload of the last change that was answered before its start ({latest}); it had that of"
                f" {execution.edit}",
                (lines.execution(execution), lines.transition(begun)),
            )
    scheduled = case.acked.priority if case.acked is not None else 0
    priorities = {change.priority for change in possible} | ({scheduled} if not latest else set())
    if begun.priority and scheduled and begun.priority not in priorities:
        yield Violation(
            "C15.priority",
            case.task_id,
            f"a task has the priority of the last change that was answered before its start ({latest}); it had"
            f" {begun.priority}",
            (lines.transition(begun),),
        )


def _due(history: History, case: Case, lines: Lines) -> Iterator[Violation]:
    """The time that it was moved to counts, as its first one did."""
    for claim in case.claims:
        ahead = claim.begun.due_in_ns
        if ahead is not None and ahead > history.limits.clock_slack_ns:
            yield Violation(
                "C15.due",
                case.task_id,
                f"a task starts when it is due; it was claimed {ahead / 1e9:.6f} s before",
                (lines.transition(claim.begun),),
            )
