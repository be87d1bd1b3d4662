"""A lambda owner's choices for one lambda. What is left out is Duly's default."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

from duly.callbacks.payload import DEFAULT_LIMIT_BYTES, HARD_LIMIT_BYTES
from duly.errors import InvalidTaskError, RegistrationError
from duly.limits.resource import needs_to_fields
from duly.tasks.arguments import named_fields
from duly_wire.queue_names import check_required
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import registry_pb2, task_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.duration_pb2 import Duration

    from duly.limits.resource import ResourceNeed

OnException: TypeAlias = Literal["retry", "fatal"]


def unknown_option(message: str, _: str) -> RegistrationError:
    """Return the error for an argument that a declaration does not take."""
    return RegistrationError(message)


@named_fields(unknown_option)
@dataclass(frozen=True, slots=True)
class Backoff:
    """Delay before attempt n+1: a random part of min(maximum, initial * factor**(n-1)).

    >>> Backoff(initial=timedelta(seconds=1), factor=2.0, maximum=timedelta(minutes=10)).factor
    2.0
    """

    # The longest delay after the first failure; None: 1 s.
    initial: timedelta | None = None
    # By what that grows with each failure, from 1 to 1000; None: 2.0.
    factor: float | None = None
    # The longest delay of all; None: 10 min.
    maximum: timedelta | None = None

    def __post_init__(self) -> None:
        check_positive("backoff.initial", self.initial)
        check_positive("backoff.maximum", self.maximum)
        if self.factor is not None and not 1 <= self.factor <= 1000:
            raise RegistrationError(f"backoff.factor must be from 1 to 1000, not {self.factor!r}")
        if self.initial and self.maximum and self.maximum < self.initial:
            raise RegistrationError("backoff.maximum must not be smaller than backoff.initial")


class PolicyOptions(TypedDict, total=False):
    """What `App.callback` may be told of a lambda."""

    max_attempts: int | None
    max_crashes: int | None
    crash_window: timedelta | None
    max_runtime: timedelta | None
    backoff: Backoff | None
    payload_limit: int | None
    result_limit: int
    fatal_exceptions: tuple[type[BaseException], ...]
    on_exception: OnException
    requires: Iterable[str]
    resources: Iterable[ResourceNeed | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one lambda is to be treated; the arguments of `App.callback`, checked."""

    max_attempts: int | None = None
    max_crashes: int | None = None
    crash_window: timedelta | None = None
    max_runtime: timedelta | None = None
    backoff: Backoff | None = None
    payload_limit: int | None = None
    result_limit: int = DEFAULT_LIMIT_BYTES
    fatal_exceptions: tuple[type[BaseException], ...] = ()
    on_exception: OnException = "retry"
    requires: Iterable[str] = ()
    resources: Iterable[ResourceNeed | str] = ()

    def __post_init__(self) -> None:
        check_count("max_attempts", self.max_attempts, 1_000_000)
        check_count("max_crashes", self.max_crashes, 1_000)
        check_positive("crash_window", self.crash_window)
        check_count("payload_limit", self.payload_limit, HARD_LIMIT_BYTES)
        check_count("result_limit", self.result_limit, HARD_LIMIT_BYTES)
        check_positive("max_runtime", self.max_runtime)
        if self.backoff is not None and not isinstance(self.backoff, Backoff):
            raise RegistrationError(f"backoff must be a duly.Backoff, not {type(self.backoff).__name__}")
        if not _are_exceptions(self.fatal_exceptions):
            raise RegistrationError("fatal_exceptions must be a tuple of exception classes: (ValueError,)")
        if self.on_exception not in ("retry", "fatal"):
            raise RegistrationError(f'on_exception must be "retry" or "fatal", not {self.on_exception!r}')

        try:
            check_required(self.requires)
        except ValueError as error:
            raise RegistrationError(f"requires: {error}") from None
        try:
            needs_to_fields(self.resources)
        except (InvalidTaskError, TypeError) as error:
            raise RegistrationError(str(error)) from None

    def is_fatal(self, error: BaseException) -> bool:
        """Return whether an attempt that raised this is not to be repeated."""
        return self.on_exception == "fatal" or isinstance(error, self.fatal_exceptions)

    def declare(self, name: str, owner: str, version: str) -> registry_pb2.Lambda:
        """Return the lambda as it is told to the registry."""
        declared = registry_pb2.Lambda(
            name=name,
            owner=owner,
            version=version,
            max_attempts=self.max_attempts,
            max_crashes=self.max_crashes,
            crash_window=_duration(self.crash_window),
            max_runtime=_duration(self.max_runtime),
            payload_limit=self.payload_limit,
            requires=check_required(self.requires).split(",") if self.requires else (),
            resources=[task_pb2.ResourceNeed(**need) for need in needs_to_fields(self.resources)],
        )
        if self.backoff is not None:
            declared.backoff.CopyFrom(
                registry_pb2.Backoff(
                    initial=_duration(self.backoff.initial),
                    factor=self.backoff.factor,
                    max=_duration(self.backoff.maximum),
                )
            )
        return declared


def _duration(delta: timedelta | None) -> Duration | None:
    return None if delta is None else to_duration(delta)


def check_positive(name: str, duration: object) -> None:
    """Raise RegistrationError if this is no duration above 0."""
    if duration is None:
        return
    if not isinstance(duration, timedelta):
        raise RegistrationError(f"{name} must be a timedelta, not {type(duration).__name__}")
    if duration <= timedelta(0):
        raise RegistrationError(f"{name} must be more than nothing, not {duration}")


def check_count(name: str, count: object, most: int) -> None:
    """Raise RegistrationError if this is no whole number from 1 to `most`."""
    if count is None:
        return
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= most:
        raise RegistrationError(f"{name} must be a whole number from 1 to {most:,}, not {count!r}")


def _are_exceptions(kinds: object) -> bool:
    return isinstance(kinds, tuple) and all(
        isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds
    )
