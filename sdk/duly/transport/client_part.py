"""What the parts of AsyncClient have in common: the connection of its event loop."""

from __future__ import annotations

from typing import TypeVar

from duly.errors import ClosedError, DulyError
from duly.tasks.scheduling import Scheduler
from duly.transport.caller import Caller

Value = TypeVar("Value")


class ClientPart:
    """The methods for one subject."""

    _opened: tuple[Caller, Scheduler] | None = None

    @property
    def _caller(self) -> Caller:
        return self._connection()[0]

    @property
    def _scheduler(self) -> Scheduler:
        return self._connection()[1]

    def _connection(self) -> tuple[Caller, Scheduler]:
        if self._opened is None:
            raise ClosedError("the client is not open: use `async with AsyncClient() as client`")
        return self._opened


def only(results: list[Value | DulyError]) -> Value:
    """Return the result of a call for one item, or raise its error."""
    (result,) = results
    if isinstance(result, DulyError):
        raise result
    return result
