"""Instants and durations between Python and protobuf."""

from datetime import UTC, datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_S = 24 * 60 * 60


def to_timestamp(moment: datetime) -> Timestamp:
    """Return an aware datetime as a Timestamp."""
    return Timestamp(**timestamp_fields(moment))


def timestamp_fields(moment: datetime) -> dict[str, int]:
    """Return the fields of such a Timestamp, of which a message makes its own without a copy."""
    since = moment - EPOCH
    return {"seconds": since.days * _DAY_S + since.seconds, "nanos": since.microseconds * 1000}


def to_duration(delta: timedelta) -> Duration:
    """Return a timedelta as a Duration."""
    if delta.days >= 0:
        return Duration(seconds=delta.days * _DAY_S + delta.seconds, nanos=delta.microseconds * 1000)
    duration = Duration()  # whose two parts have one sign
    duration.FromTimedelta(delta)
    return duration


def to_datetime(stamp: Timestamp) -> datetime:
    """Return a Timestamp as an aware datetime in UTC, to the microsecond."""
    return EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)


def to_timedelta(duration: Duration) -> timedelta:
    """Return a Duration as a timedelta, to the microsecond."""
    return timedelta(seconds=duration.seconds, microseconds=duration.nanos // 1000)
