"""Log files of programs that are not ours: kept small, and quoted when the program fails."""

from pathlib import Path
from typing import BinaryIO

_LARGEST = 16 * 1024 * 1024
_QUOTED_LINES = 12
_QUOTED_BYTES = 8 * 1024


class ProgramLog:
    """The output of one program over many runs; an older half of it is kept as `<name>.1`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._start = 0

    def open(self) -> BinaryIO:
        """Begin a run: `last_lines` quotes only what is written from now on."""
        if self.path.exists() and self.path.stat().st_size > _LARGEST:
            self.path.replace(self.path.with_name(self.path.name + ".1"))
        file = self.path.open("ab")
        self._start = file.tell()
        return file

    def last_lines(self) -> str:
        """The end of what this run wrote, indented for an error message."""
        with self.path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(self._start, file.tell() - _QUOTED_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-_QUOTED_LINES:]) or "  (it wrote nothing)"
