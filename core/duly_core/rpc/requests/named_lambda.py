"""Finds the lambda that a request names, whatever its kind: for the refusal of a caller that may do nothing of the kind."""

from google.protobuf.message import Message

_LONGEST = 128
"""Characters of a lambda's name."""


def lambda_of(request: Message) -> str:
    """Return the first lambda that a request names, itself or in its first item; empty: it names none."""
    return _own(request) or next(filter(None, map(_own, _parts(request))), "")


def _own(message: Message) -> str:
    is_lambda = message.DESCRIPTOR.full_name == "duly.v1.Lambda"
    for field, value in message.ListFields():
        if isinstance(value, str) and field.name in ("lambda", "name" if is_lambda else "lambda"):
            return value[:_LONGEST]
    return ""


def _parts(message: Message) -> list[Message]:
    values = [
        value[0] if field.is_repeated else value
        for field, value in message.ListFields()
        if field.message_type and not field.message_type.GetOptions().map_entry
    ]
    return [value for value in values if isinstance(value, Message)]
