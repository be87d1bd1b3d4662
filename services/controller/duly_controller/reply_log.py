"""What an Executor's latest calls of NextWork were answered, for it may not have got the answer."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from duly_core.task import TaskId, Token

_REMEMBERED = 64
"""An Executor has two calls open, and tells of one that failed with the next."""


HeldClaim: TypeAlias = tuple[TaskId, Token]
"""A claim that an Executor has."""


class ReplyLog:
    """Calls by the numbers that the Executor gave them; 0 is none."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._given_up: set[int] = set()
        self._answered: dict[int, Sequence[HeldClaim]] = {}

    def begin(self, call: int) -> None:
        """It came."""
        self._open.add(call)

    def end(self, call: int) -> None:
        """It was answered, one way or the other."""
        self._open.discard(call)
        self._given_up.discard(call)

    def answer(self, call: int, claims: Sequence[HeldClaim]) -> bool:
        """It is to be answered with these; False: nobody waits for it any more."""
        if call in self._given_up:
            return False
        if call:
            self._answered[call] = claims
            while len(self._answered) > _REMEMBERED:
                del self._answered[next(iter(self._answered))]
        return True

    def unanswered(self, calls: Iterable[int]) -> list[HeldClaim]:
        """The Executor gave these calls up; the claims that it never got."""
        lost: list[HeldClaim] = []
        for call in calls:
            if call in self._open:
                self._given_up.add(call)  # it may still be cancelled; its answer must go nowhere
            lost += self._answered.pop(call, ())
        return lost
