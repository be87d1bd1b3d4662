"""Attributes: names and values of the caller's own, by which it finds tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from duly.errors import InvalidTaskError
from duly.tasks.arguments import wrong_type
from duly_wire.v1 import frontend_pb2, task_pb2

AttributeValue: TypeAlias = str | int | bool
"""Of an attribute: a text of 1 to 256 bytes, an integer of 64 bits, or a flag."""
_LARGEST = 2**63


def attributes_bytes(attributes: object) -> bytes:
    """Return what is sent with a task. Raises InvalidTaskError."""
    return task_pb2.Attributes(attributes=wire_attributes(attributes)).SerializeToString()


def wire_attributes(attributes: object) -> list[task_pb2.Attribute]:
    """Return attributes as the wire has them. Raises InvalidTaskError."""
    return [_attribute(name, value) for name, value in _items(attributes)]


def attribute_filters(wanted: object) -> list[frontend_pb2.AttributeFilter]:
    """Return what a list is asked for. Raises InvalidTaskError."""
    made = wire_attributes(wanted)
    return [frontend_pb2.AttributeFilter(name=each.name, value=_text(each)) for each in made]


def attributes_of(made: Iterable[task_pb2.Attribute]) -> dict[str, AttributeValue]:
    """Return the attributes of a task by name."""
    return {each.name: _value(each) for each in made}


def _items(attributes: object) -> Iterable[tuple[object, object]]:
    if not isinstance(attributes, Mapping):
        raise wrong_type("attributes", attributes, 'a mapping such as {"order": 17}')
    return attributes.items()


def _attribute(name: object, value: object) -> task_pb2.Attribute:
    if not isinstance(name, str):
        raise wrong_type("attributes", name, "names that are texts")
    if isinstance(value, bool):
        return task_pb2.Attribute(name=name, flag=value)
    if isinstance(value, int):
        if not -_LARGEST <= value < _LARGEST:
            raise InvalidTaskError(
                f"attributes: {name!r} must be an integer of 64 bits: give a text", "attributes"
            )
        return task_pb2.Attribute(name=name, number=value)
    if isinstance(value, str):
        return task_pb2.Attribute(name=name, text=value)
    raise wrong_type("attributes", value, f"texts, integers or flags: the value of {name!r}")


def _value(made: task_pb2.Attribute) -> AttributeValue:
    kind = made.WhichOneof("value")
    if kind == "number":
        return made.number
    return made.flag if kind == "flag" else made.text


def _text(made: task_pb2.Attribute) -> str:
    value = _value(made)
    return str(value).lower() if isinstance(value, bool) else str(value)
