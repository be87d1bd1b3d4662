"""What `--json` writes: views of the SDK as objects, one a line."""

import base64
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Any, TypeVar

from duly.attachments.attachment import Attachment, form_of
from duly_cli.output.colour import say_lines
from duly_cli.output.safe_text import UNSAFE, say

Item = TypeVar("Item")


_OF_CELLS = ("cell", "cells")
"""Fields that are left out where the installation has no cells."""


def as_object(view: Any, left_out: Collection[str] = (), **others: Any) -> dict[str, Any]:
    """Return the fields of a view, without `left_out` and with `others`; `lambda_name` is `lambda`."""
    read = {
        "lambda" if field.name == "lambda_name" else field.name: as_json(getattr(view, field.name))
        for field in fields(view)
        if field.name not in left_out and (field.name not in _OF_CELLS or getattr(view, field.name))
    }
    return read | others


def as_json(value: Any) -> Any:
    """Return what JSON can hold: a view becomes an object, a member its name, bytes become base64, durations seconds."""
    if isinstance(value, date):  # a datetime is one
        return instant(value) if isinstance(value, datetime) else value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Attachment):
        return form_of(value)
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    if isinstance(value, Mapping):
        return {key: as_json(item) for key, item in value.items()}
    return as_object(value) if is_dataclass(value) else value


_DEEPEST = 200
"""Levels of a payload that are shown: of more, Python may run out of stack."""


def is_deep(value: Any) -> bool:
    """Return whether a value of JSON is nested too deeply to be shown: others wrote it."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            item
            for each in level
            if isinstance(each, list | dict)
            for item in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


def json_text(value: Any) -> str:
    """Return a value as JSON on a line, with what is unsafe on a terminal as JSON escapes it: also a program may read it."""
    return UNSAFE.sub(
        lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False, default=as_json)
    )


def instant(moment: datetime | None) -> str | None:
    """Return an instant to the millisecond."""
    return moment.isoformat(timespec="milliseconds") if moment else None


def show_all(
    found: Sequence[Item],
    lines: Callable[[Sequence[Item]], Iterable[str]],
    to_object: Callable[[Item], Mapping[str, Any]],
    *,
    as_json: bool,
) -> None:
    """Print a list: an object a line, or `lines`."""
    if as_json:
        for each in found:
            say(json.dumps(to_object(each)))
    else:
        say_lines(lines(found))
