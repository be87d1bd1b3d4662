"""C7, every live row is looked at again; C9, nothing leaks."""

from collections.abc import Iterator

from duly_core.tasks.lifecycle import HELD, LIVE, Status
from tests.chaos.checker.cases import Case
from tests.chaos.checker.limits import OF_SESSION
from tests.chaos.checker.lines import Lines
from tests.chaos.checker.moves import clock_was_moved
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import History, Limits, Transition


def triggers(history: History, case: Case, lines: Lines) -> Iterator[Violation]:
    """C7 of one task: at every write of a trigger."""
    slack = history.limits.clock_slack_ns
    for move in case.transitions:
        if move.after not in LIVE:
            continue
        if move.trigger_in_ns is not None and move.trigger_in_ns == move.trigger_before_in_ns:
            continue  # left as it was, and judged when it was written: the clock may have been set back since
        bound = _bound_ns(history.limits, move)
        if move.trigger_in_ns is not None and clock_was_moved(history, move):
            continue
        if move.after == Status.WAITING and move.before in HELD and case.acked is None:
            continue  # nobody knows how long its callback waits for an event
        is_entering = (move.parked_on or "").startswith(OF_SESSION)  # its session, which is done at once
        if (
            move.after == Status.WAITING
            and move.before != Status.WAITING
            and case.acked is not None
            and not is_entering
        ):
            if case.acked.kind == "waits" and move.trigger_in_ns is not None:
                continue  # for an event, as long as its callback says
            if not case.acked.expires_ns:
                yield from _waits_for_another(case, move, lines)
                continue
        elif move.after == Status.WAITING and move.trigger_in_ns is None:
            continue  # nobody knows whether it expires
        if move.trigger_in_ns is None or move.trigger_in_ns > bound + slack:
            when = "never" if move.trigger_in_ns is None else f"in {move.trigger_in_ns / 1e9:.3f} s"
            yield Violation(
                "C7.trigger",
                case.task_id,
                f"a task that is {move.after} is looked at again within {bound / 1e9:.3f} s; it is {when}",
                (lines.transition(move),),
            )


def _waits_for_another(case: Case, move: Transition, lines: Lines) -> Iterator[Violation]:
    """The end of another task releases it, and nothing looks at it before."""
    if move.trigger_in_ns is not None:
        yield Violation(
            "C7.trigger",
            case.task_id,
            f"what waits and does not expire has no trigger; it has one in {move.trigger_in_ns / 1e9:.3f} s",
            (lines.transition(move),),
        )


def _bound_ns(limits: Limits, move: Transition) -> int:
    if move.after == Status.CLAIMED:
        return limits.claim_timeout_ns
    if move.after == Status.PROCESSING:
        return limits.heartbeat_timeout_ns
    if move.after == Status.ENQUEUED:
        return limits.enqueue_timeout_ns
    return max(0, move.due_in_ns or 0) + limits.longest_wait_ns


def samples(history: History, lines: Lines) -> Iterator[Violation]:
    """C7 at every look, and C9's bounds."""
    limits = history.limits
    for sample in history.samples:
        at = f"looked at {lines.at(sample.at_ns)}"
        if sample.untriggered:
            count = len(sample.untriggered)
            yield Violation(
                "C7.sample",
                "",
                f"every live row has a next trigger in reach; {count} have not",
                (at, *sample.untriggered),
            )
        for what, number, most in (
            ("connections", sample.connections, limits.most_connections),
            ("processes", sample.processes, limits.most_processes),
        ):
            if most and number > most:
                yield Violation(
                    f"C9.{what}", "", f"there are {most} {what} at most; there were {number}", (at,)
                )


def ends(history: History, cases: dict[str, Case]) -> Iterator[Violation]:
    """C9: what is left when all is over."""
    for leftover in history.leftovers:
        yield Violation(
            "C9.leak", "", f"nothing outlives the stop; a {leftover.kind} did", (leftover.description,)
        )
    for line in history.unreadable:
        yield Violation("C0.journal", "", "each line of the journal is a record", (line,))
    for case in cases.values():
        if case.final is None and case.acked is None and not case.executions:
            yield Violation(
                "C1.vanished", case.task_id, "a task that was written is in the tables; it is gone"
            )
