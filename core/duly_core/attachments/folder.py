"""Attachments in a folder: a folder for each blob, a file for each part.

Names of files are made of UUIDs and numbers only: nothing that a caller says becomes a path.
"""

import errno
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self
from uuid import UUID

from duly_core.attachments.blobs import FoundBlob, blob_of
from duly_core.errors import BlobsUnavailableError, SettingsError

_MARKER = "store-id"
_TURN = "store-turn"
_UNFINISHED = ".unfinished"
"""Ends the name of a part while it is written. One is left of a server that died; it goes with its blob."""
_FULL = {errno.ENOSPC, errno.EDQUOT}


class FolderBlobs:
    """FOLDER/ab/abcd..., of which the first two digits only keep folders small."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def open(cls, folder: str) -> Self:
        """Make the folder if it is not there; only its owner may enter.

        Raises:
            SettingsError: it cannot be made, or not be written.
        """
        path = Path(folder).absolute()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(f"attachments.folder: {path} cannot be made: {error.strerror}") from error
        if not os.access(path, os.W_OK | os.X_OK):
            raise SettingsError(f"attachments.folder: {path} cannot be written")
        return cls(path)

    @property
    def where(self) -> str:
        """As BlobStore says."""
        return str(self._folder)

    def put(self, blob: UUID, index: int, data: bytes) -> None:
        """As BlobStore says."""
        folder = self._of(blob)
        part = folder / str(index)
        unfinished = folder / f"{index}.{secrets.token_hex(8)}{_UNFINISHED}"
        with self._doing("write"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                with unfinished.open("xb", buffering=0) as file:
                    view = memoryview(data)
                    while view:
                        view = view[file.write(view) :]
                    os.fdatasync(file.fileno())
                unfinished.replace(part)
            except BaseException:
                with suppress(OSError):
                    unfinished.unlink()
                raise

    def get(self, blob: UUID, index: int) -> bytes | None:
        """As BlobStore says."""
        with self._doing("read"):
            try:
                return (self._of(blob) / str(index)).read_bytes()
            except FileNotFoundError:
                return None

    def sizes(self, blob: UUID) -> Mapping[int, int]:
        """As BlobStore says."""
        with self._doing("read"):
            try:
                return {
                    int(part.name): part.stat().st_size
                    for part in os.scandir(self._of(blob))
                    if part.name.isdecimal()
                }
            except FileNotFoundError:
                return {}

    def sync(self, blob: UUID) -> None:
        """As BlobStore says: each part was written through before it got its name."""
        folder = self._of(blob)
        with self._doing("write"):
            for each in (folder, folder.parent, self._folder):
                with suppress(FileNotFoundError):  # an attachment without content has no folder
                    _sync_folder(each)

    def remove(self, blob: UUID) -> None:
        """As BlobStore says."""
        folder = self._of(blob)
        with self._doing("remove"), suppress(FileNotFoundError):
            for part in list(os.scandir(folder)):
                Path(part.path).unlink(missing_ok=True)
            folder.rmdir()

    def blobs(self) -> Iterator[FoundBlob]:
        """As BlobStore says."""
        with self._doing("read"):
            for group in os.scandir(self._folder):
                if not group.is_dir(follow_symlinks=False):
                    continue
                for folder in os.scandir(group.path):
                    blob = blob_of(folder.name)
                    if blob is None or folder.name[:2] != group.name:
                        continue  # somebody else's
                    with suppress(FileNotFoundError):
                        changed_at = folder.stat(follow_symlinks=False).st_mtime
                        yield FoundBlob(blob, datetime.fromtimestamp(changed_at, UTC))

    def marker(self) -> str:
        """As BlobStore says."""
        return self._read(_MARKER)

    def put_marker(self, name: str) -> None:
        """As BlobStore says."""
        self._write(_MARKER, name)

    def turn(self) -> str:
        """As BlobStore says."""
        return self._read(_TURN)

    def put_turn(self, turn: str) -> None:
        """As BlobStore says."""
        self._write(_TURN, turn)

    def _read(self, name: str) -> str:
        with self._doing("read"):
            try:
                return (self._folder / name).read_text(encoding="utf-8").strip()
            except FileNotFoundError:
                return ""

    def _write(self, name: str, text: str) -> None:
        with self._doing("write"):
            (self._folder / name).write_text(f"{text}\n", encoding="utf-8")

    def _of(self, blob: UUID) -> Path:
        return self._folder / blob.hex[:2] / blob.hex

    @contextmanager
    def _doing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                raise BlobsUnavailableError(
                    f"the disk of the attachments is full ({self._folder}, attachments.folder): free space, or try again later"
                ) from error
            raise BlobsUnavailableError(
                f"cannot {what} attachments in {self._folder} (attachments.folder): {error.strerror or error}"
            ) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
