"""Finds the lambda that a function is the callback of, so that a function can be scheduled as well as a name."""

from __future__ import annotations

import typing
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from duly.errors import UnknownLambdaError

if TYPE_CHECKING:
    from duly.context import TaskContext
    from duly.limits.resource import ResourceNeed
    from duly.sessions.session import Session
    from duly.tasks.attributes import AttributeValue
    from duly.tasks.unique import Debounce, Unique
    from duly_wire.enums import Priority

Payload = TypeVar("Payload")
Result = TypeVar("Result")
Taking: TypeAlias = "Callable[[Payload], Result] | Callable[[Payload, TaskContext], Result]"
"""A callback that takes this payload, and returns this."""
TakingLater: TypeAlias = "Callable[[Payload], Coroutine[Any, Any, Result]] | Callable[[Payload, TaskContext], Coroutine[Any, Any, Result]]"
"""The same, async."""
TakingNothing: TypeAlias = "Callable[[], Result]"
TakingNothingLater: TypeAlias = "Callable[[], Coroutine[Any, Any, Result]]"

_names: WeakKeyDictionary[Callable[..., Any], list[str]] = WeakKeyDictionary()
_result_types: WeakKeyDictionary[Callable[..., Any], Any] = WeakKeyDictionary()
_of_batches: WeakSet[Callable[..., Any]] = WeakSet()


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
    attributes: Mapping[str, AttributeValue] | None


class SessionOptions(TaskOptions, total=False):
    """What a task may be told that is no node of a graph."""

    session: Session | str | None


class ChildOptions(SessionOptions, total=False):
    """What a task may be told that a callback schedules."""

    unique: Unique | str | None


class ScheduleOptions(SessionOptions, total=False):
    """What `schedule` of a client may be told."""

    idempotency_key: str | None
    lambda_version: str
    unique: Unique | str | None
    debounce: Debounce | None
    timeout: timedelta


def register(function: Callable[..., Any], name: str, *, in_batches: bool = False) -> None:
    """Note that a function is the callback of a lambda; `in_batches`: it returns a list of results."""
    try:
        _names.setdefault(function, []).append(name)
        if in_batches:
            _of_batches.add(function)
    except TypeError:  # it can be neither hashed nor referred to weakly: it is scheduled by name only
        return


def result_type_of(callback: Callable[..., Any]) -> Any:
    """Return the type that a callback says the result of a task has; None: it says nothing that can be looked up."""
    try:
        if callback not in _result_types:
            _result_types[callback] = None if callback in _of_batches else _returned(callback)
        return _result_types[callback]
    except TypeError:  # as above
        return None


def _returned(callback: Callable[..., Any]) -> Any:
    try:
        return typing.get_type_hints(callback).get("return")
    except Exception:  # noqa: BLE001 (an annotation may be any expression, of names that only a type checker knows)
        return None


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
