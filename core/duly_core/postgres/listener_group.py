"""One connection that listens for all services of a process that have the same store: each takes a connection of Postgres less."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import structlog

log = structlog.get_logger()


class Hearer(Protocol):
    """Takes what is heard."""

    def begin(self) -> None:
        """Look at everything: nobody listened until now."""
        ...

    def hear(self, channel: str, payload: str) -> None:
        """Take a notification."""
        ...


class ListenerGroup:
    """Of those who would listen to a store, one at a time does, and passes on what it hears."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """Is held by the one that listens."""
        self._hearers: list[Hearer] = []
        self._is_listening = False

    @contextmanager
    def joined(self, hearer: Hearer) -> Iterator[None]:
        """Pass on to `hearer` what is heard, for a `with`."""
        self._hearers.append(hearer)
        if self._is_listening:
            hearer.begin()
        try:
            yield
        finally:
            self._hearers.remove(hearer)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Note that somebody listens from now on, for a `with`; all look at what they may have missed."""
        for hearer in list(self._hearers):
            _safely(hearer.begin)
        self._is_listening = True
        try:
            yield
        finally:
            self._is_listening = False

    def hear(self, channel: str, payload: str) -> None:
        """Pass on a notification."""
        for hearer in list(self._hearers):
            _safely(hearer.hear, channel, payload)


def _safely(pass_on: Callable[..., None], *what: str) -> None:
    """Pass on, and let the failure of one service end the connection of no other."""
    try:
        pass_on(*what)
    except Exception:  # whatever it was: the others hear on
        log.exception("a notification was not taken")
