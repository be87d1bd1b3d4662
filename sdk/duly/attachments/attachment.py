"""A file in a payload or a result: what callers and callbacks hold, and its form in JSON. Free of gRPC."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias

from duly.attachments.content import Content, Source
from duly.errors import DulyError, EncodingError, PayloadError
from duly_wire.attachment_rules import LONGEST_MEDIA_TYPE, name_problem

if TYPE_CHECKING:
    import os

    from duly.attachments.origin import Origin

KEY = "$duly.attachment"
MARK = b'"$duly.attachment"'
"""In JSON that has an attachment, and rarely in other."""
_HASH = re.compile(r"[0-9a-f]{64}")
_MOST_BYTES = 1 << 50


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """How far an upload or a fetch is."""

    phase: Literal["hash", "upload", "fetch"]
    # Of the attachment.
    name: str
    done_bytes: int
    total_bytes: int


Progress: TypeAlias = Callable[[TransferProgress], object]


class AttachmentsInsideError(EncodingError):
    """A value has attachments, and stands where they cannot be. For those that can take them: encode it another way."""


class Attachment:
    """A file that goes with a payload or a result: its content is stored once, and what is sent has its hash.

        client.schedule("report.build", {"table": duly.Attachment("sales.csv")})

        @app.callback("report.build")
        def build(payload: dict[str, duly.Attachment], ctx: duly.TaskContext) -> dict[str, object]:
            report = make(payload["table"].read())
            return {"report": ctx.attach(report, name="report.pdf")}

    One that is made here is read from its path each time it is sent. One that came with a task is fetched when it is read: in
    a callback with `read`, `save` and `open`, elsewhere with `client.fetch` and `client.read_attachment`.
    """

    __slots__ = (
        "__weakref__",
        "_content",
        "_origin",
        "_size",
        "encrypted",
        "hash",
        "media_type",
        "name",
        "progress",
        "stored_bytes",
    )

    def __init__(
        self,
        source: Source,
        *,
        name: str = "",
        media_type: str = "",
        progress: Progress | None = None,
    ) -> None:
        """Make one from a path, from bytes, or from a binary file object, which is read to its end when it is sent.

        `name`: a label, such as a file's name; else that of the path, else "data". `media_type`: such as text/csv.
        `progress`: called while it is hashed and uploaded, in another thread.

        Raises ValueError for a name with "/", a control character or more than 255 bytes.
        """
        content = Content(source)
        name = name or (content.path.name if content.path is not None else "data")
        if problem := name_problem(name):
            raise ValueError(f"the name of an attachment {problem}: {name[:64]!r}")
        if len(media_type.encode()) > LONGEST_MEDIA_TYPE:
            raise ValueError(f"the media type of an attachment has more than {LONGEST_MEDIA_TYPE} bytes")
        self.name = name
        self.media_type = media_type
        self.hash = ""
        """Of what is stored, in hexadecimal; empty: it is made here, and not sent yet."""
        self.encrypted = False
        """Whether a codec encrypted it."""
        self.progress = progress
        self.stored_bytes = -1
        """How many bytes are stored, which of an encrypted one are more than it has; -1: unknown."""
        self._size = -1
        self._content: Content | None = content
        self._origin: Origin | None = None

    @classmethod
    def stored(
        cls,
        *,
        hash_hex: str,
        size_bytes: int,
        name: str,
        media_type: str,
        encrypted: bool,
        origin: Origin | None,
        stored_bytes: int = -1,
    ) -> Attachment:
        """Make one that is stored. For what reads payloads and results."""
        made = cls.__new__(cls)
        made.name = name
        made.media_type = media_type
        made.hash = hash_hex
        made.encrypted = encrypted
        made.progress = None
        made.stored_bytes = stored_bytes if encrypted else size_bytes
        made._size = size_bytes  # noqa: SLF001 (of its own class)
        made._content = None  # noqa: SLF001 (of its own class)
        made._origin = origin  # noqa: SLF001 (of its own class)
        return made

    @property
    def size_bytes(self) -> int:
        """How many bytes it has. Raises OSError for a path that cannot be read."""
        if self._content is None:
            return self._size
        with self._content.opened() as reader:
            return reader.size

    @property
    def content(self) -> Content | None:
        """What it is made from; None: it is stored."""
        return self._content

    @property
    def origin(self) -> Origin | None:
        """The task that it came with; None: it is made here."""
        return self._origin

    def bind(self, origin: Origin) -> None:
        """Let it be read for this task. For what uploaded it."""
        self._origin = origin

    def read(self) -> bytes:
        """Return the whole content. It has to fit into memory.

        Raises AttachmentMissingError, AttachmentCorruptError, UnavailableError, or OSError.
        """
        if self._content is not None:
            with self._content.opened() as reader:
                return reader.read(0, reader.size)
        return self._came_with().read(self)

    def save(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> Path:
        """Write the content to a file, which is there when all of it is, and return its path; a folder gets a file of its name.

        A fetch that was interrupted goes on where it stopped. Raises as `read`.
        """
        if self._content is not None:
            from duly.attachments.saving import save_local

            return save_local(self, path)
        return self._came_with().save(self, path, progress)

    def open(self) -> BinaryIO:
        """Return the content as a file object that fetches what is read, part by part. Raises as `read`."""
        from duly.attachments.reading import open_local

        if self._content is not None:
            return open_local(self._content)
        return self._came_with().open(self)

    def _came_with(self) -> Origin:
        if self._origin is None or self._origin.service is None:
            raise DulyError(
                f"attachment {self.name!r} cannot be read without a client: use client.fetch(attachment, path) or "
                "client.read_attachment(attachment)"
            )
        return self._origin

    def form(self) -> dict[str, Any]:
        """Return what stands for it in JSON. For what encodes values."""
        if _thread.forms is None:
            raise AttachmentsInsideError(
                f"attachment {self.name!r} stands where none can be: payloads of tasks, and results, can have some"
            )
        return _thread.forms(self)

    def __repr__(self) -> str:
        stored = f", hash={self.hash[:12]}…" if self.hash else ""
        return f"Attachment(name={self.name!r}{stored})"

    def _key(self) -> object:
        if self._content is not None:
            return id(self)
        return self.hash, self._size, self.name, self.media_type, self.encrypted

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Attachment) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __deepcopy__(self, _memo: object) -> Attachment:
        return self  # its content may be large, or can be read only once

    def __copy__(self) -> Attachment:
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> Any:
        from pydantic_core import core_schema  # the caller has it

        def read(value: object) -> Attachment:
            if isinstance(value, Attachment):
                return value
            raise ValueError("expected an attachment")

        form = core_schema.plain_serializer_function_ser_schema(Attachment.form, when_used="json")
        return core_schema.no_info_plain_validator_function(read, serialization=form)


class _Thread(threading.local):
    """How this thread encodes attachments now."""

    forms: Callable[[Attachment], dict[str, Any]] | None = None


_thread = _Thread()


@contextmanager
def encoded_by(forms: Callable[[Attachment], dict[str, Any]]) -> Iterator[None]:
    """Let what this thread encodes have attachments, of which `forms` says the form."""
    before, _thread.forms = _thread.forms, forms
    try:
        yield
    finally:
        _thread.forms = before


def form_of(attachment: Attachment) -> dict[str, Any]:
    """Return what stands in JSON for an attachment that is stored."""
    said: dict[str, Any] = {"hash": attachment.hash, "size": attachment.size_bytes, "name": attachment.name}
    if attachment.media_type:
        said["media_type"] = attachment.media_type
    if attachment.encrypted:
        said["encrypted"] = True
        if attachment.stored_bytes >= 0:
            said["stored_size"] = attachment.stored_bytes
    return {KEY: said}


def from_form(said: object, origin: Origin | None) -> Attachment:
    """Return the attachment that stands in JSON as {KEY: said}. Raises PayloadError: others may have written it."""
    if not isinstance(said, Mapping):
        raise _bad("is not an object")
    hash_hex, size, name = said.get("hash"), said.get("size"), said.get("name", "data")
    media_type, encrypted = said.get("media_type", ""), said.get("encrypted", False)
    if not isinstance(hash_hex, str) or _HASH.fullmatch(hash_hex) is None:
        raise _bad('"hash" is not 64 hexadecimal digits')
    if type(size) is not int or not 0 <= size <= _MOST_BYTES:
        raise _bad('"size" is no size')
    if not isinstance(name, str) or (problem := name_problem(name)):
        raise _bad('"name" is no text' if not isinstance(name, str) else f'"name" {problem}')
    if not isinstance(media_type, str) or len(media_type) > LONGEST_MEDIA_TYPE:
        raise _bad(f'"media_type" is no text of at most {LONGEST_MEDIA_TYPE} bytes')
    if type(encrypted) is not bool:
        raise _bad('"encrypted" is neither true nor false')
    stored_size = said.get("stored_size", -1)
    if type(stored_size) is not int or not -1 <= stored_size <= 2 * _MOST_BYTES:
        raise _bad('"stored_size" is no size')
    return Attachment.stored(
        hash_hex=hash_hex,
        size_bytes=size,
        name=name,
        media_type=media_type,
        encrypted=encrypted,
        origin=origin,
        stored_bytes=stored_size,
    )


def _bad(problem: str) -> PayloadError:
    return PayloadError(f"has an attachment that is none: {problem}")
