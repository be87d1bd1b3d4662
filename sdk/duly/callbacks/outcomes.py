"""What a callback can say about its attempt, beside returning a value or raising.

A plain return value means `Success(value)`. The others are exceptions as well as values: return
them, or raise them from wherever in the code the matter is decided.

    @app.callback("mail.send")
    def send(payload: Mail) -> duly.CallbackOutcome:
        if not mailbox_exists(payload.to):
            return duly.FatalFailure("no such mailbox")
        try:
            return duly.Success({"message_id": relay.send(payload)})
        except RelayBusy as busy:
            raise duly.RetriableFailure("the relay is busy", retry_after=busy.retry_after) from busy
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

_LONGEST_DELAY = timedelta(days=365)
"""What the HSC accepts; a longer one would be refused with the result."""
_SHORTEST_WAIT = timedelta(seconds=1)
_LONGEST_WAIT = timedelta(days=7)
"""The same, for a completion."""


@dataclass(frozen=True, slots=True)
class Success:
    """The task is done. `result` is kept with it: bytes, or anything JSON can carry."""

    result: Any = None


@dataclass(unsafe_hash=True)
class RetriableFailure(Exception):
    """It did not work this time: counts as a failure, and runs again while attempts are left.

    `retry_after` replaces the lambda's backoff for this once.
    """

    message: str
    retry_after: timedelta | None = None

    def __post_init__(self) -> None:
        # So that args, and with them pickling, are right however the fields were given.
        super().__init__(self.message, self.retry_after)
        if self.retry_after is not None:
            _check_delay("retry_after", self.retry_after)

    def __str__(self) -> str:
        return str(self.message)


@dataclass(unsafe_hash=True)
class FatalFailure(Exception):
    """It will never work: the task ends as FATAL_FAILURE, whatever attempts are left."""

    message: str

    def __post_init__(self) -> None:
        super().__init__(self.message)

    def __str__(self) -> str:
        return str(self.message)


@dataclass(unsafe_hash=True)
class Snooze(Exception):
    """Not now: the task runs again after `delay`. Nothing is charged, so it may snooze for ever."""

    delay: timedelta

    def __post_init__(self) -> None:
        super().__init__(self.delay)
        _check_delay("delay", self.delay)

    def __str__(self) -> str:
        return f"snoozed for {self.delay}"


@dataclass(unsafe_hash=True)
class CompleteLater(Exception):
    """Somebody who was given `ctx.completion_token()` completes the task later; until then it holds no slot.

    `timeout`: 1 s to 7 days. If nobody has completed it by then, the attempt has failed.
    """

    timeout: timedelta = timedelta(hours=1)

    def __post_init__(self) -> None:
        super().__init__(self.timeout)
        _check_delay("timeout", self.timeout)
        if not _SHORTEST_WAIT <= self.timeout <= _LONGEST_WAIT:
            raise ValueError(f"timeout must be between 1 s and {_LONGEST_WAIT.days} days, not {self.timeout}")

    def __str__(self) -> str:
        return f"to be completed within {self.timeout}"


class Crashed(Exception):
    """A process that ran the attempt died, which is not this one: counts as a crash. For applications that Duly makes itself."""


CallbackOutcome: TypeAlias = Success | RetriableFailure | FatalFailure | Snooze | CompleteLater


class Cancelled(BaseException):
    """The callback stops because its cancellation was asked for; the task ends as CANCELLED.

    Raised by `TaskContext.raise_if_cancelled`. Like asyncio's CancelledError it is no Exception, so
    that an `except Exception` around a piece of work does not swallow it.
    """


class Interrupted(BaseException):
    """Raised by Duly in the thread of a callback that ran longer than `max_runtime`, or ignored a cancel.

    It is raised once, wherever the callback's Python code happens to be; an async callback gets asyncio's
    CancelledError instead. It may be caught to clean up; raise it again then. The attempt ends as a failure of
    kind MAX_RUNTIME, or as CANCELLED.
    """


def _check_delay(name: str, delay: object) -> None:
    if not isinstance(delay, timedelta):
        raise TypeError(f"{name} must be a timedelta, not {type(delay).__name__}")
    if not timedelta(0) <= delay <= _LONGEST_DELAY:
        raise ValueError(f"{name} must be between 0 and {_LONGEST_DELAY.days} days, not {delay}")
