"""`EmbeddedPostgres`: a Postgres server of our own, on loopback, that outlives this process only for those who need it.

Start: own the data directory, choose binaries and user, wait for an earlier run to leave, initdb if the
directory is new, start the server, wait until it says it is ready.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGQUIT, SIGUSR1
from typing import Any, ClassVar
from urllib.parse import quote

from duly_core.errors import DulyError
from duly_local.parent_death_signal import parent_death_signal
from duly_local.ports import LOOPBACK
from duly_local.postgres import parent_process, stale_server
from duly_local.postgres.binaries import find_binaries
from duly_local.postgres.cluster import DATABASE, USER, Cluster
from duly_local.postgres.data_directory import DataDirectoryLock, make_data_directory
from duly_local.postgres.os_user import PostgresOsUser
from duly_local.programs import Program

DEFAULTS: Mapping[str, str] = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": ".",  # the cluster's own folder, whatever its path looks like to the server
    "unix_socket_permissions": "0700",
    "cluster_name": "duly",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_logical_replication_workers": "0",  # nobody subscribes; without it there is one process less
    "jit": "off",  # plans are short; compiling them costs more than it saves
    # What a client was told is stored is on disk: both are Postgres's defaults, and a promise of ours.
    "fsync": "on",
    "synchronous_commit": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

FROM_18: Mapping[str, str] = {"io_method": "sync"}
"""Added from Postgres 18 on: no processes that read ahead, for data that fits into memory."""

_PARENT = (sys.executable, "-I", "-S", parent_process.__file__)
_LONGEST_SOCKET = 107
"""Bytes of a unix socket's path."""
_EIGHTEEN = 18


class EmbeddedPostgres(Program):
    """One server on one data directory.

    `settings` are Postgres's own, added to `DEFAULTS` or overriding them. When this process is killed, the server shuts
    down as soon as nobody holds `keepalive`, at the latest after `needed_for`.
    """

    NAME: ClassVar[str] = "Postgres"

    def __init__(
        self,
        data_directory: Path,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        ready_within: timedelta = timedelta(seconds=60),
        stop_within: timedelta = timedelta(seconds=10),
        needed_for: timedelta = timedelta(),
        tell: Callable[[str], None] = lambda _: None,
        usual_port: int | None = None,
    ) -> None:
        self._cluster = Cluster(data_directory.absolute())
        super().__init__(port, self._cluster.log_file, ready_within, usual_port)
        self._settings = {**DEFAULTS, **(settings or {})}
        self._stop_within = stop_within
        self._needed_for = needed_for
        self._tell = tell
        self._pipe: tuple[int, int] | None = None
        self._pid: int | None = None
        self._lock: DataDirectoryLock | None = None
        self._identity: PostgresOsUser | None = None

    @property
    def dsn(self) -> str:
        """Where the database `duly` is, with the password."""
        return self.dsn_of(DATABASE)

    def dsn_of(self, database: str) -> str:
        """Where another database of this server is."""
        return f"postgresql://{USER}:{self._cluster.password}@{LOOPBACK}:{self.port}/{database}"

    @property
    def socket_dsn(self) -> str:
        """The database `duly` over the server's unix socket: less work for both ends; over TCP where that has no place."""
        folder = self._socket_folder
        if not folder:
            return self.dsn
        return f"postgresql://{USER}:{self._cluster.password}@/{DATABASE}?host={quote(folder, safe='')}&port={self.port}"

    @property
    def place(self) -> str:
        """Where `socket_dsn` leads, without how to sign in there."""
        folder = self._socket_folder
        if not folder:
            return f"postgresql://{LOOPBACK}:{self.port}/{DATABASE}"
        return f"postgresql:///{DATABASE}?host={quote(folder, safe='')}&port={self.port}"

    @property
    def signing_in(self) -> dict[str, str]:
        """The settings with which a command reaches this server; the password is not among them, but its file."""
        return {
            "DULY_STORE_DSN": self.place.replace("postgresql://", f"postgresql://{USER}@", 1),
            "DULY_STORE_PASSWORD_FILE": str(self._cluster.password_file),
        }

    @property
    def _socket_folder(self) -> str:
        """The cluster's own folder, which nobody else can enter; empty where the path is too long for a socket."""
        folder = str(self._cluster.files)
        return folder if len(f"{folder}/.s.PGSQL.{self.port}.lock".encode()) < _LONGEST_SOCKET else ""

    @property
    def keepalive(self) -> int:
        """A descriptor: whoever needs the server for longer than this process lives inherits it."""
        self._pipe = self._pipe or os.pipe()
        return self._pipe[1]

    @property
    def pid(self) -> int | None:
        """The server's process, not its parent's; None: it is not running."""
        return None if super().pid is None else self._pid

    @property
    def log_file(self) -> Path:
        """Where the server writes what it has to say."""
        return self._log.path

    def launch(self) -> None:
        identity = self._identity
        if identity is None:
            raise DulyError("launch() repeats what start() prepared: call start() first")
        self._await_departure()
        newer = FROM_18 if identity.binaries.major >= _EIGHTEEN else {}
        settings = {
            **newer,
            "unix_socket_directories": self._socket_folder,
            **self._settings,
            "port": self.port,
        }
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        with self._log.open() as log:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            if _can_be_kept():
                self._launch_kept(identity, arguments, streams)
                return
            self._process = identity.start(
                "postgres",
                self._cluster.files,
                *arguments,
                preexec_fn=parent_death_signal(SIGINT),
                **streams,
            )
            self._pid = self._process.pid

    def _launch_kept(self, identity: PostgresOsUser, arguments: list[str], streams: dict[str, Any]) -> None:
        reading, writing = os.pipe()
        self._pipe = self._pipe or os.pipe()
        self._pid = None
        descriptors = (writing, self._pipe[0])
        try:
            self._process = identity.start(
                "postgres",
                self._cluster.files,
                *arguments,
                parent=(*_PARENT, *map(str, descriptors), str(self._needed_for.total_seconds())),
                pass_fds=descriptors,
                preexec_fn=parent_death_signal(SIGUSR1),
                **streams,
            )
        finally:
            os.close(writing)
            with os.fdopen(reading, "rb") as told:
                said = told.read()  # a few digits; nothing if the parent process ended before
        self._pid = int(said) if said else None

    def stop(self) -> None:
        """Shut down, at worst so that the next start has to recover, and let others own the directory."""
        process, self._process = self._process, None
        if process is not None:
            self._end(process)
        pipe, self._pipe = self._pipe, None
        for descriptor in pipe or ():
            os.close(descriptor)
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        # Fast shutdown ends sessions and writes a checkpoint; SIGQUIT leaves that to the next start.
        for number in (SIGINT, SIGQUIT, SIGKILL):
            if self._pid is None:
                process.send_signal(number)
            elif (
                process.poll() is None
            ):  # the parent process has not reaped it, so the number is still its own
                with suppress(ProcessLookupError):
                    os.kill(self._pid, number)
            try:
                process.wait(None if number == SIGKILL else self._stop_within.total_seconds())
            except subprocess.TimeoutExpired:
                continue
            return

    def _await_departure(self) -> None:
        """Wait for the server of an earlier run: it may have to stay for what that run left behind."""
        stale_server.await_exit(self._cluster.files, self._needed_for + self._stop_within, self._tell)

    def _prepare(self) -> None:
        if sys.platform != "linux":
            raise DulyError("the embedded Postgres runs on Linux only: name a running server with --dsn")
        make_data_directory(self._cluster.data_directory)
        if self._lock is None:
            self._lock = DataDirectoryLock.take(self._cluster.data_directory)
        binaries = find_binaries(self._cluster.major)
        self._identity = PostgresOsUser.choose(binaries, self._cluster.data_directory)
        if self._cluster.major is None:
            self._cluster.create(self._identity, durable=self._settings["fsync"] == "on")
        else:
            _ = self._cluster.password  # for nothing but its error, before anything is started
            self._await_departure()
            self._identity.give(self._cluster.files)

    def _is_ready(self) -> bool:
        """What pg_ctl looks at: unlike a connection, it cannot be another server's answer."""
        try:
            lines = (self._cluster.files / "postmaster.pid").read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return False
        return lines[0] == str(self.pid) and any(line.strip() == "ready" for line in lines[7:])


def _can_be_kept() -> bool:
    """Whether this user may run another Python: not where it gave up the right to reach its own, or is embedded."""
    return os.access(sys.executable or "", os.X_OK) and os.access(parent_process.__file__, os.R_OK)
