"""Fetches payloads and results that are attachments as a whole, so that callers read them as any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from duly.attachments.client_service import in_thread
from duly.attachments.encoding import whole_of
from duly.attachments.origin import Origin
from duly.errors import DulyError
from duly_wire.v1 import task_pb2

if TYPE_CHECKING:
    from duly.transport.caller import Caller


async def with_wholes(caller: Caller, tasks: Sequence[Any], *, payloads: bool) -> list[Any]:
    """Return tasks with results, and `payloads`, that are attachments as a whole; what cannot be fetched stays as it is."""
    found = [*tasks]
    for place, task in enumerate(found):
        if task is None:
            continue
        changes: dict[str, Any] = {}
        for part in ("result", "payload") if payloads else ("result",):
            if getattr(task, f"{part}_encoding") == task_pb2.ENCODING_ATTACHMENT:
                data, encoding = await _read_whole(caller, task.task_id, getattr(task, f"{part}_bytes"))
                changes |= {f"{part}_bytes": data, f"{part}_encoding": encoding}
        if changes:
            found[place] = replace(task, **changes)
    return found


async def _read_whole(caller: Caller, task_id: str, data: bytes) -> tuple[bytes, int]:
    try:
        attachment, encoding = whole_of(data, Origin(task_id))
        return await in_thread(
            caller, lambda service: Origin(task_id, service, caller.codec).read(attachment)
        ), encoding
    except (DulyError, OSError):
        return data, task_pb2.ENCODING_ATTACHMENT
