"""Finds the lambda that a function is the callback of, so that a function can be scheduled as well as a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar
from weakref import WeakKeyDictionary

from duly.errors import UnknownLambdaError

if TYPE_CHECKING:
    from duly.context import TaskContext
    from duly.limits.resource import ResourceNeed
    from duly.sessions.session import Session
    from duly.tasks.unique import Debounce, Unique
    from duly_wire.enums import Priority

Payload = TypeVar("Payload")
Taking: TypeAlias = "Callable[[Payload], Any] | Callable[[Payload, TaskContext], Any]"
"""A callback that takes this payload."""
TakingNothing: TypeAlias = "Callable[[], Any]"

_names: WeakKeyDictionary[Callable[..., Any], list[str]] = WeakKeyDictionary()


class TaskOptions(TypedDict, total=False):
    """What each way to make a task may be told beside the payload; see AsyncClient.schedule."""

    priority: Priority
    collection: str
    at: datetime | None
    delay: timedelta | None
    expires_at: datetime | None
    fair_key: str
    domain: str
    requires: Iterable[str]
    resources: Iterable[ResourceNeed | str]


class SessionOptions(TaskOptions, total=False):
    """What a task may be told that is no node of a graph."""

    session: Session | str | None


class ScheduleOptions(SessionOptions, total=False):
    """What `schedule` of a client may be told."""

    idempotency_key: str | None
    lambda_version: str
    unique: Unique | str | None
    debounce: Debounce | None
    timeout: timedelta


def register(function: Callable[..., Any], name: str) -> None:
    """Note that a function is the callback of a lambda."""
    try:
        _names.setdefault(function, []).append(name)
    except TypeError:  # it can be neither hashed nor referred to weakly: it is scheduled by name only
        return


def name_of(callback: str | Callable[..., Any]) -> str:
    """Return the lambda's name. Raises UnknownLambdaError for a function that serves none, or several."""
    if isinstance(callback, str):
        return callback
    try:
        names = _names.get(callback, [])
    except TypeError:
        names = []
    if len(names) == 1:
        return names[0]
    described = getattr(callback, "__qualname__", repr(callback))
    if names:
        raise UnknownLambdaError(f"{described} serves several lambdas: schedule one of {', '.join(names)}")
    raise UnknownLambdaError(
        f"{described} is not a callback: register it with @app.callback(NAME), or give a name"
    )
