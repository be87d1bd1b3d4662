"""Puts the time, the lambda and the task before each line that a callback prints or logs.

A context variable says whose line it is, so threads and coroutines of one process are told apart. No locks: a line is
one write, and a fork or an interruption in the middle of one leaves nothing taken.
"""

import io
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from duly_executor.callback.kept_output import AttemptOutput, KeptOutput
from duly_wire.v1 import hsc_pb2, output_pb2

if TYPE_CHECKING:
    from duly.callbacks.codec import Codec

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Whoever prints these could draw over the head of the line, or clear the terminal."""

_LONGEST_REST = 64 * 1024
"""Text without a line feed is written as a line once it is longer."""


class Speaker:
    """A task whose callback runs, or a thread that runs none; keeps the beginnings of lines."""

    __slots__ = ("_codec", "_ended", "_kept", "_output", "_rests", "_task")

    def __init__(
        self,
        task: hsc_pb2.ClaimedTask | None = None,
        kept: KeptOutput | None = None,
        codec: "Codec | None" = None,
    ) -> None:
        """Make one: `kept` takes what is kept of the output of the task, encrypted by `codec`; None: nothing is kept."""
        self._task = task
        self._rests: dict[int, bytearray] | None = None  # most callbacks write nothing
        self._kept = kept
        self._codec = codec
        self._output: AttemptOutput | None = None
        self._ended = False

    def keep(self, stream: int, data: bytes) -> None:
        """Add this to the output of the task, until its attempt is over."""
        if self._kept is None or self._task is None or self._ended:
            return
        if self._output is None:
            self._output = self._kept.begin(self._task, self._codec)
        self._output.add(stream, data)
        self._kept.note()

    def complete(self, descriptor: int, data: bytes) -> list[bytes]:
        """Add data; take the lines that are complete."""
        rests = self._rests = {} if self._rests is None else self._rests
        begun = rests.setdefault(descriptor, bytearray())
        begun += data
        if b"\n" in data:
            *lines, rest = begun.split(b"\n")
            rests[descriptor] = rest
        elif len(begun) > _LONGEST_REST:
            lines = [rests.pop(descriptor)]
        else:
            return []
        return [bytes(line) for line in lines]

    def begun(self, descriptor: int) -> bytes:
        """Take the beginning of a line."""
        return bytes(self._rests.pop(descriptor, b"")) if self._rests else b""

    @property
    def names(self) -> dict[str, Any]:
        """Say whose lines these are."""
        if self._task is None:
            return {"pid": os.getpid()}
        task_id = str(UUID(bytes=self._task.claim.task_id))
        return {"lambda": getattr(self._task, "lambda"), "task": task_id}

    def finish(self) -> None:
        """Write what was begun, and send what is kept: the attempt is over."""
        self._ended = True
        if self._output is not None and self._kept is not None:
            self._kept.end(self._output)
        rests, self._rests = self._rests, None
        if rests:
            for descriptor, rest in rests.items():
                if rest:
                    _write(descriptor, self, [bytes(rest)])


_current: ContextVar[Speaker | None] = ContextVar("duly_speaker", default=None)
_of_thread = threading.local()


def begin(speaker: Speaker) -> None:
    """Ascribe to this task what the current thread writes from now on, and the coroutines that it submits."""
    _current.set(speaker)


def end(speaker: Speaker) -> None:
    """The attempt is over; what its coroutines write later is still ascribed to it."""
    _current.set(None)
    speaker.finish()


def _speaker() -> Speaker:
    speaker = _current.get()
    if speaker is None:
        speaker = getattr(_of_thread, "speaker", None)
    if speaker is None:
        speaker = _of_thread.speaker = Speaker()
    return speaker


def _console(names: dict[str, Any], said: dict[str, Any], lines: Sequence[str]) -> str:
    whose = f"{names['lambda']} {names['task']}" if "task" in names else f"callback process {names['pid']}"
    logged = f"{said['level'].upper()} {said['logger']}: " if "logger" in said else ""
    head = f"{_now()} [{whose}] {logged}"
    return "".join(f"{head}{_CONTROL.sub(_escaped, line)}".rstrip() + "\n" for line in lines)


def _escaped(found: re.Match[str]) -> str:
    return f"\\x{ord(found[0]):02x}"


def _json(names: dict[str, Any], said: dict[str, Any], lines: Sequence[str]) -> str:
    told = {"service": "callback", **names, **said, "timestamp": _now()}
    texts = ["\n".join(lines)] if "logger" in said else lines
    return "".join(json.dumps({"event": text, **told}, ensure_ascii=False) + "\n" for text in texts)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_render: Callable[[dict[str, Any], dict[str, Any], Sequence[str]], str] = _console
_STREAMS = {1: "stdout", 2: "stderr"}


def _write(descriptor: int, speaker: Speaker, lines: Sequence[bytes]) -> None:
    said = {"level": "info", "stream": _STREAMS.get(descriptor, str(descriptor))}
    texts = [line.decode("utf-8", "backslashreplace") for line in lines]
    _send(descriptor, _render(speaker.names, said, texts))


def _send(descriptor: int, text: str) -> None:
    data = text.encode("utf-8", "backslashreplace")
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:  # nobody reads any more: the callback goes on
        return


class _Lines(io.RawIOBase):
    """The bytes of `sys.stdout` or `sys.stderr`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: Any) -> int:
        speaker = _speaker()
        written = bytes(data)
        speaker.keep(self._descriptor, written)  # the descriptors have the numbers of OutputStream
        if lines := speaker.complete(self._descriptor, written):
            _write(self._descriptor, speaker, lines)
        return len(data)

    def flush(self) -> None:
        """Write the beginning of a line, too: it may be the last that the callback says."""
        speaker = _speaker()
        if begun := speaker.begun(self._descriptor):
            _write(self._descriptor, speaker, [begun])


class _LogHandler(logging.Handler):
    """Log records of any library; one is written at once, whatever its number of lines."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            said = {"level": record.levelname.lower(), "logger": record.name}
            speaker = _speaker()
            speaker.keep(
                output_pb2.OUTPUT_STREAM_LOG,
                f"{record.levelname} {record.name}: {text}\n".encode("utf-8", "backslashreplace"),
            )
            _send(2, _render(speaker.names, said, text.splitlines()))
        except Exception:  # noqa: BLE001 (an owner's log call must not fail)
            self.handleError(record)


def set_up(log_format: str) -> None:
    """Send `print` and `logging` of this process through here; `log_format` is telemetry.log_format."""
    global _render
    _render = _json if log_format == "json" else _console
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = io.TextIOWrapper(  # type: ignore[type-var]  # unbuffered, which typeshed does not foresee
            _Lines(descriptor),
            encoding="utf-8",
            errors="backslashreplace",
            write_through=True,
        )
        setattr(sys, name, stream)
    logging.basicConfig(handlers=[_LogHandler()], level=logging.INFO, format="%(message)s")
