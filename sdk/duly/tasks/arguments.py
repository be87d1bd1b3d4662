"""What is wrong with the arguments of a task to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from duly.errors import InvalidTaskError


def check_names(given: Mapping[str, object], known: Iterable[str]) -> None:
    """Raise InvalidTaskError for an unknown argument; the message names the closest known one."""
    if not given:
        return
    names = sorted(known)
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            remedy = f"do you mean {close[0]}=?" if close else f"there are {', '.join(names)}"
            raise InvalidTaskError(f"there is no argument {name}=: {remedy}", name)


def wrong_type(field: str, value: object, wanted: str) -> InvalidTaskError:
    """Return the error for an argument of another type."""
    return InvalidTaskError(f"{field} must be {wanted}, not {type(value).__name__}", field)
