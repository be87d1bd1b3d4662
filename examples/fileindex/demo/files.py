"""The demo's input: the regular files below a folder, each with the facts that indexing it must return."""

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from fileindex.demo.checker import Facts

_SKIPPED = {"site-packages", "dist-packages", "__pycache__"}
"""Below the standard library's folder, but no part of it, or written whenever a Python runs."""


def standard_library() -> Path:
    """Return the folder of the running Python's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def files_below(root: Path) -> Iterator[tuple[str, Facts]]:
    """Yield each file's path, relative to `root`, and its facts.

    Leaves out links, what cannot be read, and names that are not UTF-8, which JSON cannot carry.
    """
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - _SKIPPED)
        for name in sorted(names):
            file = Path(folder, name)
            is_text = os.fsencode(file).decode(errors="replace") == str(file)
            if is_text and file.is_file() and not file.is_symlink() and os.access(file, os.R_OK):
                yield str(file.relative_to(root)), facts_of(file)


def facts_of(file: Path) -> Facts:
    """Read a file directly; on purpose not with the code that is being checked."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        size = stream.tell()
        stream.seek(0)
        return {"sha256": digest, "size": size, "lines": sum(line.endswith(b"\n") for line in stream)}
