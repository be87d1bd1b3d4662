"""The part of AsyncClient that is about attachments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from duly.attachments.attachment import Attachment, Progress
from duly.attachments.client_service import ClientService, in_thread
from duly.attachments.origin import Origin
from duly.attachments.uses import AttachmentUse
from duly.errors import DulyError
from duly.tasks.reads import TaskRef, found_ids
from duly.transport import error_mapping
from duly.transport.client_part import ClientPart
from duly_wire.v1 import attachments_pb2

if TYPE_CHECKING:
    import os

    from duly.transport.caller import Caller


class AttachmentCalls(ClientPart):
    """Reads what tasks have beside payload and result."""

    async def attachments(self, task: TaskRef) -> list[AttachmentUse]:
        """Return what a task uses: its inputs, then what its last attempt kept and returned.

        Raises TaskNotFoundError, PermissionDeniedError.
        """
        caller = self._caller
        task_ids = await found_ids(caller, [task])
        request = attachments_pb2.ListAttachmentsRequest(task_ids=task_ids)
        (result,) = (await caller.call(caller.attachments.ListAttachments, request)).results
        error_mapping.check(result)
        return [AttachmentUse.from_proto(use, task_ids[0]) for use in result.attachments]

    async def fetch(
        self, attachment: Attachment, path: str | os.PathLike[str], *, progress: Progress | None = None
    ) -> Path:
        """Save an attachment of a task as a file, and return its path.

            report = (await client.wait(task)).result["report"]
            await client.fetch(report, "report.pdf")

        The file is there when all of it is, and was checked; it replaces one of that name. A fetch that was interrupted goes on
        where it stopped. If `path` is a folder, the file has the attachment's name. `progress` is called in another thread.

        Raises AttachmentMissingError, AttachmentCorruptError, DecryptionError, UnavailableError, OSError, and ValueError for a name
        that cannot be a file's.
        """
        if attachment.content is not None:
            return await in_thread(self._caller, lambda _: attachment.save(path))
        return await in_thread(
            self._caller,
            lambda service: _readable(self._caller, service, attachment).save(attachment, path, progress),
        )

    async def read_attachment(self, attachment: Attachment) -> bytes:
        """Return the content of an attachment of a task; it has to fit into memory. Raises as `fetch`."""
        if attachment.content is not None:
            return await in_thread(self._caller, lambda _: attachment.read())
        return await in_thread(
            self._caller, lambda service: _readable(self._caller, service, attachment).read(attachment)
        )


def _readable(caller: Caller, service: ClientService, attachment: Attachment) -> Origin:
    origin = attachment.origin
    if origin is None:
        raise DulyError(
            f"attachment {attachment.name!r} came with no task: fetch one of a task's payload or result"
        )
    return origin if origin.service is not None else Origin(origin.task_id, service, caller.codec)
