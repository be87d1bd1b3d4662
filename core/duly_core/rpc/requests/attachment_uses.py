"""Between the wire and what tasks and runs use of attachments; checks what it reads."""

from collections.abc import Sequence

from google.protobuf.message import DecodeError

from duly_core.attachments.rules import (
    AttachmentError,
    AttachmentUse,
    NotStored,
    Role,
    check_use_count,
    check_uses,
)
from duly_core.rpc.requests.problem import Problem
from duly_wire.attachment_rules import MOST_USES
from duly_wire.v1 import task_pb2

_MOST_BYTES = 64 * 1024
"""Of a hundred uses with the longest names; more would take long to parse."""
_ROLES = {int(role): role for role in Role}


def task_uses(data: bytes) -> tuple[AttachmentUse, ...]:
    """Return what a new task uses: its inputs.

    Raises:
        Problem: it is no AttachmentUses, or one of them is invalid.
    """
    if len(data) > _MOST_BYTES:
        raise Problem("attachments", f"must be at most {_MOST_BYTES:,} bytes, not {len(data):,}")
    try:
        asked = task_pb2.AttachmentUses.FromString(data).uses
    except DecodeError as error:
        raise Problem("attachments", "must be a serialized duly.v1.AttachmentUses") from error
    try:
        uses = _uses(asked, Role.INPUT, MOST_USES)
    except AttachmentError as error:
        raise Problem(error.field, error.message) from error
    if any(use.role is not Role.INPUT for use in uses):
        raise Problem("attachments", "a task is scheduled with inputs: use ATTACHMENT_ROLE_INPUT")
    return uses


def run_uses(asked: Sequence[task_pb2.AttachmentUse]) -> tuple[AttachmentUse, ...]:
    """Return what a run kept.

    Raises:
        AttachmentError: one of them is invalid.
    """
    uses = _uses(asked, Role.RESULT, 2 * MOST_USES)
    if any(use.role is Role.INPUT for use in uses):
        raise AttachmentError("attachments", "a run keeps results, logs and files: it has no inputs")
    return uses


def _uses(asked: Sequence[task_pb2.AttachmentUse], default: Role, most: int) -> tuple[AttachmentUse, ...]:
    check_use_count(len(asked), most=most)  # before each of thousands is looked at
    uses = tuple(_use(each, default) for each in asked)
    check_uses(uses)
    return uses


def _use(asked: task_pb2.AttachmentUse, default: Role) -> AttachmentUse:
    role = _ROLES.get(asked.role) if asked.role else default
    if role is None:
        raise AttachmentError("attachments", f"{asked.role} is no role of an attachment")
    return AttachmentUse(asked.hash, asked.size_bytes, asked.name, asked.media_type, role)


def not_stored(missing: NotStored, field: str = "attachments") -> Problem:
    """Return the refusal of a task that uses what is not stored."""
    return Problem(field, str(missing), task_pb2.ERROR_CODE_ATTACHMENT_MISSING)


def use_to_wire(use: AttachmentUse) -> task_pb2.AttachmentUse:
    """Return a use as the wire says it."""
    return task_pb2.AttachmentUse(
        hash=use.hash,
        size_bytes=use.size_bytes,
        name=use.name,
        media_type=use.media_type,
        role=task_pb2.AttachmentRole.ValueType(use.role),
    )
