"""C12, tasks take no more units of a resource than there are, and none stays parked while its units are free.

Whoever takes, frees, parks or releases locks the row of the resource's use until the commit, and the audit's triggers fire
before that. So the audit has these transactions of one resource and key in their order.

A release never waits for a task that somebody has locked: it marks the row of the use, and the Store Consumer releases the task
later. While a resource has this mark, a task that fits may stay parked.
"""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from duly_core.tasks.lifecycle import FINAL, HELD, READY, Status
from tests.chaos.checker.cases import Case
from tests.chaos.checker.lines import Lines
from tests.chaos.checker.overlaps import SignsOfLife
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import History, PassedOver, Transition, UseRow

_TAKING = HELD | {Status.ENQUEUED}
OF_SESSION = "session:"
"""So the place begins that a node has which is to enter its session."""
_SAME_DUE_NS = 2_000_000
"""Of tasks that were due together nobody knows which is first: the host's clock and the store's differ by less."""


@dataclass(slots=True)
class _Place:
    """A resource, or one of its keys, at one moment."""

    name: str
    capacity: int
    taken: dict[str, int] = field(default_factory=dict)
    """Units by task."""
    parked: dict[str, Transition] = field(default_factory=dict)
    ready: dict[str, Transition] = field(default_factory=dict)
    """What is `new`: it may have been released."""
    last: Transition | None = None
    """The last one of those that had the lock."""
    txid: int | None = None
    """The transaction that has the lock."""
    passes_over: bool = False
    """Whether a task that fits was locked by somebody when it would have been released."""
    told: set[str] = field(default_factory=set)
    """The rules that were broken: each is reported once."""

    @property
    def free(self) -> int:
        return self.capacity - sum(self.taken.values())

    def is_locked_by(self, move: Transition) -> bool:
        """Whether this move takes, frees, parks, releases or puts off; others may come within another transaction."""
        took, takes = move.task_id in self.taken, move.after in _TAKING
        # a node that is to enter its session is parked, too, and locks no resource then
        is_parked = bool(move.parked_on) and not move.parked_on.startswith(OF_SESSION)
        was_parked = move.task_id in self.parked
        return took != takes or was_parked != is_parked or is_put_off(move) or move.after in FINAL

    def note(self, event: Transition | PassedOver) -> None:
        if isinstance(event, PassedOver):
            self.passes_over = event.waits
            return
        move = event
        if self.is_locked_by(move):
            self.last = move
        for kept in (self.taken, self.parked, self.ready):
            kept.pop(move.task_id, None)
        if move.after in _TAKING:
            self.taken[move.task_id] = min(weights(move.resources)[self.name], self.capacity)
        elif move.parked_on == self.name:
            self.parked[move.task_id] = move
        elif move.after == Status.NEW:
            self.ready[move.task_id] = move


def limits(
    history: History, cases: Mapping[str, Case], signs: SignsOfLife, lines: Lines
) -> Iterator[Violation]:
    """C12 of all resources."""
    places: dict[str, _Place] = {}
    for event in heapq.merge(history.transitions, history.passed_over, key=lambda each: each.sequence):
        names = [event.name] if isinstance(event, PassedOver) else [*weights(event.resources)]
        for name in names:
            place = places.setdefault(name, _Place(name, history.limits.capacities[name.partition("/")[0]]))
            if isinstance(event, PassedOver) or place.is_locked_by(event):
                if place.txid not in (None, event.txid):
                    yield from _judge(history, place, lines)
                place.txid = event.txid
            place.note(event)
    for place in places.values():
        yield from _judge(history, place, lines)
    yield from _running(history, cases, signs, lines)
    if not history.clock_moves:
        yield from _starts(history, lines)
    for row in history.uses:
        yield from _left(row, places)


def asked(case: Case, lines: Lines) -> Iterator[Violation]:
    """C12 of one task: it takes what its client asked for."""
    if case.acked is not None and case.transitions and case.transitions[0].resources != case.acked.resources:
        yield Violation(
            "C12.asked",
            case.task_id,
            f"a task takes units of what it names ({case.acked.resources or 'none'}); it took of"
            f" {case.transitions[0].resources or 'none'}",
            (lines.transition(case.transitions[0]),),
        )


def weights(resources: str) -> dict[str, int]:
    """Return how many units are named of each resource and key, which are NAME/ or NAME/KEY."""
    return {name: int(weight) for name, _, weight in (need.rpartition("=") for need in resources.split())}


def _judge(history: History, place: _Place, lines: Lines) -> Iterator[Violation]:
    move = place.last
    if move is None:
        return
    if place.free < 0 and "exceeded" not in place.told:
        place.told.add("exceeded")
        yield Violation(
            "C12.exceeded",
            move.task_id,
            f"there are {place.capacity} units of {place.name}; {place.capacity - place.free} were taken",
            (lines.transition(move), *sorted(place.taken)),
        )
    of_line: dict[str, list[Transition]] = {}
    for parked in place.parked.values():
        of_line.setdefault(parked.line, []).append(parked)
    for line, waiting in of_line.items():
        first_ns = min(map(_due_ns, waiting))
        heaviest = max(
            weights(each.resources)[place.name]
            for each in waiting
            if _due_ns(each) <= first_ns + _SAME_DUE_NS
        )
        fits = place.capacity > 0 and min(heaviest, place.capacity) <= place.free and not place.passes_over
        if "idle" in place.told:
            return
        if fits and not any(
            each.line == line and _is_due(history, each, move.at_ns) for each in place.ready.values()
        ):
            place.told.add("idle")
            yield Violation(
                "C12.idle",
                waiting[0].task_id,
                f"nothing is parked that fits; {place.free} of {place.capacity} units of {place.name} were free",
                (lines.transition(move), *map(lines.transition, waiting[:3])),
            )


def is_put_off(move: Transition) -> bool:
    """Whether a rate gave it a start time. A change by a client leaves its next trigger, or sets it to the due time."""
    if move.before != move.after or move.after not in READY:
        return False
    return move.trigger_in_ns not in (move.trigger_before_in_ns, move.due_in_ns or 0)


def _due_ns(move: Transition) -> int:
    return move.at_ns + (move.due_in_ns or 0) if move.due_at_ns is None else move.due_at_ns


def _is_due(history: History, move: Transition, at_ns: int) -> bool:
    """Whether what is `new` may be picked now: it competes for what is free."""
    if history.clock_moves:
        return True
    return move.at_ns + (move.trigger_in_ns or 0) <= at_ns + history.limits.clock_slack_ns


def _running(
    history: History, cases: Mapping[str, Case], signs: SignsOfLife, lines: Lines
) -> Iterator[Violation]:
    """What the callbacks themselves saw: how many units those have that run at one moment."""
    changes: dict[str, list[tuple[int, int, str]]] = {}
    for case in cases.values():
        # the last has the quota of the lambda among them
        needs = weights(case.transitions[-1].resources) if case.transitions else {}
        for name, weight in needs.items():
            units = min(weight, history.limits.capacities[name.partition("/")[0]])
            for each in case.executions:
                until = signs.until(each) - history.limits.clock_slack_ns
                if until > each.started_ns:
                    changes.setdefault(name, []).append((each.started_ns, units, lines.execution(each)))
                    changes[name].append((until, -units, ""))
    for name, found in changes.items():
        capacity, taken = history.limits.capacities[name.partition("/")[0]], 0
        for _, units, line in sorted(found):  # at the same instant an end comes before a start
            taken += units
            if taken > capacity:
                what = f"there are {capacity} units of {name}; tasks that ran at one moment had {taken}"
                yield Violation("C12.running", "", what, (line,))


_START_TIME_HOLDS_NS = 1_000_000_000
"""How long after its start time a task may still start."""


def _starts(history: History, lines: Lines) -> Iterator[Violation]:
    """Of rates: in no stretch of time more tasks start than the rate and the burst allow."""
    for resource, (pace, burst) in history.limits.paces.items():
        starts = [
            move
            for move in history.transitions
            if f"{resource}/" in weights(move.resources)
            and move.after in _TAKING
            and move.before not in _TAKING
        ]
        slack = _START_TIME_HOLDS_NS + history.limits.statement_ns
        for place, first in enumerate(starts):
            for number, last in enumerate(starts[place:], 1):
                if (number - burst) * pace > last.at_ns - first.at_ns + slack:
                    what = f"{number} tasks of {resource} started in {(last.at_ns - first.at_ns) / 1e9:.3f} s"
                    yield Violation(
                        "C12.rate", last.task_id, what, (lines.transition(first), lines.transition(last))
                    )
                    return


def _left(row: UseRow, places: Mapping[str, _Place]) -> Iterator[Violation]:
    place = places.get(row.name)
    taken = sum(place.taken.values()) if place is not None else 0
    if not row.used == row.held == taken:
        yield Violation(
            "C12.left",
            "",
            f"what is written as taken of {row.name} is what live tasks hold; it is {row.used},"
            f" the holds have {row.held}, the tasks {taken}",
        )
