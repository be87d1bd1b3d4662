"""Reads values that a newer release may have written and that this one does not know: each is logged once."""

import enum
from typing import TypeVar

import structlog

log = structlog.get_logger()

Member = TypeVar("Member", bound=enum.Enum)
_logged: set[tuple[type[enum.Enum], object]] = set()
_MOST_LOGGED = 1_000


def known(kinds: type[Member], value: object) -> Member | None:
    """Return the member of this value; None: this release has none."""
    try:
        return kinds(value)
    except ValueError:
        if (kinds, value) not in _logged and len(_logged) < _MOST_LOGGED:
            _logged.add((kinds, value))
            log.warning("unknown value of a newer release", kind=kinds.__name__, value=value)
        return None
