"""Makes the SDK's views of what messages of the wire say, field by field."""

from __future__ import annotations

from dataclasses import fields
from enum import IntEnum
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from duly_wire import enums
from duly_wire.time_conversion import to_datetime, to_timedelta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

View = TypeVar("View")
Member = TypeVar("Member", bound=IntEnum)

_MESSAGES: dict[str, Callable[[Any], Any]] = {
    "google.protobuf.Timestamp": to_datetime,
    "google.protobuf.Duration": to_timedelta,
}


class _Source(NamedTuple):
    name: str
    field: str
    may_be_unset: bool
    read: Callable[[Any], Any]


def view(kind: type[View], *messages: Message, **given: Any) -> View:
    """Return a view, a dataclass, of what messages say.

    A field of the view that is not given is read from the message that has a field of this name, `lambda_name` from
    `lambda`: a Timestamp as a datetime, a Duration as a timedelta, an enum as the member of `duly.enums`, each of several
    in a tuple. It is None if the message does not set it.
    """
    for message in messages:
        for name, field, may_be_unset, read in _sources(
            cast("Any", kind), message.DESCRIPTOR
        ):  # to mypy, a class is no key
            if name not in given:
                unset = may_be_unset and not message.HasField(field)
                given[name] = None if unset else read(getattr(message, field))
    return kind(**given)


@cache
def _sources(kind: Any, descriptor: Descriptor) -> list[_Source]:
    """Return where the fields of a view come from; messages within the message are read by who makes the view."""
    sources = []
    for name in (each.name for each in fields(kind)):
        field = descriptor.fields_by_name.get("lambda" if name == "lambda_name" else name)
        if field is not None and (read := _reader(field)) is not None:
            sources.append(_Source(name, field.name, field.has_presence, read))
    return sources


def _reader(field: FieldDescriptor) -> Callable[[Any], Any] | None:
    if field.message_type is not None:
        read = _MESSAGES.get(field.message_type.full_name)
    else:
        members = getattr(enums, field.enum_type.name, None) if field.enum_type is not None else None
        read = _as_it_is if members is None else partial(_member, members)
    return partial(_each, read) if read is not None and field.is_repeated else read


def _as_it_is(value: Any) -> Any:
    return value


def wire_member(members: type[Member], number: int) -> Member:
    """Return the member of an enum. A server of a newer release may send one that this SDK does not know: `UNKNOWN_27`.

    >>> wire_member(enums.TaskStatus, 6), wire_member(enums.TaskStatus, 27).name
    (<TaskStatus.SUCCESS: 6>, 'UNKNOWN_27')
    """
    try:
        return members(number)
    except ValueError:
        unknown = int.__new__(members, number)
        unknown._name_, unknown._value_ = f"UNKNOWN_{number}", number
        return unknown


def _member(members: type[IntEnum], number: int) -> IntEnum | None:
    return wire_member(members, number) if number else None


def _each(read: Callable[[Any], Any], values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(map(read, values))
