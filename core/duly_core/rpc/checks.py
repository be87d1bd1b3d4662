"""Checks of what many requests have: counts, holders, prefixes of tokens, durations, instants."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from google.protobuf import duration_pb2, timestamp_pb2

from duly.enums import Priority
from duly_core.errors import InvalidRequestError
from duly_core.routing import ALL_PRIORITIES
from duly_core.rpc.convert import from_duration, from_timestamp
from duly_core.settings import format_duration
from duly_core.task import HOLDER_LIMIT, TOKEN_PREFIX_BYTES

_MOST_PREFIXES = 1_000


def check_count(field: str, count: int, most: int) -> None:
    """Refuse an empty call and one that is too large.

    Raises:
        InvalidRequestError: it is either.
    """
    if not 1 <= count <= most:
        raise InvalidRequestError(field, f"there must be 1 to {most:,} in one call, not {count:,}")


def check_holder(field: str, holder: str) -> None:
    """Check the name of who will hold claims.

    Raises:
        InvalidRequestError: it is empty, too long, or has a NUL.
    """
    if not 1 <= len(holder) <= HOLDER_LIMIT or "\x00" in holder:
        raise InvalidRequestError(field, f"must be 1 to {HOLDER_LIMIT} characters without NUL")


def check_prefixes(field: str, prefixes: Sequence[bytes]) -> None:
    """Check prefixes of tokens.

    Raises:
        InvalidRequestError: one has not 14 bytes, or there are too many.
    """
    if len(prefixes) > _MOST_PREFIXES:
        raise InvalidRequestError(field, f"there must be at most {_MOST_PREFIXES} in one call")
    if any(len(prefix) != TOKEN_PREFIX_BYTES for prefix in prefixes):
        raise InvalidRequestError(field, f"must be {TOKEN_PREFIX_BYTES} bytes")


def read_priorities(field: str, values: Iterable[int]) -> frozenset[Priority]:
    """Return the priorities that a request for work names; if it names none, all.

    Raises:
        InvalidRequestError: there is no such priority.
    """
    try:
        return frozenset(map(Priority, values)) or ALL_PRIORITIES
    except ValueError:
        raise InvalidRequestError(field, "must be priorities: URGENT, HIGH, NORMAL or LOW") from None


def read_duration(field: str, message: duration_pb2.Duration, most: timedelta) -> timedelta:
    """Return a duration of a request.

    Raises:
        InvalidRequestError: it is below 0 or above `most`, or no duration at all.
    """
    try:
        duration = from_duration(message)
    except ValueError as error:
        raise InvalidRequestError(field, str(error)) from error
    if not timedelta() <= duration <= most:
        raise InvalidRequestError(field, f"must be from 0 to {format_duration(most)}")
    return duration


def read_instant(field: str, message: timestamp_pb2.Timestamp) -> datetime:
    """Return an instant of a request.

    Raises:
        InvalidRequestError: the store cannot hold it.
    """
    try:
        return from_timestamp(message)
    except ValueError as error:
        raise InvalidRequestError(field, f"not an instant: {error}") from error
