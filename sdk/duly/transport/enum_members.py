"""Reads what a caller gives as a member of an enum."""

from enum import IntEnum
from typing import TypeVar

from duly.errors import InvalidTaskError

Member = TypeVar("Member", bound=IntEnum)


def member(field: str, value: object, kind: type[Member]) -> Member:
    """Return the member that is given, or whose number is; raise InvalidTaskError for others, and say how it is written."""
    for each in kind:
        if each == value:
            return each
    name = str(value).upper()
    names = [name] if name in kind.__members__ else list(kind.__members__)
    remedy = " or ".join(f"duly.{kind.__name__}.{each}" for each in names)
    raise InvalidTaskError(f"{field} must not be {value!r}: use {remedy}", field)
