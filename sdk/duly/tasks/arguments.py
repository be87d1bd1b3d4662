"""What is wrong with the arguments of a task to be."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from duly.errors import InvalidTaskError

Given = ParamSpec("Given")
Value = TypeVar("Value")


def check_names(
    given: Iterable[str], known: Iterable[str], refuse: Callable[[str, str], Exception] = InvalidTaskError
) -> None:
    """Raise InvalidTaskError, or what `refuse` makes, for an unknown argument; the message names the closest known one."""
    if not given:
        return
    names = sorted(known)
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            remedy = f"do you mean {close[0]}=?" if close else f"there are {', '.join(names)}"
            raise refuse(f"there is no argument {name}=: {remedy}", name)


def named(
    function: Callable[Given, Value], refuse: Callable[[str, str], Exception] = InvalidTaskError
) -> Callable[Given, Value]:
    """Let a function say as `check_names` does that it has no such argument, in place of Python's TypeError."""

    @functools.wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Value:
        try:
            return function(*args, **kwargs)
        except TypeError:
            check_call(function, kwargs, refuse)
            raise

    return call


def named_fields(
    refuse: Callable[[str, str], Exception] = InvalidTaskError,
) -> Callable[[type[Value]], type[Value]]:
    """Let a class say so, too."""

    def decorate(kind: type[Value]) -> type[Value]:
        setattr(kind, "__init__", named(getattr(kind, "__init__"), refuse))  # noqa: B009, B010 (mypy allows no other way)
        return kind

    return decorate


def check_call(
    function: Callable[..., object],
    given: Iterable[str],
    refuse: Callable[[str, str], Exception] = InvalidTaskError,
) -> None:
    """Raise for a named argument that a function does not take. For use after its TypeError: it costs."""
    taken = inspect.signature(function).parameters.values()
    if all(each.kind is not each.VAR_KEYWORD for each in taken):
        check_names(given, [each.name for each in taken if each.name not in ("self", "cls")], refuse)


def wrong_type(field: str, value: object, wanted: str) -> InvalidTaskError:
    """Return the error for an argument of another type."""
    return InvalidTaskError(f"{field} must be {wanted}, not {type(value).__name__}", field)
