"""Builds, from the type a callback declares for its payload, the function that reads JSON into it.

The work of looking at types is done once, at registration; `Reader`s only look at values. A value
that does not fit raises PayloadError, whose path is put together on the way out.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Literal, TypeAlias
from uuid import UUID

from duly.attachments.attachment import Attachment
from duly.callbacks.read_records import (
    RecordField,
    dataclass_fields,
    model_reader,
    record_reader,
    typed_dict_fields,
)
from duly.errors import PayloadError, RegistrationError

Reader: TypeAlias = Callable[[Any], Any]


def reader_for(annotation: object) -> Reader:
    """Return the reader of a declared type; raise RegistrationError if JSON cannot be read into it."""
    return _Compiler().reader(annotation)


class _Compiler:
    """Remembers the records it has met, so that a type may contain itself."""

    def __init__(self) -> None:
        self._records: dict[type, Reader] = {}

    def reader(self, annotation: Any) -> Reader:
        if annotation in _SCALARS:
            return _SCALARS[annotation]
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is typing.Annotated:
            return self.reader(arguments[0])
        if origin in (typing.Union, types.UnionType):
            return self._union(arguments)
        if origin is Literal:
            return _one_of([(choice, choice) for choice in arguments])
        if origin in (list, Sequence):
            return _list_of(self.reader(arguments[0]))
        if origin in (dict, Mapping) and arguments[0] is str:
            return _dict_of(self.reader(arguments[1]))
        if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
            items = _list_of(self.reader(arguments[0]))
            return lambda value: tuple(items(value))
        if isinstance(annotation, type):
            return self._class(annotation)
        raise _unsupported(annotation)

    def _class(self, kind: type) -> Reader:
        if kind in self._records:
            return self._records[kind]
        if issubclass(kind, Enum):
            return _one_of([(member.value, member) for member in kind])
        if hasattr(kind, "model_validate"):
            return model_reader(kind)
        if dataclasses.is_dataclass(kind):
            return self._record(kind, dataclass_fields(kind), kind)
        if typing.is_typeddict(kind):
            return self._record(kind, typed_dict_fields(kind), dict)
        raise _unsupported(kind)

    def _record(self, kind: type, fields: Sequence[RecordField], build: Callable[..., Any]) -> Reader:
        readers: dict[str, Reader] = {}
        self._records[kind] = read = record_reader(kind.__name__, fields, readers, build)
        for field in fields:
            readers[field.name] = self.reader(field.annotation)
        return read

    def _union(self, members: Sequence[Any]) -> Reader:
        readers = [self.reader(member) for member in members if member is not type(None)]
        if len(readers) == len(members):
            return _first_of(readers, members)
        # One member beside None keeps its own, more exact, error.
        inner = readers[0] if len(readers) == 1 else _first_of(readers, members)
        return lambda value: None if value is None else inner(value)


def _exactly(kind: type) -> Reader:
    # The type itself, not isinstance: to JSON, True is no int.
    def read(value: Any) -> Any:
        if type(value) is kind:
            return value
        raise mismatch(kind.__name__, value)

    return read


def _read_none(value: object) -> None:
    if value is not None:
        raise mismatch("None", value)


def _read_float(value: object) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise mismatch("float", value)


def _parsed(what: str, parse: Callable[[str], Any]) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not str:
            raise mismatch(f"{what} as str", value)
        try:
            return parse(value)
        except ValueError:
            raise PayloadError(f"expected {what}, got another str") from None

    return read


def _one_of(choices: Sequence[tuple[Any, Any]]) -> Reader:
    expected = "one of " + ", ".join(repr(written) for written, _ in choices)

    def read(value: Any) -> Any:
        for written, meaning in choices:
            if type(written) is type(value) and written == value:
                return meaning
        raise PayloadError(f"expected {expected}, got another {type(value).__name__}")

    return read


def _first_of(readers: Sequence[Reader], members: Sequence[Any]) -> Reader:
    expected = " or ".join(
        "None" if kind is type(None) else getattr(kind, "__name__", str(kind)) for kind in members
    )

    def read(value: Any) -> Any:
        for reader in readers:
            try:
                return reader(value)
            except PayloadError:
                continue
        raise mismatch(expected, value)

    return read


def _list_of(item_reader: Reader) -> Reader:
    def read(value: Any) -> list[Any]:
        if type(value) is not list:
            raise mismatch("list", value)
        items = []
        try:
            for item in value:
                items.append(item_reader(item))  # noqa: PERF401 (their number says where an error is)
        except PayloadError as error:
            raise error.inside(f"[{len(items)}]") from None
        return items

    return read


def _dict_of(item_reader: Reader) -> Reader:
    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise mismatch("dict", value)
        items = {}
        for key, item in value.items():
            try:
                items[key] = item_reader(item)
            except PayloadError as error:
                raise error.inside(f"[{key!r}]") from None
        return items

    return read


def mismatch(expected: str, value: object) -> PayloadError:
    """Return the error that names both types, and not the value."""
    return PayloadError(f"expected {expected}, got {'None' if value is None else type(value).__name__}")


def _unsupported(annotation: object) -> RegistrationError:
    return RegistrationError(
        f"a payload cannot be read into {annotation!r}: use str, int, float, bool, list, dict[str, ...], Literal, an "
        "enum, datetime, UUID, duly.Attachment, a dataclass, a TypedDict or a pydantic model"
    )


def _as_is(value: Any) -> Any:
    return value


_SCALARS: dict[Any, Reader] = {
    Any: _as_is,
    object: _as_is,
    None: _read_none,
    type(None): _read_none,
    float: _read_float,
    datetime: _parsed("an ISO 8601 datetime", datetime.fromisoformat),
    UUID: _parsed("a UUID", UUID),
    Attachment: _exactly(Attachment),
    **{kind: _exactly(kind) for kind in (str, int, bool, list, dict)},
}
