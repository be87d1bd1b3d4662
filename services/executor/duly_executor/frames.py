"""Frames on the socket pair between an Executor and a callback process: a length of 4 bytes, then protobuf."""

import struct
from typing import BinaryIO, TypeVar

from google.protobuf.message import Message

LENGTH = struct.Struct("<I")

Frame = TypeVar("Frame", bound=Message)


def write(message: Message) -> bytes:
    """The bytes of one frame."""
    body = message.SerializeToString()
    return LENGTH.pack(len(body)) + body


def read(stream: BinaryIO, into: type[Frame]) -> Frame | None:
    """The next frame of a blocking stream; None at its end."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    size = LENGTH.unpack(head)[0]
    body = stream.read(size)
    return into.FromString(body) if len(body) == size else None
