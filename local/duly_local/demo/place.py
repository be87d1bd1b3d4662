"""Where one run takes place: a temporary folder and an environment of its own, so that runs never meet."""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import fileindex
from duly_core.errors import DulyError
from duly_local.demo.journal import FOLDER_VARIABLE

_KEPT = {"DULY_POSTGRES_BIN"}


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of one run and what is in it."""

    folder: Path

    @classmethod
    def make(cls) -> Self:
        """Make the folder, below the user's TMPDIR.

        Raises:
            DulyError: it cannot be made.
        """
        try:
            place = cls(Path(tempfile.mkdtemp(prefix="duly-demo-")))
        except OSError as error:
            raise DulyError(f"no temporary folder: {error.strerror}; set TMPDIR to one with room") from error
        place.folder.chmod(0o711)  # Postgres, which runs as another user if we are root, passes through
        place.executions.mkdir()
        place.config.touch()
        return place

    @property
    def data(self) -> Path:
        """Postgres's data."""
        return self.folder / "data"

    @property
    def executions(self) -> Path:
        """The execution log."""
        return self.folder / "executions"

    @property
    def services_log(self) -> Path:
        """What the services print."""
        return self.folder / "services.log"

    @property
    def config(self) -> Path:
        """An empty duly.toml: a user's own must not change the demo."""
        return self.folder / "duly.toml"

    def set_environment(self, directory: Path) -> None:
        """Prepare what our processes inherit: nothing of the user's AWS and Duly, and where the files are."""
        for name in list(os.environ):
            if name.startswith(("AWS_", "DULY_")) and name not in _KEPT:
                del os.environ[name]
        os.environ["DULY_CONFIG"] = str(self.config)
        os.environ[fileindex.ROOT_VARIABLE] = str(directory)
        os.environ[FOLDER_VARIABLE] = str(self.executions)

    def remove(self) -> None:
        """Leave nothing."""
        shutil.rmtree(self.folder, ignore_errors=True)
