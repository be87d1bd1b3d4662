"""Attributes of tasks: names and values of the caller's own, as the store keeps them. No I/O."""

import json
import re
from collections.abc import Mapping
from typing import TypeAlias

Value: TypeAlias = str | int | bool
Attributes: TypeAlias = tuple[tuple[str, Value], ...]
"""By name, each once."""

MOST = 8
LONGEST_VALUE = 256
"""Bytes of a text."""
NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")


def text_of(value: Value) -> str:
    """Return the text by which a value is found: 17 and "17" have the same.

    >>> text_of(17), text_of(True), text_of("a b")
    ('17', 'true', 'a b')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def written(attributes: Attributes) -> str | None:
    """Return attributes as the entity has them, as JSON; None: there are none."""
    return json.dumps(dict(sorted(attributes)), ensure_ascii=False) if attributes else None


def read(kept: Mapping[str, Value] | None) -> Attributes:
    """Return what an entity has."""
    return tuple(sorted((kept or {}).items()))
