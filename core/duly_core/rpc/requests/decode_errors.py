"""Names the field at fault in bytes that are not a valid message, as far as a bounded look can tell.

Reading bytes in Python is slow, and it happens on the event loop: a request of 8 MiB would hold up every other call
for seconds. So only the first fields are looked at, over all levels of nesting together.
"""

import codecs
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from duly_core.rpc.requests.wire_format import (
    DELIMITED,
    FIXED32,
    FIXED64,
    VARINT,
    WireFormatError,
    read_varint,
)

_MOST_FIELDS = 500
_MOST_TEXT = 1024 * 1024
"""Bytes of text that are decoded."""


def explain(data: bytes, message: Any) -> tuple[str, str]:
    """Return the field at fault and what is wrong with it; `message` is a descriptor."""
    try:
        field = _Search().bad_text(memoryview(data), message)
    except (IndexError, WireFormatError):
        field = None
    if field:
        return field, "must be UTF-8 text"
    return "request", f"these bytes are no {message.full_name}"


class _Search:
    """One search for text that is not UTF-8, with a budget."""

    def __init__(self) -> None:
        self._fields_left = _MOST_FIELDS
        self._text_left = _MOST_TEXT

    def bad_text(self, data: memoryview, message: Any) -> str | None:
        """Return the path of the first such field, if one is found within the budget."""
        for number, value in self._delimited_fields(data):
            field = message.fields_by_number.get(number)
            if field is None:
                continue
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                inner = self.bad_text(value, field.message_type)
                if inner:
                    return f"{field.name}.{inner}"
            elif field.type == FieldDescriptor.TYPE_STRING and not self._is_text(value):
                return str(field.name)
        return None

    def _is_text(self, value: memoryview) -> bool:
        """Whether the value is UTF-8, as far as the budget allows to look."""
        looked_at = value[: self._text_left]
        self._text_left -= len(looked_at)
        try:
            codecs.utf_8_decode(looked_at, "strict", len(looked_at) == len(value))
        except UnicodeDecodeError:
            return False
        return True

    def _delimited_fields(self, data: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Yield field numbers and bytes of the fields that have a length.

        Raises:
            IndexError, WireFormatError: the bytes end too soon, or are no fields; or the budget is used up.
        """
        place = 0
        while place < len(data):
            if not self._fields_left:
                raise WireFormatError
            self._fields_left -= 1
            tag, place = read_varint(data, place)
            kind, number = tag & 7, tag >> 3
            if not number:
                raise WireFormatError
            if kind == VARINT:
                _, place = read_varint(data, place)
            elif kind == DELIMITED:
                size, place = read_varint(data, place)
                yield number, data[place : place + size]
                place += size
            elif kind in (FIXED64, FIXED32):
                place += 8 if kind == FIXED64 else 4
            else:
                raise WireFormatError
