"""What Duly and a program tell each other, whatever form it has on the pipes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from duly.callbacks.outcomes import CompleteLater, FatalFailure, RetriableFailure, Snooze

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duly.callbacks.payload import SentPayload
    from duly.context import TaskContext


MOST_BYTES = 8 * 1024 * 1024
"""Of one message. A result of 1 MiB fits into it, however its characters are written."""


class ProtocolError(Exception):
    """A program wrote something that is no message, or that has no place there. The text names nothing of its content."""


@dataclass(frozen=True, slots=True)
class Task:
    """To a program: run this."""

    payload: SentPayload
    context: TaskContext


@dataclass(frozen=True, slots=True)
class Cancel:
    """To a program: somebody asked that this task be cancelled."""

    task_id: str


@dataclass(frozen=True, slots=True)
class Ready:
    """From a program, first of all: it can take a task."""


@dataclass(frozen=True, slots=True)
class Progress:
    """From a program: how far it is."""

    task_id: str
    fraction: float
    note: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """From a program: what it keeps for the next attempt."""

    task_id: str
    value: Any


@dataclass(frozen=True, slots=True)
class Success:
    """From a program: the task is done."""

    task_id: str
    result: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """From a program: the task is not done."""

    task_id: str
    outcome: RetriableFailure | FatalFailure | Snooze | CompleteLater


@dataclass(frozen=True, slots=True)
class Cancelled:
    """From a program: it stopped because it was asked to."""

    task_id: str


Order: TypeAlias = Task | Cancel
Ended: TypeAlias = Success | Failed | Cancelled
Report: TypeAlias = Ready | Progress | Checkpoint | Ended


class Form(Protocol):
    """How messages are written on the pipes; both directions of one program."""

    def write(self, order: Order) -> bytes:
        """Return the bytes of a message to a program."""

    def read(self, data: bytes) -> Iterator[Report]:
        """Yield the messages that are complete now.

        Raises:
            ProtocolError: something is no message, or is too long.
        """


def seconds(value: object, name: str) -> timedelta:
    """Return a number of seconds as a duration.

    Raises:
        ProtocolError: it is no number, or none that Duly takes.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProtocolError(f"{name} is not a number of seconds")
    try:
        return timedelta(seconds=value)
    except (OverflowError, ValueError):  # NaN is a ValueError
        raise ProtocolError(f"{name} is not a number of seconds that a task can wait") from None
