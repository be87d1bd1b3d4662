"""The traceback of what a callback raised: its own frames, bounded."""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import NamedTuple

LIMIT_BYTES = 8192
_HEAD_BYTES = 2048
_LINE_CHARACTERS = 1000
_CUT = "\n  [... cut ...]\n"
_FRAMES = 100
"""The innermost ones; a recursion has thousands."""

_CALLERS = frozenset(("duly", "duly_executor", "asyncio", "concurrent"))
"""Packages whose frames lead to a callback; such a frame within the callback stays."""


class KeptTraceback(NamedTuple):
    """A traceback, of bounded size."""

    text: str
    is_whole: bool
    """Whether nothing was cut."""


def traceback_of(error: BaseException) -> KeptTraceback:
    """Return the traceback from the callback's first frame on, at most 8 KiB; empty if no frame is the callback's.

    What is longer loses its middle: the first frames and the error stay.
    """
    frames = callback_frames(error)
    if frames is None:
        return _NONE
    try:
        told = traceback.TracebackException(type(error), error, frames, limit=-_FRAMES, compact=True)
        return _bounded("".join(told.format()))
    except Exception:  # noqa: BLE001 (an exception of the owner's may break whatever looks at it)
        return _NONE


_NONE = KeptTraceback("", is_whole=True)


def callback_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback without the frames that lead to the callback; None if no frame is the callback's."""
    frames = error.__traceback__
    while frames is not None and _is_caller(frames.tb_frame.f_globals.get("__name__")):
        frames = frames.tb_next
    return frames


def _is_caller(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _CALLERS


def _bounded(text: str) -> KeptTraceback:
    whole = text.replace("\x00", "\\0").splitlines()
    lines = [line[:_LINE_CHARACTERS] for line in whole]
    data = "\n".join(lines).encode("utf-8", "replace")
    if len(data) > LIMIT_BYTES:
        tail = LIMIT_BYTES - _HEAD_BYTES - len(_CUT)
        cut = data[:_HEAD_BYTES].decode("utf-8", "ignore") + _CUT + data[-tail:].decode("utf-8", "ignore")
        return KeptTraceback(cut, is_whole=False)
    return KeptTraceback(data.decode(), is_whole=lines == whole)
