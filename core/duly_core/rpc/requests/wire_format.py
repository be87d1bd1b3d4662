"""Protobuf's wire format, for what looks at a request before the parser does."""

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
"""Kinds of fields: the low three bits of a tag. Groups, 3 and 4, are in no message of Duly."""

_LONGEST_VARINT = 10
"""Bytes. Without a limit a request of nothing but 0xff would be read into one number, for minutes."""


class WireFormatError(Exception):
    """The bytes are no fields."""


def read_varint(data: bytes | memoryview, place: int) -> tuple[int, int]:
    """Return a number and the place behind it.

    Raises:
        IndexError: the bytes end too soon.
        WireFormatError: the number has no end.
    """
    value = 0
    for digit in range(_LONGEST_VARINT):
        byte = data[place + digit]
        value |= (byte & 0x7F) << 7 * digit
        if not byte & 0x80:
            return value, place + digit + 1
    raise WireFormatError
