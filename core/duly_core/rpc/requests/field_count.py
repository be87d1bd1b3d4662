"""Counts the fields of a large request before it is read: 8 MiB hold four million empty items.

To make objects of those takes seconds, on the event loop, and most of a gigabyte.
"""

from functools import cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from duly_core.errors import InvalidRequestError
from duly_core.rpc.requests.wire_format import (
    DELIMITED,
    FIXED32,
    FIXED64,
    VARINT,
    WireFormatError,
    read_varint,
)

MOST_FIELDS = 20_000
"""Of one request: no service takes more items in a call."""

_MOST_FIELDS_OF = {
    # a graph is one item, and may have 10,000 nodes and 100,000 edges
    "duly.v1.ScheduleGraphRequest": 200_000,
    "duly.v1.PutGraphDefinitionRequest": 200_000,
    # all that the slots of a callback process ended since the last one, each with the tasks that follow it
    "duly.v1.CallbackReport": 500_000,
}

_SMALL = 64 * 1024
"""Bytes; what is no larger is read at once."""


def check_field_count(data: bytes, message: Any) -> None:
    """Refuse a request with too many fields, those of messages that have repeated fields included.

    Groups are refused: no message of Duly has one, and the parser would read on behind it. `message` is a descriptor.

    Raises:
        InvalidRequestError: there are too many, or the bytes are no message.
    """
    if len(data) <= _SMALL:
        return
    most = _MOST_FIELDS_OF.get(message.full_name, MOST_FIELDS)
    try:
        left = _count(memoryview(data), 0, len(data), message, most)
    except (IndexError, WireFormatError) as error:
        raise InvalidRequestError("request", f"these bytes are no {message.full_name}") from error
    if left < 0:
        raise InvalidRequestError("request", f"has more than {most:,} fields: send fewer items in one call")


def _count(data: memoryview, place: int, end: int, message: Any, left: int) -> int:
    """Return how many of `left` fields are left after those between two places; negative: too few."""
    looked_into = _looked_into(message)
    while place < end:
        left -= 1
        if left < 0:
            return left
        tag = data[place]
        place += 1
        if tag > 0x7F:
            tag, place = read_varint(data, place - 1)
        kind = tag & 7
        if kind == DELIMITED:
            size = data[place]
            place += 1
            if size > 0x7F:
                size, place = read_varint(data, place - 1)
            inner = looked_into.get(tag >> 3)
            if inner is not None:
                left = _count(data, place, min(place + size, end), inner, left)
            place += size
        elif kind == VARINT:
            _, place = read_varint(data, place)
        elif kind in (FIXED64, FIXED32):
            place += 8 if kind == FIXED64 else 4
        else:
            raise WireFormatError
    return left


@cache
def _looked_into(message: Any) -> dict[int, Any]:
    """Return by their numbers the messages within a message that have repeated fields, at any depth."""
    return {
        field.number: field.message_type
        for field in message.fields
        if field.type == FieldDescriptor.TYPE_MESSAGE and _has_repeated(field.message_type)
    }


def _has_repeated(message: Any) -> bool:
    return any(
        field.default_value == []  # how a field says that it is repeated, in all versions of protobuf
        or (field.type == FieldDescriptor.TYPE_MESSAGE and _has_repeated(field.message_type))
        for field in message.fields
    )
