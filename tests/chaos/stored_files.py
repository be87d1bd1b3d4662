"""What of attachments is stored when a run is over, and whether all that tasks use can be fetched."""

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import psycopg

from duly_core.attachments.folder import FolderBlobs
from duly_core.process.clock import since_boot_ns
from duly_wire.attachment_rules import divided, hash_of, part_count, part_size
from duly_wire.v1 import attachments_pb2, task_pb2
from tests.chaos.calls import Calls
from tests.chaos.history import FileLeft, FileUse

_LOOK_EVERY_S = 0.3
_AT_A_TIME = 100

_ROWS = """
select namespace || '/' || encode(hash, 'hex'), blob, size_bytes, stored_at is not null, removing_at is not null,
    touched_at > duly_now(), exists (
        select from attachment_use as used where used.namespace = attachment.namespace and used.hash = attachment.hash
    )
from attachment
"""
_USES_OF_GONE = """
select task_id::text from attachment_use as used where not exists (select from task where task.task_id = used.task_id)
"""
_USAGE = """
select namespace, bytes - coalesce((
    select sum(size_bytes) from attachment where attachment.namespace = usage.namespace
), 0)
from attachment_usage as usage
"""
_TASKS = "select distinct task_id::text from attachment_use order by 1"


async def wait_until_swept(dsn: str, folder: Path, within_ns: int) -> tuple[FileLeft, ...]:
    """Return what is left when everything that no task uses had its time to go; nothing is, if all is well."""
    until_ns = since_boot_ns() + within_ns
    while True:
        left = await asyncio.to_thread(lambda: tuple(left_of(dsn, folder)))
        if not left or since_boot_ns() > until_ns:
            return left
        await asyncio.sleep(_LOOK_EVERY_S)


def left_of(dsn: str, folder: Path) -> Iterator[FileLeft]:
    """Yield what differs between the tables and the folder, and what no task uses.

    "orphan": a blob of no attachment; "unused": an attachment without a use; "removing": one that is marked, and still there;
    "use": one of a task that is gone; "part": one that is missing; "usage": the bytes of a namespace are counted wrong.
    """
    blobs = FolderBlobs.open(str(folder))
    there = {found.blob for found in blobs.blobs()}
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(_ROWS).fetchall()
        gone = connection.execute(_USES_OF_GONE).fetchall()
        usage = connection.execute(_USAGE).fetchall()
    known: set[UUID] = {row[1] for row in rows}
    yield from (FileLeft("orphan", str(blob)) for blob in sorted(there - known))
    for name, blob, size, is_stored, is_removing, is_ahead, is_used in rows:
        if is_removing:
            yield FileLeft("removing", name)
        elif not is_used and not is_ahead:  # one that was touched while the clock was ahead has its time yet
            yield FileLeft("unused", name)
        elif is_stored:
            parts = blobs.sizes(blob)
            if any(parts.get(index) != part_size(size, index) for index in range(part_count(size))):
                yield FileLeft("part", name)
    yield from (FileLeft("use", task_id) for (task_id,) in gone)
    yield from (FileLeft("usage", namespace or "the default namespace") for namespace, off in usage if off)


async def fetch_uses(dsn: str, calls: Calls) -> tuple[FileUse, ...]:
    """Fetch each attachment of each task that is there, as a client would."""
    with psycopg.connect(dsn) as connection:
        task_ids = [row[0] for row in connection.execute(_TASKS)]
    found = []
    for start in range(0, len(task_ids), _AT_A_TIME):
        some = task_ids[start : start + _AT_A_TIME]
        request = attachments_pb2.ListAttachmentsRequest(task_ids=some)
        answer, _ = await calls.call("ListAttachments", request, "attachments")
        for task_id, result in zip(some, answer.results, strict=True):
            if result.HasField("error"):
                found.append(FileUse(task_id, "", result.error.message))
            found += [
                FileUse(task_id, use.name, await _problem_of(calls, task_id, use))
                for use in result.attachments
            ]
    return tuple(found)


async def _problem_of(calls: Calls, task_id: str, use: task_pb2.AttachmentUse) -> str:
    request = attachments_pb2.FetchPartsRequest(task_id=task_id, hash=use.hash)
    answer, _ = await calls.call("FetchParts", request, "attachments")
    if answer.HasField("error"):
        return str(answer.error.message)
    hashes = divided(answer.part_hashes)
    if answer.size_bytes != use.size_bytes or hash_of(hashes) != use.hash:
        return "it is another one"
    for index, part_hash in enumerate(hashes):
        request.indexes[:] = [index]
        answer, _ = await calls.call("FetchParts", request, "attachments")
        if answer.HasField("error"):
            return str(answer.error.message)
        if hashlib.sha256(answer.parts[0].data).digest() != part_hash:
            return f"part {index} is not what its hash says"
    return ""
