"""Which file is due when, how urgent it is, and which attempts fail. A path alone decides: every run is the same."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from zlib import crc32

from duly import Priority

LAMBDA = "fileindex.index"

# Of ten tasks, so many are of each.
_PRIORITIES = (Priority.HIGH,) * 2 + (Priority.NORMAL,) * 5 + (Priority.LOW,) * 3
_ONE_IN_AHEAD = 10
_NEAREST_MS = 1_000
_FARTHEST_MS = 10_000
_ONE_IN_FAILS = 100


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """What is asked for one file."""

    path: str
    priority: Priority
    delay: timedelta | None
    """None: due at once."""
    fails_first: bool
    """Whether its first attempt is to fail."""


def plan(paths: Iterable[str]) -> list[PlannedTask]:
    """One task per path: three priorities, one in ten 1 to 10 s ahead, 1 in 100 failing once."""
    return [_planned(path) for path in paths]


def fails_first(path: str) -> bool:
    """Whether the first attempt at this file is to fail; the callback asks the same."""
    return crc32(path.encode()) % _ONE_IN_FAILS == 0


def _planned(path: str) -> PlannedTask:
    # One checksum, of which each choice takes digits of its own.
    rest = crc32(path.encode()) // _ONE_IN_FAILS
    rest, priority = divmod(rest, len(_PRIORITIES))
    rest, ahead = divmod(rest, _ONE_IN_AHEAD)
    delay = timedelta(milliseconds=_NEAREST_MS + rest % (_FARTHEST_MS - _NEAREST_MS + 1))
    return PlannedTask(path, _PRIORITIES[priority], None if ahead else delay, fails_first(path))
