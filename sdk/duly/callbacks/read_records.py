"""Reads JSON objects into records: dataclasses, TypedDicts, pydantic models."""

from __future__ import annotations

import dataclasses
import typing
from typing import TYPE_CHECKING, Any, NamedTuple

from duly.errors import PayloadError, RegistrationError, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# A key is the sender's text: enough of it to recognise, not enough to carry a payload into a log.
_LONGEST_KEY_SHOWN = 64


class RecordField(NamedTuple):
    """One field of a record: what it is called, what it holds, and whether it may be missing."""

    name: str
    annotation: Any
    required: bool


def dataclass_fields(kind: type) -> list[RecordField]:
    """Return the fields that a dataclass's constructor takes."""
    hints = resolve_hints(kind)
    return [
        RecordField(
            field.name,
            hints[field.name],
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(kind)
        if field.init
    ]


def typed_dict_fields(kind: type) -> list[RecordField]:
    """Return a TypedDict's keys."""
    required: frozenset[str] = kind.__required_keys__  # type: ignore[attr-defined]
    fields = []
    for name, hint in resolve_hints(kind).items():
        # Under `from __future__ import annotations` Python 3.11 overlooks NotRequired in __required_keys__.
        marker = typing.get_origin(hint)
        marked = marker in (typing.Required, typing.NotRequired)
        annotation = typing.get_args(hint)[0] if marked else hint
        fields.append(
            RecordField(name, annotation, marker is typing.Required if marked else name in required)
        )
    return fields


def resolve_hints(owner: object, namespace: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return an object's annotations with names turned into types; RegistrationError if one is unknown."""
    try:
        return typing.get_type_hints(owner, globalns=namespace, include_extras=True)
    except Exception as error:  # whatever evaluating an annotation may raise
        raise RegistrationError(
            f"a payload's type cannot be resolved ({error}): define and import it at module level, and not only "
            "under TYPE_CHECKING"
        ) from error


def record_reader(
    name: str,
    fields: Sequence[RecordField],
    readers: Mapping[str, Callable[[Any], Any]],
    build: Callable[..., Any],
) -> Callable[[Any], Any]:
    """Return the reader that checks a JSON object's keys, reads each value, and builds the record.

    `readers` is looked into when a value is read, not before: a record that contains itself fills it
    after its own reader exists.
    """
    required = [field.name for field in fields if field.required]

    def read(value: Any) -> Any:
        if type(value) is not dict:
            got = "None" if value is None else type(value).__name__
            raise PayloadError(f"expected {name} as dict, got {got}")
        for key in required:
            if key not in value:
                raise PayloadError("is missing", f".{key}")
        values = {}
        for key, item in value.items():
            reader = readers.get(key)
            if reader is None:
                raise PayloadError(f"{name} has no such field", f".{key[:_LONGEST_KEY_SHOWN]}")
            try:
                values[key] = reader(item)
            except PayloadError as error:
                raise error.inside(f".{key}") from None
        try:
            return build(**values)
        except (TypeError, ValueError) as error:  # what a __post_init__ says about values it does not like
            raise PayloadError(f"{name} refused it: {text_of(error)}") from error

    return read


def model_reader(model: Any) -> Callable[[Any], Any]:
    """Return the reader of a pydantic model, which does its own checking."""

    def read(value: Any) -> Any:
        try:
            return model.model_validate(value)
        except ValueError as error:
            if (details := getattr(error, "errors", None)) is None:
                raise
            # Without the input: pydantic's own text quotes it.
            first = details(include_url=False, include_context=False, include_input=False)[0]
            steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
            raise PayloadError(first["msg"].removeprefix("Value error, "), "".join(steps)) from None

    return read
