"""The traceback of what a callback raised: its own frames, bounded."""

from __future__ import annotations

import traceback
from types import TracebackType

LIMIT_BYTES = 8192
_HEAD_BYTES = 2048
_LINE_CHARACTERS = 1000
_CUT = "\n  [... cut ...]\n"
_FRAMES = 100
"""The innermost ones; a recursion has thousands."""

_CALLERS = frozenset(("duly", "duly_executor", "asyncio", "concurrent"))
"""Packages whose frames lead to a callback; such a frame within the callback stays."""


def traceback_of(error: BaseException) -> str:
    """Return the traceback from the callback's first frame on, at most 8 KiB; empty if no frame is the callback's.

    What is longer loses its middle: the first frames and the error stay.
    """
    frames = callback_frames(error)
    if frames is None:
        return ""
    try:
        told = traceback.TracebackException(type(error), error, frames, limit=-_FRAMES, compact=True)
        return _bounded("".join(told.format()))
    except Exception:  # noqa: BLE001 (an exception of the owner's may break whatever looks at it)
        return ""


def callback_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback without the frames that lead to the callback; None if no frame is the callback's."""
    frames = error.__traceback__
    while frames is not None and _is_caller(frames.tb_frame.f_globals.get("__name__")):
        frames = frames.tb_next
    return frames


def _is_caller(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _CALLERS


def _bounded(text: str) -> str:
    lines = (line[:_LINE_CHARACTERS] for line in text.replace("\x00", "\\0").splitlines())
    data = "\n".join(lines).encode("utf-8", "replace")
    if len(data) > LIMIT_BYTES:
        tail = LIMIT_BYTES - _HEAD_BYTES - len(_CUT)
        return data[:_HEAD_BYTES].decode("utf-8", "ignore") + _CUT + data[-tail:].decode("utf-8", "ignore")
    return data.decode()
