"""An application with real input: the facts about one file are a task. `duly demo` runs it on thousands of them.

DULY_EXECUTOR_CALLBACK_ENVIRONMENT=FILEINDEX_ROOT FILEINDEX_ROOT=docs duly up examples.fileindex:app
duly schedule fileindex.index '{"path":"lifecycle.md"}' --wait
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import duly

app = duly.App(owner="you@example.org", version="1")

ROOT_VARIABLE = "FILEINDEX_ROOT"
"""Names the folder whose files may be indexed; where it is not set, that is the working folder."""

_root = Path(os.environ.get(ROOT_VARIABLE, ".")).resolve()
_BLOCK = 256 * 1024


@dataclass
class File:
    """What `fileindex.index` takes."""

    path: str
    """Relative to the root."""


@app.callback("fileindex.index")
def index(file: File) -> dict[str, object]:
    """Return the file's SHA-256, its size in bytes and its lines (as `wc -l` counts them).

    Reading a file changes nothing, so it does no harm if a crash makes it happen twice. A callback that
    writes would take `ctx: duly.TaskContext` as well and send `ctx.fence` along.

    Raises:
        duly.FatalFailure: there is no such file below the root, or it may not be read.
        OSError: reading failed; Duly tries again, as after any exception.
    """
    digest = hashlib.sha256()
    size = lines = 0
    try:
        with _below_root(file.path).open("rb", buffering=0) as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
                size += len(block)
                lines += block.count(b"\n")
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise duly.FatalFailure(f"{file.path}: {error.strerror}") from error
    return {"sha256": digest.hexdigest(), "size": size, "lines": lines}


def _below_root(path: str) -> Path:
    """Where the file is; clients name paths, and `../secret` or a link out of the root must not get through."""
    file = (_root / path).resolve()
    if not file.is_relative_to(_root):
        raise duly.FatalFailure(f"{path} is not below the root")
    return file
