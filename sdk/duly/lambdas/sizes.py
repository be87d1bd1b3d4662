"""Sizes and durations, as the files of lambdas write them."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
_SIZE = re.compile(r"([0-9]{1,15})(KiB|MiB|GiB|TiB)")
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)")
_LONGEST = timedelta(days=365)
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def size_of(text: object) -> int | None:
    """Return a number of bytes; None: it is none.

    >>> size_of("512MiB"), size_of(1000), size_of("many")
    (536870912, 1000, None)
    """
    if isinstance(text, int) and not isinstance(text, bool):
        return text if text > 0 else None
    found = _SIZE.fullmatch(text) if isinstance(text, str) else None
    return (int(found[1]) * _UNITS[found[2]] or None) if found else None


def size_text(size: int) -> str:
    """Write a number of bytes.

    >>> size_text(536870912), size_text(1000)
    ('512MiB', '1000 bytes')
    """
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return f"{size} bytes"


def duration_of(text: object) -> timedelta | None:
    """Return a duration of more than nothing and at most a year; None: it is none."""
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0
    return timedelta(seconds=seconds) if 0 < seconds <= _LONGEST.total_seconds() else None


def duration_text(duration: timedelta) -> str:
    """Write a duration.

    >>> duration_text(timedelta(minutes=10)), duration_text(timedelta(seconds=1.5))
    ('10m', '1.5s')
    """
    seconds = duration.total_seconds()
    for unit in ("d", "h", "m"):
        if seconds >= _SECONDS[unit] and seconds % _SECONDS[unit] == 0:
            return f"{seconds / _SECONDS[unit]:g}{unit}"
    return f"{seconds:g}s"
