"""Says what is wrong with bytes that are no message: which field, as far as it can be told."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5

_LONGEST_VARINT = 10
"""Bytes. Without a limit a request of nothing but 0xff would be read into one number, for minutes."""


def explain(data: bytes, message: Any) -> tuple[str, str]:
    """The field at fault and what is wrong with it; `message` is a descriptor."""
    try:
        field = _bad_text(data, message)
    except (IndexError, ValueError):
        field = None
    if field:
        return field, "must be UTF-8 text"
    return "request", f"these bytes are no {message.full_name}"


def _bad_text(data: bytes, message: Any) -> str | None:
    for number, value in _delimited_fields(data):
        field = message.fields_by_number.get(number)
        if field is None:
            continue
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            inner = _bad_text(value, field.message_type)
            if inner:
                return f"{field.name}.{inner}"
        elif field.type == FieldDescriptor.TYPE_STRING:
            try:
                value.decode()
            except UnicodeDecodeError:
                return str(field.name)
    return None


def _delimited_fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Field numbers and bytes of all fields that have a length.

    Raises:
        IndexError, ValueError: the bytes end too soon, or are no fields.
    """
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        kind = tag & 7
        if kind == _VARINT:
            _, place = _varint(data, place)
        elif kind == _DELIMITED:
            size, place = _varint(data, place)
            yield tag >> 3, data[place : place + size]
            place += size
        elif kind in (_FIXED64, _FIXED32):
            place += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(kind)


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for digit in range(_LONGEST_VARINT):
        byte = data[place + digit]
        value |= (byte & 0x7F) << 7 * digit
        if not byte & 0x80:
            return value, place + digit + 1
    text = "a number has no end"
    raise ValueError(text)
