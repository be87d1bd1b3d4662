"""Reads time types from the wire and checks them; `duly.time_conversion` writes them."""

import time
from datetime import datetime, timedelta

from google.protobuf import duration_pb2, timestamp_pb2

from duly_core.process.clock import since_boot_ns
from duly_wire.time_conversion import EPOCH

_NANOSECOND_PLACES = 1_000_000_000


def from_duration(message: duration_pb2.Duration) -> timedelta:
    """A duration from the wire.

    Raises:
        ValueError: it is longer than Python can hold, or its parts contradict each other.
    """
    if abs(message.nanos) >= _NANOSECOND_PLACES or message.seconds * message.nanos < 0:
        text = "seconds and nanos contradict each other"
        raise ValueError(text)
    try:
        return timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    except OverflowError as error:
        raise ValueError(str(error)) from error


def boot_to_timestamp(boot_ns: int) -> timestamp_pb2.Timestamp:
    """An instant of this boot's CLOCK_BOOTTIME for the wire, by the host's wall clock of now."""
    message = timestamp_pb2.Timestamp()
    message.FromNanoseconds(time.time_ns() - since_boot_ns() + boot_ns)
    return message


def from_timestamp(message: timestamp_pb2.Timestamp) -> datetime:
    """An instant from the wire, in UTC.

    Raises:
        ValueError: it is outside the years 1 to 9999, or its nanos are no part of a second.
    """
    nanos = message.nanos
    if not 0 <= nanos < _NANOSECOND_PLACES:
        text = "nanos must be from 0 to 999,999,999"
        raise ValueError(text)
    try:
        return EPOCH + timedelta(0, message.seconds, nanos // 1000)  # by position: a third less
    except OverflowError as error:
        text = "the year must be from 1 to 9999"
        raise ValueError(text) from error
