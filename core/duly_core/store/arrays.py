"""Array parameters of the hot path's statements, written in Postgres's binary form by whole columns.

psycopg's own list dumper asks for a dumper for each element, in Python: of what an RPC of 200 tasks costs a service
that was a tenth. One `join` writes a column of ids 20 times as fast; texts and numbers repeat themselves in a batch,
so each is written once. (Format: array_send in Postgres's arrayfuncs.c.)
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any

from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

_HEAD = Struct("!iiIii")
_EMPTY = Struct("!iiI")
_LENGTH = Struct("!i").pack
_NULL = _LENGTH(-1)
_UUID_LENGTH = _LENGTH(16)
_INT2 = Struct("!ih").pack
_INT8 = Struct("!iq").pack
_INTERVAL = Struct("!iqii").pack
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class Array(bytes):
    """A column in binary form; its subclasses say of what."""

    __slots__ = ()
    OID: int
    ELEMENT: int


class UuidArray(Array):
    """`uuid[]`."""

    __slots__ = ()
    OID, ELEMENT = 2951, 2950


class TextArray(Array):
    """`text[]`."""

    __slots__ = ()
    OID, ELEMENT = 1009, 25


class Int2Array(Array):
    """`int2[]`."""

    __slots__ = ()
    OID, ELEMENT = 1005, 21


class ByteaArray(Array):
    """`bytea[]`."""

    __slots__ = ()
    OID, ELEMENT = 1001, 17


class TimestampArray(Array):
    """`timestamptz[]`."""

    __slots__ = ()
    OID, ELEMENT = 1185, 1184


class IntervalArray(Array):
    """`interval[]`."""

    __slots__ = ()
    OID, ELEMENT = 1187, 1186


KINDS = (UuidArray, TextArray, Int2Array, ByteaArray, TimestampArray, IntervalArray)


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: bytes) -> Buffer:
        return obj


def dumper(kind: type[Array]) -> type[Dumper]:
    """What psycopg is to be told of one of KINDS."""
    return type(f"{kind.__name__}Dumper", (_ArrayDumper,), {"oid": kind.OID})


def _head(kind: type[Array], count: int, *, nulls: bool) -> bytes:
    return _HEAD.pack(1, nulls, kind.ELEMENT, count, 1) if count else _EMPTY.pack(0, 0, kind.ELEMENT)


class _Written(dict[Any, bytes]):
    """Elements by value, each written when it is first met."""

    def __init__(self, write: Callable[[Any], bytes]) -> None:
        super().__init__({None: _NULL})
        self._write = write

    def __missing__(self, value: Any) -> bytes:
        element = self[value] = self._write(value)
        return element


def _column(kind: type[Array], values: Sequence[Any], write: Callable[[Any], bytes]) -> bytes:
    return _head(kind, len(values), nulls=None in values) + b"".join(map(_Written(write).__getitem__, values))


def uuids(ids: Iterable[bytes]) -> UuidArray:
    """Ids of 16 bytes each.

    Raises:
        ValueError: one of them is longer or shorter.
    """
    ids = list(ids)
    if ids and set(map(len, ids)) != {16}:
        message = "an id is not 16 bytes"
        raise ValueError(message)
    body = _UUID_LENGTH + _UUID_LENGTH.join(ids) if ids else b""
    return UuidArray(_head(UuidArray, len(ids), nulls=False) + body)


def texts(values: Sequence[str | None]) -> TextArray:
    """Texts, None for null."""
    return TextArray(_column(TextArray, values, _text))


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _LENGTH(len(encoded)) + encoded


def int2s(values: Sequence[int | None]) -> Int2Array:
    """Small numbers, None for null."""
    return Int2Array(_column(Int2Array, values, lambda value: _INT2(2, value)))


def byteas(values: Sequence[bytes | None]) -> ByteaArray:
    """Bytes, None for null; unlike texts they seldom come twice."""
    body = [_NULL if value is None else _LENGTH(len(value)) + value for value in values]
    return ByteaArray(_head(ByteaArray, len(values), nulls=None in values) + b"".join(body))


def timestamps(values: Sequence[datetime | None]) -> TimestampArray:
    """Aware instants, None for null."""
    body = [_NULL if value is None else _INT8(8, _microseconds(value - _EPOCH)) for value in values]
    return TimestampArray(_head(TimestampArray, len(values), nulls=None in values) + b"".join(body))


def intervals(values: Sequence[timedelta | None]) -> IntervalArray:
    """Durations, None for null."""
    return IntervalArray(_column(IntervalArray, values, _interval))


def _interval(value: timedelta) -> bytes:
    return _INTERVAL(16, _microseconds(value), 0, 0)


def _microseconds(value: timedelta) -> int:
    return (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
