"""C19, keys of one lambda take turns: a key with a due task waits for at most a round of the others.

Only stretches are judged in which nothing was done to those who pick, to the store or to its clock: there a pick may be lost, or
what it locked may stay locked.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from duly_core.tasks.lifecycle import HELD, Status
from tests.chaos.checker.cases import Case
from tests.chaos.checker.lines import Lines
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import SECOND, History, Transition

_SEEN_NS = SECOND // 4
"""A pick that began before a task was committed may be written so much later."""
_FOUND_NS = SECOND * 3 // 2
"""The same of a task without a key, which the Store Consumer finds each second."""
_BEGUN_NS = 4 * SECOND
"""Turns begin two seconds after the first task with a key."""
_AFTERMATH_NS = 3 * SECOND
_OF_PICKERS = ("hsc", "server", "store-consumer", "postgres", "machine", "queue")
_ANYWHERE = ("point_", "claim_", "clock_", "sqs_")


class Pick(NamedTuple):
    """A task was given its turn."""

    sequence: int
    txid: int
    task_id: str
    key: str


class Wait(NamedTuple):
    """A task that waited for its first turn while nothing was broken."""

    task_id: str
    key: str
    since: int
    """By the sequence of the moves."""
    pick: Pick


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
    waits = []
    for case in fair:
        pick, joined = first.get(case.task_id), case.transitions[0]
        if pick is None or case.acked is None or joined.after != Status.NEW:
            continue
        seen_ns = _SEEN_NS if case.acked.fair_key else _FOUND_NS
        since_ns = max(joined.at_ns + seen_ns, begun_ns + _BEGUN_NS)
        place = bisect_left(instants, since_ns)
        if place == len(moves) or moves[place].sequence >= pick.sequence:
            continue
        until_ns = next(move.at_ns for move in case.transitions if move.sequence == pick.sequence)
        if not _is_disturbed(history, joined.at_ns, until_ns):
            waits.append(Wait(case.task_id, case.acked.fair_key, moves[place].sequence, pick))
    return picks, waits


def fair_keys(history: History, cases: Mapping[str, Case], lines: Lines) -> Iterator[Violation]:
    """C19 of each task that waited."""
    picks, waits = waits_of(history, cases)
    of_key: dict[str, list[int]] = defaultdict(list)
    for pick in picks:
        of_key[pick.key].append(pick.sequence)
    sequences = [pick.sequence for pick in picks]
    for wait in waits:
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
        and (fault.kind.startswith(_ANYWHERE) or any(name in fault.target for name in _OF_PICKERS))
        for fault in history.faults
    ) or any(before <= until_ns and from_ns <= after for before, after in history.clock_moves)


def _shown(case: Case, wait: Wait) -> list[Transition]:
    return [case.transitions[0], *(move for move in case.transitions if move.sequence == wait.pick.sequence)]
