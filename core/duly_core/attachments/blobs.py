"""Where the parts of attachments are kept: what a store of blobs can do, and how servers use one without blocking.

A blob is the parts of one upload, under a name of its own. No method changes a part that is there. Beside them stand the store's name and its turn.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import NamedTuple, ParamSpec, Protocol, TypeVar
from uuid import UUID

from duly_core.errors import BlobsUnavailableError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_BLOB_NAME = re.compile(r"[0-9a-f]{32}")
PARTS_IN_FLIGHT = 8
"""Of one process: 32 MiB of content, and as many threads."""
DEADLINE_S = 30.0
"""A store that takes longer for a call counts as unavailable."""


class FoundBlob(NamedTuple):
    """A blob that the store has."""

    blob: UUID
    changed_at: datetime
    """When a part of it was last written, by the clock of the store."""


def blob_of(name: str) -> UUID | None:
    """Return the blob that a folder, or the middle of a key, names; None: it is somebody else's."""
    return UUID(hex=name) if _BLOB_NAME.fullmatch(name) else None


class BlobStore(Protocol):
    """Keeps parts. All methods block, and may be called from several threads.

    Each raises BlobsUnavailableError if the store cannot do it now: a caller may try again.
    """

    @property
    def where(self) -> str:
        """The place, as an operator finds it: a folder, or a bucket with the beginning of its keys."""

    def put(self, blob: UUID, index: int, data: bytes) -> None:
        """Write a part, whole or not at all. It lasts once `sync` was called."""

    def get(self, blob: UUID, index: int) -> bytes | None:
        """Read a part; None: it is not there."""

    def sizes(self, blob: UUID) -> Mapping[int, int]:
        """Return how many bytes each part has that is there, by its index."""

    def sync(self, blob: UUID) -> None:
        """Make sure that the parts that were written outlast a crash of the machine."""

    def remove(self, blob: UUID) -> None:
        """Remove all parts of a blob, if there are any."""

    def blobs(self) -> Iterator[FoundBlob]:
        """Find the blobs that are there, those of uploads that never ended included. May miss some that are written meanwhile."""

    def marker(self) -> str:
        """Return the name that this store has; empty: it has none yet."""

    def put_marker(self, name: str) -> None:
        """Give the store a name."""

    def turn(self) -> str:
        """Return what the last sweep noted; empty: nothing."""

    def put_turn(self, turn: str) -> None:
        """Note that a sweep begins."""


class BlobThreads:
    """Calls a store of blobs from the event loop, so many at a time."""

    def __init__(
        self, blobs: BlobStore, threads: int = PARTS_IN_FLIGHT, deadline_s: float = DEADLINE_S
    ) -> None:
        self.blobs = blobs
        self._deadline_s = deadline_s
        self._threads = ThreadPoolExecutor(threads, "duly-attachments")

    async def run(
        self, call: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        """Make a blocking call. One that takes too long goes on in its thread, and nobody waits for it any more.

        Raises:
            BlobsUnavailableError: the store cannot do it now, or does not answer.
        """
        loop = asyncio.get_running_loop()
        made = loop.run_in_executor(self._threads, lambda: call(*arguments, **named))
        try:
            return await asyncio.wait_for(made, self._deadline_s)
        except TimeoutError:
            raise BlobsUnavailableError(
                f"the store of attachments does not answer within {self._deadline_s:g} s (attachments.store): see whether its disk, "
                "or its server, is there"
            ) from None

    def close(self) -> None:
        """Wait for nothing: a part that is under way is written whole, or not at all."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def put_checked(blobs: BlobStore, blob: UUID, index: int, data: bytes, part_hash: bytes) -> bool:
    """Write a part if it is what its hash says; return whether it is.

    Raises:
        BlobsUnavailableError: the store cannot write it now.
    """
    if hashlib.sha256(data).digest() != part_hash:
        return False
    blobs.put(blob, index, data)
    return True
