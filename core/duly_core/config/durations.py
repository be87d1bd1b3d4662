"""Durations as people write them: `250ms`, `2s`, `1m30s`, `7d`."""

import re
from datetime import timedelta

_UNITS = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_PART = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d)")


def parse_duration(text: object) -> object:
    """Read `250ms`, `2s`, `1m30s` or `7d`; leave what is not text to pydantic.

    Raises:
        ValueError: the text is not a duration, or has no unit.
    """
    if isinstance(text, int | float):
        message = f"{text} has no unit: write {text}s, or another of us, ms, s, m, h, d"
        raise ValueError(message)  # noqa: TRY004 (pydantic makes a message of ValueErrors only)
    if not isinstance(text, str):
        return text
    parts = _PART.findall(text.replace(" ", ""))
    if not parts or "".join(number + unit for number, unit in parts) != text.replace(" ", ""):
        message = f"{text!r} is not a duration: write a number and a unit, such as 250ms, 2s, 1m30s, 7d"
        raise ValueError(message)
    try:
        return sum((float(number) * _UNITS[unit] for number, unit in parts), timedelta())
    except OverflowError as error:
        message = f"{text!r} is longer than anything can wait"
        raise ValueError(message) from error


def format_duration(duration: timedelta) -> str:
    """Write a duration the way `parse_duration` reads it: the inverse, in the largest whole unit."""
    for name, unit in reversed(_UNITS.items()):
        if duration % unit == timedelta() and duration >= unit:
            return f"{duration // unit}{name}"
    return "0s"
