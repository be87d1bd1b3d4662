"""Reads what a caller gives as a member of an enum."""

from enum import IntEnum
from typing import TypeVar

from duly.errors import InvalidTaskError

Member = TypeVar("Member", bound=IntEnum)


def member(field: str, value: object, kind: type[Member]) -> Member:
    """Return the member that is given; raise InvalidTaskError for anything else, such as its name or number, and say how it is written."""
    if isinstance(value, kind):
        return value
    name = str(value).upper()
    meant = [each.name for each in kind if name == each.name or (type(value) is int and each == value)]
    names = meant or list(kind.__members__)
    remedy = " or ".join(f"duly.{kind.__name__}.{each}" for each in names)
    raise InvalidTaskError(f"{field} must not be {value!r}: use {remedy}", field)
