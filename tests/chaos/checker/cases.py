"""The history by task: what was promised, what ran, what was written, and which claim all that happened under."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import TypeVar

from duly_core.tasks.lifecycle import FINAL, HELD
from tests.chaos.history import AckedTask, Execution, FinalRow, History, Transition

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Claim:
    """The exclusive right to run, from when it was given to when it ended."""

    begun: Transition
    ended: Transition | None
    """None: it had not ended when the audit was read."""
    executions: tuple[Execution, ...]
    """Those of its fence; one at most, if all is well."""

    @property
    def fence(self) -> int:
        return self.begun.fence

    @property
    def attempt(self) -> int:
        """What the callback is to be told."""
        return self.begun.failures + self.begun.crashes + 1


@dataclass(slots=True)
class Case:
    """Everything about one task."""

    task_id: str
    acked: AckedTask | None = None
    executions: list[Execution] = field(default_factory=list)
    """In the order of their starts."""
    transitions: list[Transition] = field(default_factory=list)
    """In the order of their sequence."""
    final: FinalRow | None = None
    claims: list[Claim] = field(default_factory=list)
    released_ns: int = 0
    """When all that stood before it in its session had ended (`turns.note_releases`); 0: nothing did."""

    @property
    def unparked_ns(self) -> int:
        """When it was released from the last resource that it was parked on before its first claim; 0: it never was."""
        first = self.claims[0].begun.sequence if self.claims else float("inf")
        moves = [move for move in self.transitions if move.sequence < first]
        return max((after.at_ns for before, after in pairwise(moves) if before.parked_on), default=0)

    @property
    def end(self) -> Transition | None:
        """The transition to the final status that it has at last."""
        last = self.transitions[-1] if self.transitions else None
        return last if last is not None and last.after in FINAL else None

    @property
    def ending_claim(self) -> Claim | None:
        """The claim that the end was written under; None: it ended while nobody held it."""
        return (
            next((claim for claim in reversed(self.claims) if claim.ended is self.end), None)
            if self.end
            else None
        )


def cases_of(history: History) -> dict[str, Case]:
    """Every task that is known from anywhere."""
    acked = _by_task(history.acked)
    executions = _by_task(sorted(history.executions, key=attrgetter("started_ns")))
    transitions = _by_task(sorted(history.transitions, key=attrgetter("sequence")))
    final = _by_task(history.final)
    cases = {}
    for task_id in {*acked, *executions, *transitions, *final}:
        case = Case(
            task_id,
            acked[task_id][0] if task_id in acked else None,
            executions.get(task_id, []),
            transitions.get(task_id, []),
            final[task_id][0] if task_id in final else None,
        )
        case.claims = list(_claims(case))
        cases[task_id] = case
    return cases


def starts_claim(transition: Transition) -> bool:
    """Whether it gives somebody the task."""
    return transition.after in HELD and transition.before not in HELD


def ends_claim(transition: Transition) -> bool:
    """Whether it takes the task from its holder."""
    return transition.before in HELD and transition.after not in HELD


def _claims(case: Case) -> Iterator[Claim]:
    by_fence = defaultdict(list)
    for execution in case.executions:
        by_fence[execution.fence].append(execution)
    begun: Transition | None = None
    for transition in case.transitions:
        if starts_claim(transition):
            if begun is not None:
                yield Claim(begun, None, tuple(by_fence.get(begun.fence, ())))
            begun = transition
        elif ends_claim(transition) and begun is not None:
            yield Claim(begun, transition, tuple(by_fence.get(begun.fence, ())))
            begun = None
    if begun is not None:
        yield Claim(begun, None, tuple(by_fence.get(begun.fence, ())))


def _by_task(items: "tuple[_Item, ...] | list[_Item]") -> dict[str, list[_Item]]:
    of: Callable[[_Item], str] = attrgetter("task_id")
    found: dict[str, list[_Item]] = defaultdict(list)
    for item in items:
        found[of(item)].append(item)
    return dict(found)
