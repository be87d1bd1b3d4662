"""Where an attachment came from: the task that names it, and what can read it for that task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from duly.attachments.attachment import Attachment, Progress
    from duly.attachments.service import AttachmentService
    from duly.callbacks.codec import Codec


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """A task, and, in a callback, the calls that may be made for it."""

    task_id: str
    service: AttachmentService | None = None
    codec: Codec | None = None

    def _service(self) -> AttachmentService:
        assert self.service is not None  # noqa: S101 (whoever reads has looked)
        return self.service

    def read(self, attachment: Attachment) -> bytes:
        """Return the content."""
        from duly.attachments.fetch import read_all

        return read_all(self._service(), self.task_id, attachment, self.codec)

    def save(
        self, attachment: Attachment, path: str | os.PathLike[str], progress: Progress | None = None
    ) -> Path:
        """Fetch the content into a file, and return its path."""
        from duly.attachments.fetch import Stored
        from duly.attachments.saving import save, target_of

        target = target_of(path, attachment.name)
        save(Stored.find(self._service(), self.task_id, attachment), self.codec, target, progress)
        return target

    def open(self, attachment: Attachment) -> BinaryIO:
        """Return the content as a file object."""
        from duly.attachments.fetch import Stored
        from duly.attachments.reading import open_stored

        return open_stored(Stored.find(self._service(), self.task_id, attachment), self.codec)
