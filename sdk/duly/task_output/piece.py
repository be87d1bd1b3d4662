"""What a task printed or logged, as readers see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from duly.task_output.encryption import opened
from duly_wire.enums import OutputStream
from duly_wire.time_conversion import to_datetime

if TYPE_CHECKING:
    from duly.callbacks.codec import Codec
    from duly_wire.v1 import output_pb2


@dataclass(frozen=True, slots=True)
class OutputPiece:
    """Bytes that a run wrote to one stream in a row."""

    run: int
    """Which claim of the task ran: the `fence` of its context, and of an attempt in the history."""
    stream: OutputStream
    data: bytes
    """It may begin and end inside a line, and inside a character."""
    written_at: datetime
    """When it was stored (aware, UTC)."""
    left_out_bytes: int = 0
    """How many bytes of the run are missing before it: a run that writes much keeps its newest output only."""


class PieceReader:
    """Turns chunks into pieces; they come in order."""

    def __init__(self, codec: Codec | None, task_id: bytes) -> None:
        self._codec = codec
        self._task_id = task_id
        self._run = 0
        self._ends_at = 0
        self._has_skipped = False

    def skip_to_first(self) -> None:
        """Count as left out nothing before the first chunk: the reader asked for the end only."""
        self._has_skipped = True

    def read(self, chunk: output_pb2.OutputChunk) -> Iterator[OutputPiece]:
        """Yield the pieces of a chunk. Raises DecryptionError."""
        if chunk.fence != self._run:
            self._run, self._ends_at = chunk.fence, chunk.position if self._has_skipped else 0
            self._has_skipped = False
        left_out = max(0, chunk.position - self._ends_at)
        self._ends_at = chunk.position + chunk.size_bytes
        written_at = to_datetime(chunk.written_at)
        for piece in opened(self._codec, self._task_id, chunk).pieces:
            if int(piece.stream) in _STREAMS:  # else a newer version has more of them
                yield OutputPiece(chunk.fence, OutputStream(piece.stream), piece.data, written_at, left_out)
                left_out = 0


_STREAMS = frozenset(map(int, OutputStream))
