"""Field masks: which fields of a thing a call sets (AIP-134). Everything else stays as it is (decision 0062)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message

from duly_core.rpc.requests.problem import Problem

Thing = TypeVar("Thing", bound=Message)

_LONGEST_PATH = 100
_MOST_PATHS = 100


def named_fields(
    field: str, mask: FieldMask | None, asked: Message, settable: Sequence[str]
) -> frozenset[str]:
    """Return the paths that a call sets, each one of `settable`.

    Args:
        field: where the mask is in the request, for messages.
        mask: what the call names. None or without paths: the fields of `asked` that are set.
        asked: what the call says.
        settable: the paths that may be set, without those of messages within: `rate.units`, not `rate`.

    Raises:
        Problem: the mask names what cannot be set, or has more than 100 paths.
    """
    if mask is None or not mask.paths:
        return frozenset(_set_fields(asked, settable))
    if len(mask.paths) > _MOST_PATHS:
        raise Problem(field, f"there may be at most {_MOST_PATHS} paths, not {len(mask.paths):,}")
    named: set[str] = set()
    for path in mask.paths:
        found = [each for each in settable if each == path or each.startswith(f"{path}.")]
        if not found:
            message = f"{path[:_LONGEST_PATH]!r} is no field that can be set: name {', '.join(settable)}"
            raise Problem(field, message)
        named.update(found)
    return frozenset(named)


def merged(current: Thing, asked: Message, named: Iterable[str]) -> Thing:
    """Return a copy of `current` that has what `asked` says of the named fields, and the rest as it is.

    Both are messages of one kind. A named field that `asked` does not set is removed.
    """
    result = type(current)()
    result.CopyFrom(current)
    for path in named:
        _copy(asked, result, path.split("."))
    return result


def changed_fields(before: Message, after: Message, settable: Iterable[str]) -> FieldMask:
    """Return the paths by which two messages of one kind differ."""
    return FieldMask(paths=[each for each in settable if _value(before, each) != _value(after, each)])


def _set_fields(asked: Message, settable: Sequence[str]) -> Iterator[str]:
    """Yield the paths that are set; of a message within that is set and empty: all of it."""
    for path in settable:
        parent, dot, _ = path.rpartition(".")
        of_parent = [each for each in settable if each.startswith(f"{parent}.")] if dot else []
        is_empty = bool(dot) and is_set(asked, parent) and not any(is_set(asked, each) for each in of_parent)
        if is_empty or is_set(asked, path):
            yield path


def is_set(message: Message, path: str) -> bool:
    """Tell whether a message sets a field."""
    *outer, last = path.split(".")
    for name in outer:
        if not message.HasField(name):
            return False
        message = getattr(message, name)
    if message.DESCRIPTOR.fields_by_name[last].has_presence:
        return message.HasField(last)
    return bool(getattr(message, last))


def _value(message: Message, path: str) -> object:
    """Return what a field says; None: it is not set."""
    if not is_set(message, path):
        return None
    for name in path.split("."):
        message = getattr(message, name)
    return message


def _copy(source: Message, target: Message, path: Sequence[str]) -> None:
    name, *rest = path
    field = target.DESCRIPTOR.fields_by_name[name]
    if not is_set(source, name):
        if not rest:
            target.ClearField(name)
        elif target.HasField(name):
            _copy(type(getattr(source, name))(), getattr(target, name), rest)
    elif rest:
        getattr(target, name).SetInParent()
        _copy(getattr(source, name), getattr(target, name), rest)
    elif field.is_repeated:  # maps, too
        target.ClearField(name)
        getattr(target, name).MergeFrom(getattr(source, name))
    elif field.message_type is not None:
        getattr(target, name).CopyFrom(getattr(source, name))
    else:
        setattr(target, name, getattr(source, name))
