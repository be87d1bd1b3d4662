"""C19, keys of one lambda take turns: a key with a due task waits for at most a round of the others.

Only stretches are judged in which nothing was done to those who pick, to the store or to its clock: there a pick may be lost, or
what it locked may stay locked (`tests/chaos/pickers.py`). Hosts and their links may be broken meanwhile, and the machine may be busy.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from duly_core.tasks.lifecycle import HELD, Status
from tests.chaos.checker.cases import Case
from tests.chaos.checker.lines import Lines
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import MACHINE_BUSY, SECOND, History, Transition
from tests.chaos.pickers import reaches_picks

_SEEN_NS = SECOND // 4
"""A pick that began before a task was committed may be written so much later."""
_FOUND_NS = SECOND * 3 // 2
"""The same of a task without a key, which the Store Consumer finds each second."""
_BEGUN_NS = 4 * SECOND
"""Turns begin two seconds after the first task with a key."""
_BUSY_TIMES = 2
"""On a busy machine all of that takes so many times as long."""
_AFTERMATH_NS = 3 * SECOND


class Pick(NamedTuple):
    """A task was given its turn."""

    sequence: int
    txid: int
    task_id: str
    key: str


class Wait(NamedTuple):
    """A task until its first turn, while nothing was done to those who pick."""

    task_id: str
    key: str
    since: int
    """By the sequence of the moves. Beyond that of the pick: its turn came at once."""
    pick: Pick
    is_contended: bool
    """When it came, more tasks of other keys were due than may start before it."""


def waits_of(history: History, cases: Mapping[str, Case]) -> tuple[list[Pick], list[Wait]]:
    """Return all picks, in their order, and each wait that is judged."""
    fair = [
        case
        for case in cases.values()
        if case.acked is not None and case.acked.fair_round and case.transitions
    ]
    picks = sorted(pick for case in fair for pick in _picks(case, with_queue=history.queue == "sqs"))
    moves = history.transitions
    instants: list[int] = []  # of the moves, never back: the first move after an instant is found in it
    for move in moves:
        instants.append(max(move.at_ns, instants[-1] if instants else 0))
    begun_ns = min(
        (case.transitions[0].at_ns for case in fair if case.acked is not None and case.acked.fair_key),
        default=0,
    )
    first = {pick.task_id: pick for pick in reversed(picks)}
    due = _Due(fair, first)
    waits = []
    for case in fair:
        pick, joined = first.get(case.task_id), case.transitions[0]
        if pick is None or case.acked is None or joined.after != Status.NEW:
            continue
        until_ns = next(move.at_ns for move in case.transitions if move.sequence == pick.sequence)
        slower = _BUSY_TIMES if _is_busy(history, joined.at_ns, until_ns) else 1
        if _is_disturbed(history, joined.at_ns, until_ns):
            continue
        seen_ns = _SEEN_NS if case.acked.fair_key else _FOUND_NS
        place = bisect_left(instants, max(joined.at_ns + slower * seen_ns, begun_ns + slower * _BEGUN_NS))
        since = moves[place].sequence if place < len(moves) else pick.sequence + 1
        ahead = due.of_others(case.acked.fair_key, joined.sequence)
        is_contended = ahead > case.acked.fair_round + case.acked.fair_room
        waits.append(Wait(case.task_id, case.acked.fair_key, since, pick, is_contended))
    return picks, waits


class _Due:
    """How many tasks of each key were due: they had come, and had no turn yet."""

    def __init__(self, fair: Sequence[Case], first: Mapping[str, Pick]) -> None:
        self._came: dict[str, list[int]] = defaultdict(list)
        self._picked: dict[str, list[int]] = defaultdict(list)
        for case in fair:
            if case.acked is not None and case.task_id in first:
                self._came[case.acked.fair_key].append(case.transitions[0].sequence)
                self._picked[case.acked.fair_key].append(first[case.task_id].sequence)
        for sequences in (*self._came.values(), *self._picked.values()):
            sequences.sort()

    def of_others(self, key: str, sequence: int) -> int:
        return sum(
            bisect_left(came, sequence) - bisect_left(self._picked[other], sequence)
            for other, came in self._came.items()
            if other != key
        )


def fair_keys(history: History, cases: Mapping[str, Case], lines: Lines) -> Iterator[Violation]:
    """C19 of each task that waited."""
    picks, waits = waits_of(history, cases)
    of_key: dict[str, list[int]] = defaultdict(list)
    for pick in picks:
        of_key[pick.key].append(pick.sequence)
    sequences = [pick.sequence for pick in picks]
    for wait in waits:
        if wait.since >= wait.pick.sequence:
            continue
        acked = cases[wait.task_id].acked
        assert acked is not None
        own = _between(of_key[wait.key], wait)
        # what the same transaction picked has no order: a statement writes its rows by their ids
        between = picks[bisect_left(sequences, wait.since) : bisect_right(sequences, wait.pick.sequence)]
        others = sum(pick.key != wait.key and pick.txid != wait.pick.txid for pick in between)
        most = (own + 1) * acked.fair_round + acked.fair_room
        if others > most:
            yield Violation(
                "C19.starved",
                wait.task_id,
                f"between two starts of key {wait.key!r} at most {acked.fair_round} tasks of other keys start, and at most"
                f" {acked.fair_room} that were being picked; {others} did, and {own} of the key",
                tuple(map(lines.transition, _shown(cases[wait.task_id], wait))),
            )


def _picks(case: Case, *, with_queue: bool) -> Iterator[Pick]:
    key = case.acked.fair_key if case.acked is not None else ""
    for move in case.transitions:
        taken = (
            move.after == Status.ENQUEUED if with_queue else move.after in HELD and move.before not in HELD
        )
        if taken and move.before in (Status.NEW, Status.RETRIABLE_FAILURE):
            yield Pick(move.sequence, move.txid, case.task_id, key)


def _between(sequences: Sequence[int], wait: Wait) -> int:
    return bisect_left(sequences, wait.pick.sequence) - bisect_left(sequences, wait.since)


def _is_disturbed(history: History, from_ns: int, until_ns: int) -> bool:
    """Whether something was done meanwhile, or shortly before, that stops a pick or makes a task due later."""
    return any(
        fault.from_ns <= until_ns
        and from_ns <= fault.until_ns + _AFTERMATH_NS
        and reaches_picks(fault.kind, fault.target)
        for fault in history.faults
    ) or any(before <= until_ns and from_ns <= after for before, after in history.clock_moves)


def _is_busy(history: History, from_ns: int, until_ns: int) -> bool:
    return any(
        fault.kind == MACHINE_BUSY and fault.from_ns <= until_ns and from_ns <= fault.until_ns + SECOND
        for fault in history.faults
    )


def _shown(case: Case, wait: Wait) -> list[Transition]:
    return [case.transitions[0], *(move for move in case.transitions if move.sequence == wait.pick.sequence)]
