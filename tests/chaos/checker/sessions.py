"""C10, tasks of one session run one at a time and in order, and a session lives as long as its tasks."""

from collections.abc import Iterator, Mapping

from duly_core.tasks.lifecycle import Status
from duly_wire.enums import FailureKind, SessionPolicy
from tests.chaos.checker.cases import Case
from tests.chaos.checker.lines import Lines
from tests.chaos.checker.overlaps import SignsOfLife
from tests.chaos.checker.turns import Turn
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import AckedTask, Execution, History, SessionRow


def membership(case: Case, lines: Lines) -> Iterator[Violation]:
    """What C10 says about single tasks."""
    if case.acked is not None and case.transitions and not _is_member(case, case.acked):
        key = case.acked.session
        yield Violation(
            "C10.session",
            case.task_id,
            f"a task is in the session that it was scheduled in ({key or 'none'}); it was in"
            f" {case.transitions[0].session or 'none'}",
            (lines.transition(case.transitions[0]),),
        )
    for move in case.transitions:
        if move.after == Status.WAITING and move.token:
            yield Violation(
                "C10.waiting", case.task_id, "what waits for its turn has no claim", (lines.transition(move),)
            )


def _is_member(case: Case, acked: AckedTask) -> bool:
    """Whether it is in its session: a node from when it may run, so that what runs has its session."""
    if not acked.graph:
        return case.transitions[0].session == acked.session
    found = {move.session for move in case.transitions} - {""}
    return found <= {acked.session} and all(claim.begun.session == acked.session for claim in case.claims)


def sessions(
    history: History,
    cases: Mapping[str, Case],
    turns: Mapping[str, list[Turn]],
    signs: SignsOfLife,
    lines: Lines,
) -> Iterator[Violation]:
    """C10 of all sessions."""
    for key in sorted(turns):
        yield from _one_at_a_time(turns[key], signs, lines)
        yield from _rest(turns[key], cases, lines)
    for row in history.sessions:
        yield from _left(row, turns, cases)


def _one_at_a_time(line: list[Turn], signs: SignsOfLife, lines: Lines) -> Iterator[Violation]:
    latest: Turn | None = None  # of those before, the one that left last
    longest: Execution | None = None  # of theirs, the one that went on longest
    for turn in line:
        claim = next(iter(turn.claims), None)
        if claim is not None and latest is not None and claim.begun.sequence < latest.left:
            earlier = next(iter(latest.claims), None)
            in_order = earlier is not None and earlier.begun.sequence < claim.begun.sequence
            what = "it was claimed while that one lived" if in_order else "it was claimed first"
            shown = [lines.transition(claim.begun), lines.transition(latest.joined)]
            shown += [lines.transition(latest.ended)] if latest.ended is not None else []
            yield Violation(
                "C10.overlap" if in_order else "C10.order",
                turn.task_id,
                f"it runs when {latest.task_id}, before it in session {turn.joined.session}, has ended; {what}",
                tuple(shown),
            )
        elif (first := _first(turn)) is not None and longest is not None:
            early_s = (signs.until(longest) - first.started_ns) / 1e9
            if early_s > 0:
                yield Violation(
                    "C10.overlap",
                    turn.task_id,
                    f"it runs when the run of {longest.task_id}, before it in session {turn.joined.session}, is over;"
                    f" it began {early_s:.6f} s before",
                    (lines.execution(longest), lines.execution(first)),
                )
        if latest is None or turn.left > latest.left:
            latest = turn
        for each in _executions(turn):
            if longest is None or signs.until(each) > signs.until(longest):
                longest = each


def _rest(line: list[Turn], cases: Mapping[str, Case], lines: Lines) -> Iterator[Violation]:
    """The failure of a task of FAIL_REST ends those that wait at that moment, as SESSION_FAILED."""
    failed: Turn | None = None  # the last that failed so
    for turn in line:
        row = cases[turn.task_id].final
        kind = row.failure_kind if row is not None and row.status == Status.FATAL_FAILURE else 0
        ends_so = kind == FailureKind.SESSION_FAILED
        waited = (
            failed is not None
            and failed.ended is not None
            and (turn.joined.sequence < failed.ended.sequence < turn.left)
        )
        acked = cases[turn.task_id].acked
        if waited and acked is not None and acked.cancel_asked and turn.ended is not None:
            waited = turn.ended.after != Status.CANCELLED  # it was cancelled before the failure had ended it
        marked = any(move.doom for move in cases[turn.task_id].transitions)
        if waited and turn.ended is None and not marked and failed is not None and failed.ended is not None:
            yield Violation(
                "C10.rest",
                turn.task_id,
                f"it waited in session {turn.joined.session} when {failed.task_id} failed, and is to end with it;"
                " the failure did not mark it",
                (lines.transition(turn.joined), lines.transition(failed.ended)),
            )
        if turn.ended is not None and ends_so != waited:
            expected = (
                f"it waited in session {turn.joined.session} when {failed.task_id} failed, and ends with it"
                if waited and failed is not None
                else "only the failure of a task that it waits for ends it as SESSION_FAILED; there is none"
            )
            shown = [lines.transition(turn.joined), lines.transition(turn.ended), lines.final(row)]
            shown += (
                [lines.transition(failed.ended)] if failed is not None and failed.ended is not None else []
            )
            yield Violation("C10.rest", turn.task_id, expected, tuple(shown))
        if turn.failed_as_head and turn.joined.session_policy == SessionPolicy.FAIL_REST:
            failed = turn


def _left(row: SessionRow, turns: Mapping[str, list[Turn]], cases: Mapping[str, Case]) -> Iterator[Violation]:
    finals = [cases[turn.task_id].final for turn in turns.get(row.key, ())]
    if not any(final is not None and final.assoc_status for final in finals):
        yield Violation(
            "C10.left",
            "",
            f"a session is gone when its last task has ended; {row.key} is left with a length of {row.length}",
            (f"head {row.head or '(none)'}, blocked by {row.blocked_by or '(none)'}",),
        )


def _executions(turn: Turn) -> Iterator[Execution]:
    for claim in turn.claims:
        yield from claim.executions


def _first(turn: Turn) -> Execution | None:
    return min(_executions(turn), key=lambda each: each.started_ns, default=None)
