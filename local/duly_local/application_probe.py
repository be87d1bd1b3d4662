"""Imports an application in a process of its own: whether a worker could start with it, and which files it is made of.

Started by `duly up --reload` only: python -m duly_local.application_probe MODULE:APP
"""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from types import TracebackType

from duly.callbacks.import_errors import is_owners
from duly.callbacks.loading import load_app
from duly.errors import AppImportError
from duly_core.process.parent import die_with_parent
from duly_local.declarations import declaration_problem


def main() -> None:
    """Print a JSON object: `files`, and `error`, which is empty if a worker can start with the application."""
    die_with_parent(signal.SIGKILL)
    ours = set(sys.modules)
    error = ""
    files: set[str] = set()
    with contextlib.redirect_stdout(sys.stderr):  # the application's own prints
        try:
            app = load_app(sys.argv[1])
            files.update(_files_beside(ours))
        except AppImportError as refused:
            error = str(refused)
            files.update(_files_beside(ours), _files_of(refused))
        else:
            if not app.callbacks:
                error = f"{sys.argv[1]} declares no lambdas: use @app.callback(NAME)"
            else:
                error = declaration_problem(app)
    print(json.dumps({"files": sorted(filter(_is_watched, files)), "error": error}), flush=True)  # noqa: T201
    os._exit(0)  # what the import began in threads is not waited for


def _files_beside(known: set[str]) -> Iterator[str]:
    """Yield the files of the modules that were imported since."""
    for name, module in list(sys.modules.items()):
        if name not in known and (file := getattr(module, "__file__", None)):
            yield file


def _is_watched(file: str) -> bool:
    return is_owners(file) and not file.startswith("<") and file != __file__


def _files_of(error: BaseException) -> Iterator[str]:
    """Yield the files that led to an error: a module that failed is not among those that are loaded."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SyntaxError) and cause.filename:
            yield cause.filename
        frames: TracebackType | None = cause.__traceback__
        while frames is not None:
            yield frames.tb_frame.f_code.co_filename
            frames = frames.tb_next
        cause = cause.__cause__ or cause.__context__


if __name__ == "__main__":
    main()
