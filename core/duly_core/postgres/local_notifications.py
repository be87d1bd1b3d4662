"""Notifications between services of one process: a function call where separate processes use NOTIFY."""

from collections.abc import Callable, Collection, Hashable
from datetime import timedelta
from typing import Protocol

from duly_core.postgres.listener_group import ListenerGroup
from duly_core.postgres.loop_store import LoopStore
from duly_core.postgres.pool import Row, Step
from duly_core.process.pace import QUIET, USUAL, Lively, Pace


class Subscriber(Protocol):
    """Looks for due tasks in this process."""

    def serves(self, lambdas: Collection[str]) -> bool:
        """Tell whether it would see to whatever is due now of each of these lambdas (empty: of any lambda)."""
        ...

    def note_due(self, ahead: timedelta, lambdas: Collection[str]) -> object:
        """Take note that something of these lambdas (empty: of any) is due so far ahead."""
        ...


class Looker(Protocol):
    """Looks for due tasks, also together with a statement that makes one due."""

    async def run_with_look(self, lambda_name: str, step: Step[Row]) -> list[Row] | None:
        """Do what `LocalNotifications.run_with_look` says."""
        ...


class LocalNotifications:
    """Connects those who make tasks due with those who look for due tasks, in one event loop."""

    def __init__(self, pace: Pace = USUAL) -> None:
        """Make one; `pace` is that of all loops in this process that look at the store."""
        self.pace = pace
        self.loops = LoopStore(pace)
        """For loops that look at the store seldom, where the process has several stores."""
        self.listeners = ListenerGroup() if pace.gives_back else None
        """One connection listens for all services of this process, where it has several stores."""
        self._subscribers: list[Subscriber] = []
        self._lookers: list[Looker] = []
        self._of_stores: dict[Hashable, LocalNotifications] = {}
        self._lively = Lively()

    def of_store(self, key: Hashable) -> "LocalNotifications":
        """Return those of one store, where services of this process have units for several; the same for the same key."""
        return self._of_stores.setdefault(key, LocalNotifications(Pace(QUIET, self._lively)))

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Pass all notifications to `subscriber` from now on, until what is returned is called."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def ask_for_looks(self, looker: Looker) -> Callable[[], None]:
        """Ask `looker` for looks from now on, until what is returned is called."""
        self._lookers.append(looker)
        return lambda: self._lookers.remove(looker)

    def serves(self, lambdas: Collection[str]) -> bool:
        """Tell whether a notification of these would be served in this process, so that no other must hear of it."""
        if not lambdas:
            return any(subscriber.serves(()) for subscriber in self._subscribers)
        return all(any(subscriber.serves((name,)) for subscriber in self._subscribers) for name in lambdas)

    def send(self, ahead: timedelta, lambdas: Collection[str]) -> bool:
        """Pass a notification on; True if it is served in this process."""
        self.pace.stir()
        served = self.serves(lambdas)
        for subscriber in self._subscribers:
            subscriber.note_due(ahead, lambdas)
        return served

    async def run_with_look(self, lambda_name: str, step: Step[Row]) -> list[Row] | None:
        """Run a statement that makes something of this lambda due, and the look that finds it, in one transaction.

        Returns:
            The statement's rows; then nobody must be told of what it made due. None: nobody here would look at once, or the
            pair was refused, and nothing is written.

        Raises:
            StoreUnavailableError: the outcome is unknown.
        """
        for looker in self._lookers:
            if (rows := await looker.run_with_look(lambda_name, step)) is not None:
                return rows
        return None
