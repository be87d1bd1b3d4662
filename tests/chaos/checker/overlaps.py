"""C2, executions of one task never overlap: by their instants, by the kernel's lock, and by what outlived a claim.

An execution that was killed wrote no end. That it was over when the next one began is proven by the lock, which
the kernel drops when the process is dead; and disproven by any later sign of life of its process.
"""

from collections.abc import Iterator
from itertools import pairwise

from tests.chaos.checker.cases import Case
from tests.chaos.checker.lines import Lines
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import Execution, History


class SignsOfLife:
    """When each callback process was last known to be alive: by its journal, and by who looked."""

    def __init__(self, history: History) -> None:
        self._alive: dict[str, int] = {}
        for execution in history.executions:
            self._note(execution.process, execution.ended_ns or execution.started_ns)
        for seen in history.seen:
            self._note(seen.process, seen.alive_ns)

    def until(self, execution: Execution) -> int:
        """Until when an execution went on for certain: its end, or else the last sign of its process."""
        if execution.ended_ns is not None:
            return execution.ended_ns
        return max(execution.started_ns, self._alive.get(execution.process, 0))

    def _note(self, process: str, at_ns: int) -> None:
        if process:
            self._alive[process] = max(at_ns, self._alive.get(process, 0))


def overlaps(history: History, case: Case, signs: SignsOfLife, lines: Lines) -> Iterator[Violation]:
    """C2 of one task, and the order of its fences."""
    found = list(_overlapping(case, signs, lines))
    yield from found
    if not found:  # else they say the same, and more
        yield from _outlived(history, case, signs, lines)
    for earlier, later in pairwise(case.executions):
        if later.fence < earlier.fence:
            yield Violation(
                "C3.order",
                case.task_id,
                "executions come in the order of their fences",
                (lines.execution(earlier), lines.execution(later)),
            )


def _overlapping(case: Case, signs: SignsOfLife, lines: Lines) -> Iterator[Violation]:
    longest: Execution | None = None  # of those before, the one that went on longest
    for execution in case.executions:
        if not execution.alone:
            yield Violation(
                "C2.lock",
                case.task_id,
                "an execution begins when nobody holds the task's lock; somebody did",
                tuple(map(lines.execution, case.executions)),
            )
        elif longest is not None and signs.until(longest) > execution.started_ns:
            early = signs.until(longest) - execution.started_ns
            ended = longest.ended_ns is not None
            how = "before the one before ended" if ended else "before the last sign of life of the one before"
            yield Violation(
                "C2.times" if ended else "C2.unended",
                case.task_id,
                f"an execution begins after the one before is over; it began {early} ns {how}",
                (lines.execution(longest), lines.execution(execution)),
            )
        if longest is None or signs.until(execution) > signs.until(longest):
            longest = execution


def _outlived(history: History, case: Case, signs: SignsOfLife, lines: Lines) -> Iterator[Violation]:
    """Executions that went on when their claim was no longer theirs: another might have had it by then."""
    slack = history.limits.clock_slack_ns
    for claim in case.claims:
        if claim.ended is None:
            continue
        for execution in claim.executions:
            beyond = signs.until(execution) - claim.ended.at_ns
            if beyond > slack:
                yield Violation(
                    "C2.lease",
                    case.task_id,
                    f"an execution is over when its claim ends; it went on {beyond / 1e9:.6f} s longer",
                    (lines.execution(execution), lines.transition(claim.ended)),
                )
