"""Keeps what callbacks print and log as the output of their tasks: sends it to the Executor some times a second, and at the end of an attempt.

Any thread may write. Writers take no locks: an interruption, or a fork, in the middle of a write leaves nothing taken. What is written faster
than it is sent is left out, the oldest first: the positions of what follows tell how much.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from duly.task_output.encryption import sealed
from duly_executor.callback.report_sender import ReportSender
from duly_wire.output_rules import CHUNK_BYTES
from duly_wire.v1 import callback_pb2, hsc_pb2, output_pb2

if TYPE_CHECKING:
    from duly.callbacks.codec import Codec

OUTPUT_NOT_KEPT = "DULY_OUTPUT_NOT_KEPT"
"""The variable of the environment by which an Executor says that nothing is to be kept."""
_SENT_EVERY = timedelta(milliseconds=250)
_MOST_KEPT = 1024 * 1024
"""Bytes of one attempt that wait to be sent."""
_MOST_AT_A_TIME = 256 * 1024
"""Bytes of one attempt that are sent each time, but for the last."""
_PIECE_COSTS = 16
"""How many bytes more a piece counts for than it has, where memory is bounded."""


class AttemptOutput:
    """What one attempt has written, and was not sent yet."""

    __slots__ = (
        "_dropped",
        "_ended",
        "_lock",
        "_next_number",
        "_pieces",
        "_position",
        "_size",
        "codec",
        "task",
    )

    def __init__(self, task: hsc_pb2.ClaimedTask, codec: "Codec | None") -> None:
        self.task = task
        self.codec = codec
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._dropped: deque[int] = deque()
        self._size = 0
        """Of what waits, about: it is counted without a lock."""
        self._position = 0
        self._next_number = 1
        self._ended = False
        self._lock = threading.Lock()
        """Of those that take: no callback's code runs meanwhile."""

    def add(self, stream: int, data: bytes) -> None:
        """Add what was written."""
        if self._ended:
            return
        for start in range(0, len(data), CHUNK_BYTES):
            piece = data[start : start + CHUNK_BYTES]
            self._pieces.append((stream, piece))
            self._size += len(piece) + _PIECE_COSTS
            while self._size > _MOST_KEPT:
                try:
                    _, lost = self._pieces.popleft()
                except IndexError:
                    self._size = 0
                    break
                self._dropped.append(len(lost))
                self._size -= len(lost) + _PIECE_COSTS

    def take(self, most: int) -> list[output_pb2.OutputChunk]:
        """Take what was written first, about so many bytes; nothing is added after the last `end`."""
        with self._lock:
            return list(self._take(most))

    def _take(self, most: int) -> Iterator[output_pb2.OutputChunk]:
        while self._dropped:
            self._position += self._dropped.popleft()
        chunk = self._chunk()
        pieces: list[tuple[int, bytearray]] = []
        size = 0
        while most > 0:
            try:
                stream, data = self._pieces.popleft()
            except IndexError:
                break
            self._size -= len(data) + _PIECE_COSTS
            most -= len(data)
            if size and size + len(data) > CHUNK_BYTES:
                yield self._complete(chunk, pieces, size)
                chunk, pieces, size = self._chunk(), [], 0
            if pieces and pieces[-1][0] == stream:
                pieces[-1][1].extend(data)
            else:
                pieces.append((stream, bytearray(data)))
            size += len(data)
            self._position += len(data)
        if size:
            yield self._complete(chunk, pieces, size)
        else:
            self._next_number -= 1

    def _chunk(self) -> output_pb2.OutputChunk:
        chunk = output_pb2.OutputChunk(
            fence=self.task.fence, number=self._next_number, position=self._position
        )
        self._next_number += 1
        return chunk

    def _complete(
        self, chunk: output_pb2.OutputChunk, pieces: list[tuple[int, bytearray]], size: int
    ) -> output_pb2.OutputChunk:
        chunk.size_bytes = size
        for stream, data in pieces:
            chunk.plain.pieces.add(stream=output_pb2.OutputStream.ValueType(stream), data=bytes(data))
        return sealed(self.codec, self.task.claim.task_id, chunk)

    def end(self) -> None:
        """Take nothing in from now on."""
        self._ended = True

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be sent."""
        return not self._pieces


class KeptOutput:
    """The output of all attempts of this process."""

    def __init__(self, report_sender: ReportSender) -> None:
        self._report_sender = report_sender
        self._pid = os.getpid()
        self._attempts: dict[bytes, AttemptOutput] = {}
        """By the token of their claims: those that have written something."""
        self._written = threading.Event()

    def begin(self, task: hsc_pb2.ClaimedTask, codec: "Codec | None") -> AttemptOutput:
        """Return where an attempt writes; several threads of it may ask at once."""
        return self._attempts.setdefault(task.claim.token, AttemptOutput(task, codec))

    def note(self) -> None:
        """Send soon: something was written."""
        if not self._written.is_set():
            self._written.set()

    def end(self, output: AttemptOutput) -> None:
        """Send the rest of what an attempt wrote, before its result."""
        if os.getpid() != self._pid:
            return  # a fork that came back out of its callback has neither the other threads nor a link
        output.end()
        self._attempts.pop(output.task.claim.token, None)
        self._send(output, _MOST_KEPT)

    def send_for_ever(self) -> None:
        """Send what is written, some times a second."""
        while True:
            self._written.wait()
            time.sleep(_SENT_EVERY.total_seconds())
            self._written.clear()
            for output in list(self._attempts.values()):
                self._send(output, _MOST_AT_A_TIME)
                if not output.is_empty:
                    self._written.set()

    def _send(self, output: AttemptOutput, most: int) -> None:
        if not self._report_sender.takes_output():
            return
        task_id = output.task.claim.task_id
        with suppress(Exception):  # a codec that fails keeps its callback from nothing but its output
            chunks = output.take(most)
            self._report_sender.output(
                [callback_pb2.CallbackOutput(task_id=task_id, chunk=chunk) for chunk in chunks]
            )
