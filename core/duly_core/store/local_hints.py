"""Hints between services of one process: a function call where separate processes use NOTIFY."""

from collections.abc import Callable, Collection
from datetime import timedelta

Hear = Callable[[timedelta, Collection[str]], bool]
"""Takes how far ahead something is due, and of which lambdas (empty: any). Returns whether it will be served here."""


class LocalHints:
    """Connects those who make tasks due with those who look for due tasks, in one event loop."""

    def __init__(self) -> None:
        self._hearers: list[Hear] = []

    def subscribe(self, hear: Hear) -> None:
        """Call `hear` for each hint from now on."""
        self._hearers.append(hear)

    def send(self, ahead: timedelta, lambdas: Collection[str]) -> bool:
        """Pass a hint on; True if somebody in this process serves it, so that no other process must hear of it."""
        served = [hear(ahead, lambdas) for hear in self._hearers]  # all of them hear, whoever serves it
        return any(served)
