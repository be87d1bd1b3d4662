"""What the audit log says of a call: who made it, what it named, and what came of it. Never a payload."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message

_MOST_ITEMS = 20
"""Of a list: what follows is counted."""
_LONGEST_TEXT = 200
_MOST_BYTES = 8_192
"""Of what is kept of a request."""
_DEEPEST = 4

_MASK = "google.protobuf.FieldMask"
DONE, DRY_RUN, NOTHING_DONE, PARTLY_DONE = "OK", "DRY_RUN", "NOTHING_DONE", "PARTLY_DONE"

LEFT_OUT = frozenset(
    {
        "payload", "result", "definition", "traceback", "token", "revealed_task", "failure_message", "progress_note",
        "checkpoint",
    }
)  # fmt: skip
"""Fields that are secret or large, or that callbacks wrote: auditors may not see these."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One call."""

    actor: str
    """The principal; empty: nobody was asked who they are."""
    peer: str
    """Where the call came from, as gRPC has it."""
    method: str
    """Such as FrontendService/CancelTask."""
    outcome: str
    """The name of the call's status, such as PERMISSION_DENIED; of a call that was served, see `outcome_of`."""
    request: str
    """JSON: what the request named."""
    answer: str = ""
    """JSON: what was answered, if the call was served."""


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """An entry as the store has it."""

    event_id: int
    at: datetime
    entry: AuditEntry


class AuditLog(Protocol):
    """Where entries are kept."""

    async def record(self, entry: AuditEntry) -> None:
        """Store an entry before the call is answered.

        Raises:
            StoreUnavailableError: it could not be stored; the caller has to repeat the call.
        """
        ...


def outcome_of(request: Message, response: Message) -> str:
    """Return what came of a call that was served: its items may have errors, and it may have been to count only."""
    if getattr(request, "dry_run", False):
        return DRY_RUN
    if _has_error(response.DESCRIPTOR) and response.HasField("error"):
        return NOTHING_DONE
    items = [
        item
        for field, value in response.ListFields()
        if field.is_repeated and not _is_map(field) and _has_error(field.message_type)
        for item in value
    ]
    failed = sum(item.HasField("error") for item in items)
    if not failed:
        return DONE
    return NOTHING_DONE if failed == len(items) else PARTLY_DONE


def _has_error(kind: Any) -> bool:
    """Return whether messages of a kind may have an error; None: what is no message has none."""
    field = kind.fields_by_name.get("error") if kind is not None else None
    return field is not None and field.message_type is not None


def describe(message: Message | None) -> str:
    """Return what a message says, as JSON of bounded size, without payloads."""
    if message is None:
        return ""
    text = json.dumps(_fields(message, 0), separators=(",", ":"), ensure_ascii=False)
    if len(text.encode()) > _MOST_BYTES:
        names = sorted(field.name for field, _ in message.ListFields())
        return json.dumps({"too large to keep; fields": names})
    return text


def _fields(message: Message, depth: int) -> dict[str, Any]:
    if depth >= _DEEPEST:
        return {"...": "left out"}
    return {
        field.name: "left out" if field.name in LEFT_OUT else _value(field, value, depth)
        for field, value in message.ListFields()
    }


def _value(field: Any, value: Any, depth: int) -> Any:
    if field.is_repeated and not _is_map(field):
        items = [_one(field, each, depth) for each in value[:_MOST_ITEMS]]
        return items if len(value) <= _MOST_ITEMS else [*items, f"and {len(value) - _MOST_ITEMS:,} more"]
    if _is_map(field):
        kind = field.message_type.fields_by_name["value"]
        if kind.message_type is None or kind.message_type.full_name != _MASK or len(value) > _MOST_ITEMS:
            return f"{len(value)} entries"
        return {name: _one(kind, value[name], depth) for name in sorted(value)}
    return _one(field, value, depth)


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _one(field: Any, value: Any, depth: int) -> Any:
    if isinstance(value, Message):
        name = value.DESCRIPTOR.full_name
        if isinstance(value, FieldMask):  # what was changed
            return ",".join(value.paths[:_MOST_ITEMS])[:_LONGEST_TEXT]
        if name in {"google.protobuf.Timestamp", "google.protobuf.Duration"}:
            try:
                return value.ToJsonString()  # type: ignore[attr-defined]
            except ValueError:  # beyond what it may hold: the request was refused for it
                return "invalid"
        return _fields(value, depth + 1)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else value
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return value[:_LONGEST_TEXT] + "..."
    return value
