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
from duly_core.traffic.slices import Steps, finish

MOST_FIELDS = 20_000
"""Of one request: no service takes more items in a call."""

_MOST_FIELDS_OF = {
    # a graph is one item, and may have 10,000 nodes and 100,000 edges, each with up to four fields
    "duly.v1.ScheduleGraphRequest": 600_000,
    "duly.v1.PutGraphDefinitionRequest": 600_000,
    # what succeeded may add nodes to its graph: 20,000 edges, each with up to two fields beside itself
    "duly.v1.SetResultsRequest": 60_000,
    "duly.v1.WorkRequest": 60_000,
    # all that the slots of a callback process ended since the last one, each with the tasks that follow it
    "duly.v1.CallbackReport": 500_000,
}

SMALL = 64 * 1024
"""Bytes; what is no larger is read at once."""

_A_STEP = 500
"""Fields."""


def most_fields_of(message: Any) -> int:
    """Return how many fields a request may have, by its descriptor."""
    return _MOST_FIELDS_OF.get(message.full_name, MOST_FIELDS)


def check_field_count(data: bytes, message: Any) -> None:
    """Refuse a request with too many fields, those of messages that have repeated fields included.

    Groups are refused: no message of Duly has one, and the parser would read on behind it. `message` is a descriptor.

    Raises:
        InvalidRequestError: there are too many, or the bytes are no message.
    """
    if len(data) > SMALL:
        finish(counting_fields(data, message))


def counting_fields(data: bytes, message: Any) -> Steps[None]:
    """Do the same in steps, whatever the size.

    Raises:
        InvalidRequestError: as above.
    """
    most = most_fields_of(message)
    try:
        yield from _counting(data, message, most)
    except (IndexError, WireFormatError) as error:
        raise InvalidRequestError("request", f"these bytes are no {message.full_name}") from error


def _counting(data: bytes, message: Any, most: int) -> Steps[None]:
    place, end, looked_into = 0, len(data), _looked_into(message)
    left = most
    around: list[tuple[int, int, dict[int, Any]]] = []
    """Of each message around this one: the place behind this one, its end, and what is looked into."""
    while True:
        if place >= end:
            if not around:
                return
            place, end, looked_into = around.pop()
            continue
        left -= 1
        if left < 0:
            raise InvalidRequestError(
                "request", f"has more than {most:,} fields: send fewer items in one call"
            )
        if not left % _A_STEP:
            yield
        tag = data[place]
        place += 1
        if tag > 0x7F:
            tag, place = read_varint(data, place - 1)
        kind = tag & 7
        if kind == DELIMITED:
            size = data[place]
            place += 1
            if size > 0x7F:
                # most sizes have two bytes at most: a call would cost as much as the rest of the loop
                more = data[place]
                size, place = (
                    (size + (more - 1 << 7), place + 1) if more <= 0x7F else read_varint(data, place - 1)
                )
            inner = looked_into.get(tag >> 3)
            if inner is None:
                place += size
            else:
                around.append((place + size, end, looked_into))
                end, looked_into = min(place + size, end), _looked_into(inner)
        elif kind == VARINT:
            place = place + 1 if data[place] <= 0x7F else read_varint(data, place)[1]
        elif kind in (FIXED64, FIXED32):
            place += 8 if kind == FIXED64 else 4
        else:
            raise WireFormatError


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
