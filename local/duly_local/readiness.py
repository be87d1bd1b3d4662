"""Whether a service is ready: what its gRPC health check (grpc.health.v1) answers.

One call over a plain socket, with HTTP/2 written out: the gRPC library would be most of the supervisor's memory.
"""

import asyncio
import struct
from datetime import timedelta

_ONE_CALL = timedelta(seconds=1)
_LOOK_AGAIN_AFTER = timedelta(milliseconds=50)

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM = _ACK = 1
_END_HEADERS = 4
_STREAM = 1
_HEAD = struct.Struct(">BHBBI")
"""Of a frame: its length in 24 bits, type, flags and stream."""
_LARGEST = 64 * 1024

_EMPTY_MESSAGE = b"\0" + struct.pack(">I", 0)
_SERVING = b"\0" + struct.pack(">I", 2) + b"\x08\x01"
"""gRPC's head (not compressed, two bytes), and the field `status` with the value SERVING."""


async def wait_until_healthy(address: str, within: timedelta) -> bool:
    """Ask until the service at `host:port` says it serves; False: it did not within that time."""
    try:
        async with asyncio.timeout(within.total_seconds()):
            while not await _serves(address):  # noqa: ASYNC110 (the event is in another process)
                await asyncio.sleep(_LOOK_AGAIN_AFTER.total_seconds())
    except TimeoutError:
        return False
    return True


async def _serves(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_ONE_CALL.total_seconds()):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(_question(address))
                return await _answer(reader, writer) == _SERVING
            finally:
                writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return False


def _question(address: str) -> bytes:
    """`Check` for the server as a whole, as the only call of a new connection."""
    headers = b"".join(
        (
            b"\x83\x86",  # :method POST, :scheme http
            _literal(b"\x04", b"/grpc.health.v1.Health/Check"),  # :path
            _literal(b"\x01", address.encode()),  # :authority
            _literal(b"\x0f\x10", b"application/grpc"),  # content-type
            _literal(b"\x00" + _text(b"te"), b"trailers"),
        )
    )
    return b"".join(
        (
            _PREFACE,
            _frame(_SETTINGS, 0, 0),
            _frame(_HEADERS, _END_HEADERS, _STREAM, headers),
            _frame(_DATA, _END_STREAM, _STREAM, _EMPTY_MESSAGE),
        )
    )


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Return the message that answers the call; empty: it failed."""
    message = b""
    while len(message) < len(_SERVING):
        high, low, kind, flags, stream = _HEAD.unpack(await reader.readexactly(_HEAD.size))
        length = high << 16 | low
        if length > _LARGEST or kind in (_GOAWAY, _RST_STREAM):
            return b""
        body = await reader.readexactly(length)
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            writer.write(_frame(kind, _ACK, 0, body if kind == _PING else b""))
        elif stream == _STREAM:
            message += body if kind == _DATA else b""
            if flags & _END_STREAM:
                break
    return message


def _frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return _HEAD.pack(len(body) >> 16, len(body) & 0xFFFF, kind, flags, stream) + body


def _literal(name: bytes, value: bytes) -> bytes:
    """A header that is not kept in the connection's table; `name` is encoded already."""
    return name + _text(value)


def _text(value: bytes) -> bytes:
    return bytes([len(value)]) + value
