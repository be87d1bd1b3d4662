"""The file that tells another worker on this machine what the stack's own is told, for a shell to read."""

import os
import shlex
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from duly_core.errors import DulyError
from duly_local.postgres.data_directory import make_data_directory

_NAME = "worker.env"


class WorkerFile:
    """`worker.env` in the data directory: there while the stack is ready, for this user's eyes (it has the password)."""

    def __init__(self, data_directory: Path, environment: Mapping[str, str]) -> None:
        self._data_directory = data_directory
        self.path = (data_directory / _NAME).absolute()
        self._text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in environment.items())

    @property
    def command(self) -> str:
        """What to type; in parentheses, so that the shell itself keeps no setting of a stack that will be gone."""
        return f"(set -a; . {shlex.quote(str(self.path))}; set +a; duly worker MODULE:APP)"

    def write(self) -> None:
        """Write all of it at once, in the place of one that a killed run left.

        Raises:
            DulyError: the data directory cannot be made or written.
        """
        make_data_directory(self._data_directory)
        try:
            descriptor, unfinished = tempfile.mkstemp(prefix=f".{_NAME}-", dir=self._data_directory)  # 0600
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(self._text)
            Path(unfinished).replace(self.path)
        except OSError as error:
            raise DulyError(f"{self.path} cannot be written: {error.strerror}") from error

    def remove(self) -> None:
        """Remove it, unless it is another stack's by now: with --dsn several may have one data directory."""
        with suppress(OSError):
            if self.path.read_text(encoding="utf-8") == self._text:
                self.path.unlink()
