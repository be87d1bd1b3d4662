"""Where in the owner's code an import failed: a few lines, in place of a traceback through Python's own."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

_MOST_LINES = 6

# What is not the owner's code: Python's library, with what is installed in it, and this package.
_NOT_THEIRS = (
    *(
        path
        for name, path in sysconfig.get_paths().items()
        if name in ("stdlib", "platstdlib", "purelib", "platlib")
    ),
    str(Path(__file__).parent),
)


def owners_lines(error: BaseException) -> list[str]:
    """Return "file:line: source" for each of the owner's lines that led to the error, outermost first.

    The line that raised comes last, whoever's it is; of many lines the innermost are kept.
    """
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")
    ]
    unreadable = error if isinstance(error, SyntaxError) and error.filename else None
    lines = [
        f"{_short(frame.filename)}:{frame.lineno}: {frame.line}"
        for frame in frames
        if is_owners(frame.filename) or (frame is frames[-1] and not unreadable)
    ]
    if unreadable is not None and unreadable.filename:  # what cannot be read has no frame of its own
        lines.append(f"{_short(unreadable.filename)}:{unreadable.lineno}: {(unreadable.text or '').strip()}")
    return lines[-_MOST_LINES:]


def is_owners(filename: str) -> bool:
    """Return whether a file is the owner's code, not Python's, an installed package's, or Duly's."""
    return not any(Path(filename).is_relative_to(folder) for folder in _NOT_THEIRS)


def _short(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename
