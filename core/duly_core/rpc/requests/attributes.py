"""Hold the attributes that a client gives a task, or looks for, against the rules."""

from collections.abc import Iterable, Sequence

from google.protobuf.message import DecodeError

from duly_core.rpc.requests.checks import check_text
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks.attribute_rules import LONGEST_VALUE, MOST, NAME, Attributes, Value
from duly_wire.v1 import frontend_pb2, task_pb2

_MOST_BYTES = 4096
"""More than the largest attributes take: what is longer is not read."""


def new_attributes(data: bytes) -> Attributes:
    """Return the attributes of a new task.

    Raises:
        Problem: names the field and the fix.
    """
    if len(data) > _MOST_BYTES:
        raise Problem("attributes", f"must be at most {_MOST_BYTES:,} bytes, not {len(data):,}")
    try:
        asked = task_pb2.Attributes.FromString(data).attributes
    except DecodeError as error:
        raise Problem("attributes", "must be a serialized duly.v1.Attributes") from error
    return checked_attributes(asked)


def checked_attributes(asked: Sequence[task_pb2.Attribute]) -> Attributes:
    """Return the attributes of tasks to be.

    Raises:
        Problem: names the field and the fix.
    """
    _check_count(len(asked))
    found = {
        _name(f"attributes[{place}].name", each.name): _value(f"attributes[{place}]", each)
        for place, each in enumerate(asked)
    }
    if len(found) < len(asked):
        raise Problem("attributes", "one name is given twice: an attribute has one value")
    return tuple(sorted(found.items()))


def wanted_attributes(asked: Iterable[frontend_pb2.AttributeFilter]) -> tuple[tuple[str, str], ...]:
    """Return the names and values that a list looks for.

    Raises:
        Problem: names the field and the fix.
    """
    found = []
    for place, each in enumerate(asked):
        _check_count(place + 1)
        name = _name(f"attributes[{place}].name", each.name)
        check_text(f"attributes[{place}].value", each.value, LONGEST_VALUE, least=1)
        found.append((name, each.value))
    return tuple(dict.fromkeys(found))


def attribute_to_wire(name: str, value: Value) -> task_pb2.Attribute:
    """Return an attribute as the wire has it."""
    if isinstance(value, bool):
        return task_pb2.Attribute(name=name, flag=value)
    if isinstance(value, int):
        return task_pb2.Attribute(name=name, number=value)
    return task_pb2.Attribute(name=name, text=value)


def _check_count(count: int) -> None:
    if count > MOST:
        raise Problem("attributes", f"there may be at most {MOST}, not {count}")


def _name(field: str, name: str) -> str:
    if NAME.fullmatch(name) is None:
        raise Problem(
            field,
            f"{name[:64]!r} is no name of an attribute: write a lower-case letter, then up to 63 lower-case letters, digits, _, . and -",
        )
    return name


def _value(field: str, asked: task_pb2.Attribute) -> Value:
    kind = asked.WhichOneof("value")
    if kind is None:
        raise Problem(field, "has no value: give a text, a number or a flag")
    if kind == "text":
        check_text(
            f"{field}.text", asked.text, LONGEST_VALUE, least=1, remedy=": use a hash of a longer text"
        )
        return asked.text
    return asked.number if kind == "number" else asked.flag
