"""Hints between services of one process: a function call where separate processes use NOTIFY."""

from collections.abc import Collection
from datetime import timedelta
from typing import Protocol


class Hearer(Protocol):
    """Looks for due tasks in this process."""

    def serves(self, lambdas: Collection[str]) -> bool:
        """Tell whether it would see to whatever is due now of each of these lambdas (empty: of any lambda)."""
        ...

    def hint(self, ahead: timedelta, lambdas: Collection[str]) -> object:
        """Take note that something of these lambdas (empty: of any) is due so far ahead."""
        ...


class LocalHints:
    """Connects those who make tasks due with those who look for due tasks, in one event loop."""

    def __init__(self) -> None:
        self._hearers: list[Hearer] = []

    def subscribe(self, hearer: Hearer) -> None:
        """Pass all hints to `hearer` from now on."""
        self._hearers.append(hearer)

    def serves(self, lambdas: Collection[str]) -> bool:
        """Tell whether a hint of these would be served in this process, so that no other must hear of it."""
        if not lambdas:
            return any(hearer.serves(()) for hearer in self._hearers)
        return all(any(hearer.serves((name,)) for hearer in self._hearers) for name in lambdas)

    def send(self, ahead: timedelta, lambdas: Collection[str]) -> bool:
        """Pass a hint on; True if it is served in this process."""
        served = self.serves(lambdas)
        for hearer in self._hearers:
            hearer.hint(ahead, lambdas)
        return served
