"""Checks of what many requests have: counts, texts, holders, prefixes of tokens, durations, instants."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from google.protobuf import duration_pb2, timestamp_pb2

from duly_core.config.settings import format_duration
from duly_core.lambdas.names import ALL_PRIORITIES
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.requests.times import from_duration, from_timestamp
from duly_core.tasks.task import HOLDER_LIMIT, TOKEN_PREFIX_BYTES
from duly_wire.enums import Priority

_MOST_PREFIXES = 1_000
_DEFAULT_PAGE = 100
_LARGEST_PAGE = 1_000


def check_count(field: str, count: int, most: int) -> None:
    """Refuse an empty call and one that is too large.

    Raises:
        Problem: it is either.
    """
    if not 1 <= count <= most:
        raise Problem(field, f"there must be 1 to {most:,} in one call, not {count:,}")


def check_text(field: str, text: str, most: int, *, least: int = 0, remedy: str = "") -> None:
    """Check a text that the store keeps; lengths are in bytes of UTF-8.

    Raises:
        Problem: it is too long or too short, or has a NUL. The message ends with `remedy`.
    """
    if not least <= len(text.encode()) <= most or "\x00" in text:
        raise Problem(field, f"must be {least} to {most:,} bytes of UTF-8 without NUL{remedy}")


def check_holder(field: str, holder: str) -> None:
    """Check the name of who will hold claims.

    Raises:
        Problem: it is empty, too long, or has a NUL.
    """
    if not 1 <= len(holder) <= HOLDER_LIMIT or "\x00" in holder:
        raise Problem(field, f"must be 1 to {HOLDER_LIMIT} characters without NUL")


def check_prefixes(field: str, prefixes: Sequence[bytes]) -> None:
    """Check prefixes of tokens.

    Raises:
        Problem: one has not 14 bytes, or there are too many.
    """
    if len(prefixes) > _MOST_PREFIXES:
        raise Problem(field, f"there must be at most {_MOST_PREFIXES} in one call")
    if any(len(prefix) != TOKEN_PREFIX_BYTES for prefix in prefixes):
        raise Problem(field, f"must be {TOKEN_PREFIX_BYTES} bytes")


def read_priorities(field: str, values: Iterable[int]) -> frozenset[Priority]:
    """Return the priorities that a request for work names; if it names none, all.

    Raises:
        Problem: there is no such priority.
    """
    try:
        return frozenset(map(Priority, values)) or ALL_PRIORITIES
    except ValueError:
        raise Problem(field, "must be priorities: URGENT, HIGH, NORMAL or LOW") from None


def read_duration(
    field: str, message: duration_pb2.Duration, most: timedelta, *, least: timedelta = timedelta()
) -> timedelta:
    """Return a duration of a request.

    Raises:
        Problem: it is below `least` or above `most`, or no duration at all.
    """
    try:
        duration = from_duration(message)
    except ValueError as error:
        raise Problem(field, str(error)) from error
    if not least <= duration <= most:
        lowest = format_duration(least) if least else "0"
        raise Problem(field, f"must be from {lowest} to {format_duration(most)}")
    return duration


def read_instant(field: str, message: timestamp_pb2.Timestamp) -> datetime:
    """Return an instant of a request.

    Raises:
        Problem: the store cannot hold it.
    """
    try:
        return from_timestamp(message)
    except ValueError as error:
        raise Problem(field, f"not an instant: {error}") from error


def page_size(asked: int) -> int:
    """Return how many items a page of a list has: 1 to 1,000, and 100 for 0.

    Raises:
        Problem: it is out of range.
    """
    size = asked or _DEFAULT_PAGE
    if not 1 <= size <= _LARGEST_PAGE:
        raise Problem("page_size", f"must be from 1 to {_LARGEST_PAGE:,}")
    return size


def limit(asked: int) -> int:
    """Return how many tasks one call that acts by a filter takes: 1 to 1,000, and 1,000 for 0.

    Raises:
        Problem: it is out of range.
    """
    if not 0 <= asked <= _LARGEST_PAGE:
        raise Problem(
            "limit", f"must be from 1 to {_LARGEST_PAGE:,}, or 0 for {_LARGEST_PAGE:,}: call again for more"
        )
    return asked or _LARGEST_PAGE
