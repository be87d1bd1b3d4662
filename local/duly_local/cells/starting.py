"""Has the cells of a stack made before its services start, in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from duly_core.errors import DulyError, SettingsError
from duly_core.process.parent import PARENT_PID
from duly_local.cells.record import CellRecord, read_record, record_file, write_record

_CONNECTIONS_OF_A_CELL = 50
"""Of a server with all services under load; Postgres's own 100 are for one store."""
_FOR_MOVES: Mapping[str, str] = {"wal_level": "logical", "max_logical_replication_workers": "4"}
"""`duly cells move` copies by logical replication: from here, and to here."""


@dataclass(frozen=True, slots=True)
class LocalCells:
    """The cells of a stack."""

    names: tuple[str, ...]
    """Sorted."""
    default: str
    """Where namespaces live that nobody assigned."""


class CellsInFolder:
    """The cells in the embedded Postgres of a data folder."""

    def __init__(self, data_directory: Path, wanted: int | None) -> None:
        """Make one, before Postgres starts; `wanted` is what `--cells` says.

        Raises:
            SettingsError: the last start had more cells.
            DulyError: the record of the folder cannot be read.
        """
        self._folder = data_directory
        self._record = read_record(data_directory)
        had = self._record.number if self._record else 0
        if wanted is not None and wanted < had:
            raise SettingsError(
                f"the last start had {had} cells, and --cells {wanted} would be fewer: duly up removes none. Leave --cells out: it goes on "
                "with those that there are. `duly cells remove` takes out one without namespaces"
            )
        making = self._record.making if self._record else None
        self._wanted = wanted if wanted is not None else making

    @property
    def any(self) -> bool:
        """Whether there are cells, or are to be."""
        return self._record is not None or self._wanted is not None

    @property
    def usual_port(self) -> int | None:
        """The port of the last start; None: any."""
        return self._record.port if self._record else None

    @property
    def postgres_settings(self) -> Mapping[str, str]:
        """What Postgres needs for so many cells; empty: there are none."""
        if not self.any:
            return {}
        number = max(self._wanted or 0, self._record.number if self._record else 0)
        return {**_FOR_MOVES, "max_connections": str(100 + _CONNECTIONS_OF_A_CELL * (number - 1))}

    def prepare(
        self, address: str, port: int, environment: Mapping[str, str], say: Callable[[str], None]
    ) -> LocalCells | None:
        """Make the cells that are missing, and correct the directory, now that Postgres runs; None: there are none.

        Args:
            address: where this Postgres is, without how to sign in.
            port: that of Postgres.
            environment: the settings of the store.
            say: is told each step.

        Raises:
            DulyError: it could not be done. What was done is completed by the next start.
        """
        if not self.any:
            return None
        before = self._record
        known = [each for each in (before.addresses if before else ()) if each != address]
        number = before.number if before else 1
        usual = before.port if before else port  # until the directory is corrected, the former one is right
        begun = CellRecord((*known, address), usual, number, self._wanted)
        if begun != before:
            write_record(self._folder, begun)
        try:
            found = make_cells(self._wanted, known, environment, say)
        except SettingsError:  # nothing was changed
            if before is None:
                record_file(self._folder).unlink()
            else:
                write_record(self._folder, CellRecord(begun.addresses, usual, number, before.making))
            raise
        write_record(self._folder, CellRecord((address,), port, len(found.names) if found else 1))
        return found


def make_cells(
    wanted: int | None, former: Collection[str], environment: Mapping[str, str], say: Callable[[str], None]
) -> LocalCells | None:
    """Make cells in the store of the environment; None: there are none, and none are wanted.

    Raises:
        SettingsError: what is wanted cannot be. Nothing was changed.
        DulyError: it could not be done. What was done is completed by the next call.
    """
    told = json.dumps({"wanted": wanted, "former": list(former)})
    found: dict[str, object] = {}
    with _running([sys.executable, "-P", "-m", "duly_local.cells", told], environment) as process:
        for line in process.stdout or ():
            said = json.loads(line)
            if "say" in said:
                say(said["say"])
            else:
                found = said
    if process.returncode != 0:
        reason = str(found.get("error", f"the process that makes cells ended with {process.returncode}"))
        raise (SettingsError if process.returncode == os.EX_CONFIG else DulyError)(reason)
    names = found.get("cells")
    return LocalCells(tuple(names), str(found["default"])) if isinstance(names, list) else None


@contextmanager
def _running(command: list[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run a command until it ends; Ctrl-C ends it at once, for the next start goes on."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment, PARENT_PID: str(os.getpid())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        with process:
            try:
                yield process
            except BaseException:
                process.kill()
                raise
    finally:
        process.kill()
