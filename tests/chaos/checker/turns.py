"""Sessions as they were: the tasks of each in the order in which they joined it, with what became of them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from duly_core.tasks.lifecycle import FINAL, LIVE, Status
from tests.chaos.checker.cases import Case, Claim
from tests.chaos.history import Transition

NOT_YET_NS = 2**62
"""Later than anything: what stands before a task in its session did not end."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A task in its session, from when it joined to when it left: a task that is redriven joins again."""

    joined: Transition
    ended: Transition | None
    """None: it had not ended when the audit was read."""
    claims: tuple[Claim, ...]
    was_parked: bool = False
    """When it ended: it was the first, and waited for units of a resource."""

    @property
    def task_id(self) -> str:
        return self.joined.task_id

    @property
    def left(self) -> float:
        """The sequence of its end."""
        return self.ended.sequence if self.ended is not None else float("inf")

    @property
    def failed_as_head(self) -> bool:
        """Whether it ended as fatal_failure when it might have run: its policy decides then."""
        ended = self.ended
        return (
            ended is not None
            and ended.after == Status.FATAL_FAILURE
            and (ended.before != Status.WAITING or self.was_parked)
        )


def turns_of(cases: Mapping[str, Case]) -> dict[str, list[Turn]]:
    """Return the turns of each session, the first first.

    Who joins holds the lock of the session's row until the commit. So the audit has transactions in their order, and
    within one the place in the session decides.
    """
    found: dict[str, list[Turn]] = defaultdict(list)
    for case in cases.values():
        for turn in _turns(case):
            found[turn.joined.session].append(turn)
    return {key: _in_order(turns) for key, turns in found.items()}


def note_releases(cases: Mapping[str, Case], turns: Mapping[str, list[Turn]]) -> None:
    """Write into each case when all that stood before it in its session had ended."""
    for line in turns.values():
        latest_ns = 0
        for turn in line:
            cases[turn.task_id].released_ns = latest_ns
            latest_ns = max(latest_ns, turn.ended.at_ns if turn.ended is not None else NOT_YET_NS)


def _turns(case: Case) -> Iterable[Turn]:
    joined: Transition | None = None
    before: Transition | None = None
    for move in case.transitions:
        # a node joins long after it was written: once what it waits for lets it run
        if move.session and joined is None and move.after in LIVE:
            joined = move
        elif joined is not None and (move.after in FINAL or not move.after):
            yield _turn(case, joined, move, was_parked=before is not None and bool(before.parked_on))
            joined = None
        before = move
    if joined is not None:
        yield _turn(case, joined, None)


def _turn(case: Case, joined: Transition, ended: Transition | None, *, was_parked: bool = False) -> Turn:
    until = ended.sequence if ended is not None else float("inf")
    claims = tuple(claim for claim in case.claims if joined.sequence < claim.begun.sequence < until)
    return Turn(joined, ended, claims, was_parked)


def _in_order(turns: list[Turn]) -> list[Turn]:
    first: dict[int, int] = {}
    for turn in turns:
        joined = turn.joined
        first[joined.txid] = min(joined.sequence, first.get(joined.txid, joined.sequence))
    return sorted(turns, key=lambda turn: (first[turn.joined.txid], turn.joined.session_seq))
