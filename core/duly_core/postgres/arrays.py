"""Array parameters of the hot path's statements, written in Postgres's binary form by whole columns.

psycopg's own list dumper asks for a dumper for each element, in Python: of what an RPC of 200 tasks costs a service
that was a tenth. One `join` writes a column of ids 20 times as fast; texts and numbers repeat themselves in a batch,
so each is written once. A column of nothing but nulls is an empty array: `unnest` of several arrays fills the shorter
ones with nulls. (Format: array_send in Postgres's arrayfuncs.c.)
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from struct import Struct, pack
from typing import Any

from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

_HEAD = Struct("!iiIii")
_EMPTY = Struct("!iiI")
_LENGTH = Struct("!i").pack
_NULL = _LENGTH(-1)
_UUID_LENGTH = _LENGTH(16)
_BOOL = Struct("!i?").pack
_INT2 = Struct("!ih").pack
_INT4 = Struct("!ii").pack
_INT8 = Struct("!iq").pack
_INT8_LENGTH = 8
_INTERVAL = Struct("!iqii").pack
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class Array(bytes):
    """A column in binary form; its subclasses, the KINDS, say of what."""

    __slots__ = ()
    OID: int
    ELEMENT: int


def _array_of(element: str, oid: int, element_oid: int) -> type[Array]:
    return type(f"{element.title()}Array", (Array,), {"__slots__": (), "OID": oid, "ELEMENT": element_oid})


UUID = _array_of("uuid", 2951, 2950)
TEXT = _array_of("text", 1009, 25)
BOOL = _array_of("bool", 1000, 16)
INT2 = _array_of("int2", 1005, 21)
INT4 = _array_of("int4", 1007, 23)
BYTEA = _array_of("bytea", 1001, 17)
TIMESTAMP = _array_of("timestamptz", 1185, 1184)
INTERVAL = _array_of("interval", 1187, 1186)

KINDS = (UUID, TEXT, BOOL, INT2, INT4, BYTEA, TIMESTAMP, INTERVAL)


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


def _column(kind: type[Array], values: Sequence[Any], write: Callable[[Any], bytes]) -> Array:
    nulls = None in values
    if nulls and values.count(None) == len(values):
        return kind(_head(kind, 0, nulls=False))
    elements = map(write, values)
    return kind(_head(kind, len(values), nulls=nulls) + b"".join(elements))


def uuids(ids: Iterable[bytes]) -> Array:
    """Ids of 16 bytes each.

    Raises:
        ValueError: one of them is longer or shorter.
    """
    ids = list(ids)
    if ids and set(map(len, ids)) != {16}:
        message = "an id is not 16 bytes"
        raise ValueError(message)
    body = _UUID_LENGTH + _UUID_LENGTH.join(ids) if ids else b""
    return UUID(_head(UUID, len(ids), nulls=False) + body)


def texts(values: Sequence[str | None]) -> Array:
    """Texts, None for null."""
    return _column(TEXT, values, _Written(_text).__getitem__)


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _LENGTH(len(encoded)) + encoded


def int2s(values: Sequence[int | None]) -> Array:
    """Small numbers, None for null."""
    return _column(INT2, values, _Written(lambda value: _INT2(2, value)).__getitem__)


def int4s(values: Sequence[int | None]) -> Array:
    """Numbers, None for null."""
    return _column(INT4, values, _Written(lambda value: _INT4(4, value)).__getitem__)


def bools(values: Sequence[bool | None]) -> Array:
    """Truth values, None for null."""
    return _column(BOOL, values, _Written(lambda value: _BOOL(1, value)).__getitem__)


def byteas(values: Sequence[bytes | None]) -> Array:
    """Bytes, None for null; unlike texts they seldom come twice."""
    return _column(BYTEA, values, lambda value: _NULL if value is None else _LENGTH(len(value)) + value)


def timestamps(values: Sequence[datetime | None]) -> Array:
    """Aware instants, None for null."""
    since = [_microseconds(value - _EPOCH) for value in values if value is not None]
    if since and len(since) == len(values):
        elements = [_INT8_LENGTH] * (2 * len(since))
        elements[1::2] = since
        return TIMESTAMP(_head(TIMESTAMP, len(since), nulls=False) + pack("!" + "iq" * len(since), *elements))
    return _column(
        TIMESTAMP,
        values,
        lambda value: _NULL if value is None else _INT8(_INT8_LENGTH, _microseconds(value - _EPOCH)),
    )


def intervals(values: Sequence[timedelta | None]) -> Array:
    """Durations, None for null."""
    return _column(
        INTERVAL, values, _Written(lambda value: _INTERVAL(16, _microseconds(value), 0, 0)).__getitem__
    )


def _microseconds(value: timedelta) -> int:
    return (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
