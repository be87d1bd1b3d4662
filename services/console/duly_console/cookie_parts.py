"""A cookie that is longer than browsers keep one, as several. No I/O."""

from collections.abc import Iterator, Mapping

_PART = 3_900
"""Characters: browsers keep cookies of 4,096 bytes, with their names."""
_MOST = 3
_MARK = "."
"""After the number of parts, before the first part; the values that are split have none."""

LONGEST = _MOST * _PART - 2
"""Characters of a value: with more, a request's head would be too long for this server."""


def split(name: str, value: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of cookies that have a value.

    >>> list(split("a", "x"))
    [('a', 'x')]
    """
    if len(value) > _PART:
        count = -(-(len(value) + 2) // _PART)
        value = f"{count}{_MARK}{value}"
    for number, start in enumerate(range(0, len(value), _PART)):
        yield _name(name, number), value[start : start + _PART]


def join(name: str, cookies: Mapping[str, str]) -> str:
    """Return the value that cookies have; empty: none, or not all of it.

    >>> join("a", {"a": "2.x", "a-1": "y", "a-2": "left over"})
    'xy'
    """
    first = cookies.get(name, "")
    count, mark, value = first.partition(_MARK)
    if not mark:
        return first
    others = [cookies.get(_name(name, number)) for number in range(1, _MOST)]
    if count not in ("2", "3") or None in others[: int(count) - 1]:
        return ""
    return value + "".join(each or "" for each in others[: int(count) - 1])


def names(name: str, cookies: Mapping[str, str]) -> list[str]:
    """Return the names of the cookies that a browser has of a value, and of the first one in any case."""
    return [name, *(each for each in (_name(name, 1), _name(name, 2)) if each in cookies)]


def _name(name: str, number: int) -> str:
    return f"{name}-{number}" if number else name
