"""As whom Postgres runs: it refuses to run as root, and its data must belong to the one it runs as.

An ordinary user runs it as is. Root does one of these, the first that works:
1. as `nobody`, when that user can reach the programs and the data;
2. in a user namespace, where root's files belong to an ordinary user, so folders closed to others
   (a clone in root's home) are no obstacle; many containers forbid it;
3. as `nobody`, with a copy of the programs where it can reach them, and with the data reached by an open
   descriptor of its folder instead of its path.
"""

import os
import pwd
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from duly_core.errors import DulyError
from duly_local.postgres.binaries import PostgresBinaries
from duly_local.postgres.binaries_copy import copy_where_all_can_reach

_NAMESPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000")


@dataclass(frozen=True, slots=True)
class PostgresOsUser:
    """How a Postgres program is started, and who its data belongs to."""

    binaries: PostgresBinaries
    owner: int
    """The user id that the data must belong to."""
    prefix: tuple[str, ...] = ()
    popen: tuple[tuple[str, Any], ...] = ()
    """Arguments of Popen that change the user."""
    by_descriptor: bool = False
    """Whether the data is named by an open descriptor, because its path is closed to the user."""

    @classmethod
    def choose(cls, binaries: PostgresBinaries, data_directory: Path) -> Self:
        """The least intrusive way that works here."""
        if os.geteuid() != 0:
            return cls(binaries, os.geteuid())
        user, group = _nobody()
        popen = (("user", user), ("group", group), ("extra_groups", ()))
        nobody = cls(binaries, user, popen=popen)
        reaches_data = _succeeds("test", "-x", str(data_directory), **dict(popen))
        reaches_programs = _succeeds(binaries.program("postgres"), "--version", **dict(popen))
        if reaches_data and reaches_programs:
            return nobody
        if _succeeds(*_NAMESPACE, binaries.program("postgres"), "--version"):
            return cls(binaries, 0, prefix=_NAMESPACE)
        if not reaches_programs:
            nobody = replace(nobody, binaries=copy_where_all_can_reach(binaries))
        return replace(nobody, by_descriptor=not reaches_data)

    def give(self, postgres_data: Path) -> None:
        """Make the data belong to `owner`, which an earlier run may have chosen otherwise.

        Raises:
            DulyError: it belongs to somebody else, and we are not root.
        """
        if postgres_data.stat().st_uid == self.owner:
            return
        if os.geteuid() != 0:
            raise DulyError(
                f"{postgres_data} belongs to another user: run as that user, or use another "
                f"data directory with --data"
            )
        for folder, _, files in os.walk(postgres_data):
            for path in (folder, *(os.path.join(folder, file) for file in files)):  # noqa: PTH118 (thousands)
                os.chown(path, self.owner, -1, follow_symlinks=False)

    def start(
        self,
        program: str,
        postgres_data: Path,
        *arguments: str,
        first: tuple[str, ...] = (),
        parent: tuple[str, ...] = (),
        pass_fds: tuple[int, ...] = (),
        preexec_fn: Callable[[], None] | None = None,
        **streams: Any,
    ) -> subprocess.Popen[bytes]:
        """Start `initdb` or `postgres` on the data, in a session of its own.

        Args:
            program: its name.
            postgres_data: the folder.
            arguments: what comes after the folder.
            first: what must come before all other arguments.
            parent: the command of a parent process (see parent_process.py) that starts it, and changes the user.
            pass_fds: descriptors that it inherits.
            preexec_fn: called before the first command is executed.
            streams: stdin, stdout and stderr.
        """
        folder = os.open(postgres_data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            named = f"/proc/self/fd/{folder}" if self.by_descriptor else str(postgres_data)
            user = dict(self.popen)
            kept_by = (*parent, f"{user['user']}:{user['group']}" if user else "") if parent else ()
            return subprocess.Popen(
                [*kept_by, *self.prefix, self.binaries.program(program), *first, "-D", named, *arguments],
                cwd="/",
                env=_environment(),
                start_new_session=True,
                pass_fds=(folder, *pass_fds) if self.by_descriptor else pass_fds,
                preexec_fn=preexec_fn,  # noqa: PLW1509 (what runs there takes no lock)
                **streams,
                **({} if parent else user),
            )
        finally:
            os.close(folder)


def _environment() -> dict[str, str]:
    """Ours without PGDATA, PGPORT and the like, and with messages in English: we read some of them."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return {**ours, "LC_ALL": "C"}


def _nobody() -> tuple[int, int]:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return 65534, 65534
    return entry.pw_uid, entry.pw_gid


def _succeeds(*command: str, **popen: Any) -> bool:
    if shutil.which(command[0]) is None:
        return False
    try:
        return subprocess.run(command, capture_output=True, check=False, cwd="/", **popen).returncode == 0
    except PermissionError:
        return False
