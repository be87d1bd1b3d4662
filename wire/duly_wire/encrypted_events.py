"""The result of a node that waited for encrypted events: their values as they were sent, behind the head of encrypted bytes.

The server that writes it has no key. Who has one reads it as what each event is bound to: its key.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Sequence
from dataclasses import dataclass

_MARK = b"\0duly.events\0"
"""Follows the head. Other encrypted bytes begin with random ones there, and 13 bytes are not met by chance."""
_HEAD_BYTES = 3
"""D0 01, and the length of the key's name, which follows."""


@dataclass(frozen=True, slots=True)
class SentValue:
    """The value of an event, as it was sent."""

    key: str
    encoding: int
    data: bytes


@dataclass(frozen=True, slots=True)
class EncryptedEvents:
    """What the node received."""

    namespace: str
    needs: str
    """Of several keys: "first" or "all". Empty: the result is the value of the only event."""
    values: tuple[SentValue, ...]


def written(events: EncryptedEvents, encrypted: bytes) -> bytes:
    """Return them as the bytes of a result; `encrypted` is one of their values, whose key people are told."""
    said = {
        "namespace": events.namespace,
        "needs": events.needs,
        "events": [[each.key, each.encoding, b64encode(each.data).decode()] for each in events.values],
    }
    return _head(encrypted) + _MARK + json.dumps(said, separators=(",", ":")).encode()


def read(data: bytes) -> EncryptedEvents | None:
    """Return what `written` wrote; None: these bytes are no such thing."""
    head = _head(data)
    if not data.startswith(_MARK, len(head)):
        return None
    try:
        said = json.loads(data[len(head) + len(_MARK) :])
        namespace, needs, sent = said["namespace"], said["needs"], said["events"]
        values = tuple(
            SentValue(_text(key), int(encoding), b64decode(value, validate=True))
            for key, encoding, value in sent
        )
        events = EncryptedEvents(_text(namespace), _text(needs), values)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, Error):
        return None
    return events if _is_whole(needs, values) else None


def _text(said: object) -> str:
    """Return a text as it is.

    Raises:
        ValueError: it has no bytes: it has half a character, which JSON can have.
        TypeError: it is no text.
    """
    if not isinstance(said, str):
        raise TypeError("no text")
    said.encode()
    return said


def _is_whole(needs: object, values: Sequence[SentValue]) -> bool:
    return needs == "all" or (needs in ("", "first") and len(values) == 1)


def _head(data: bytes) -> bytes:
    """Return the head of encrypted bytes; less, if they are none."""
    length = data[_HEAD_BYTES - 1] if len(data) >= _HEAD_BYTES else 0
    return data[: _HEAD_BYTES + length]
