"""Frames on the socket pair between an Executor and a callback process: a length of 4 bytes, then protobuf."""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, TypeVar

from google.protobuf.message import DecodeError, Message

MOST_BYTES = 64 * 1024 * 1024
"""A longer frame is invalid: its sender would make this process allocate memory that it need not have itself."""

FULL_BYTES = 8 * 1024 * 1024
"""What is sent is divided into frames of no more than this, unless one item is larger; none is by far as large as
`MOST_BYTES`."""

LENGTH = struct.Struct("<I")

Frame = TypeVar("Frame", bound=Message)
Item = TypeVar("Item")


def write(message: Message) -> bytes:
    """The bytes of one frame."""
    body = message.SerializeToString()
    return LENGTH.pack(len(body)) + body


def length(head: bytes) -> int:
    """How long a frame is that begins so.

    Raises:
        DecodeError: longer than any.
    """
    size: int = LENGTH.unpack(head)[0]
    if size > MOST_BYTES:
        raise DecodeError(f"a frame of {size} bytes")
    return size


def divided(
    items: Sequence[Item], weigh: Callable[[Item], int], most: int = FULL_BYTES
) -> Iterator[Sequence[Item]]:
    """In parts of at most so many bytes, unless one item is larger; at least one part, be it empty.

    `weigh` says how many bytes an item takes.
    """
    if sum(map(weigh, items)) <= most:
        yield items
        return
    part: list[Item] = []
    size = 0
    for item in items:
        bytes_of_this = weigh(item)
        if part and size + bytes_of_this > most:
            yield part
            part, size = [], 0
        part.append(item)
        size += bytes_of_this
    yield part


def read(stream: BinaryIO, into: type[Frame]) -> Frame | None:
    """The next frame of a blocking stream; None at its end.

    Raises:
        DecodeError: what comes is not a frame.
    """
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    size = length(head)
    body = stream.read(size)
    return into.FromString(body) if len(body) == size else None
