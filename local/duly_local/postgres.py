"""`EmbeddedPostgres`: a Postgres server of our own, on loopback, that lives no longer than this process.

Start: own the data directory, choose binaries and user, wait for an earlier run to leave, initdb if the
directory is new, start the server, wait until it says it is ready, create the database.
"""

import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from signal import SIGINT, SIGQUIT
from types import TracebackType
from typing import Self

import psycopg

from duly_core.errors import DulyError, PortInUseError
from duly_local import leftovers
from duly_local.binaries import find_binaries
from duly_local.cluster import USER, Cluster
from duly_local.identity import PostgresIdentity
from duly_local.lifeline import signalled_at_our_death
from duly_local.logs import ProgramLog
from duly_local.ownership import DataDirectoryLock, make_data_directory
from duly_local.ports import LOOPBACK, free_port, require_free
from duly_local.processes import end_program

DATABASE = "duly"

DEFAULTS: Mapping[str, str] = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "cluster_name": "duly",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "jit": "off",  # plans are short; compiling them costs more than it saves
    # What a client was told is stored is on disk: both are Postgres's defaults, and a promise of ours.
    "fsync": "on",
    "synchronous_commit": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

_ATTEMPTS_AT_A_FREE_PORT = 5
_LOOK_AGAIN_AFTER = timedelta(milliseconds=10)


class EmbeddedPostgres:
    """One server on one data directory; start it from the main thread (see lifeline.py).

    `settings` are Postgres's own, added to `DEFAULTS` or overriding them. Without `port`, a free one
    is taken, and kept while this object lives.
    """

    def __init__(
        self,
        data_directory: Path,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        ready_within: timedelta = timedelta(seconds=60),
        stop_within: timedelta = timedelta(seconds=10),
    ) -> None:
        self.port = port
        self._settings = {**DEFAULTS, **(settings or {})}
        self._ready_within = ready_within
        self._stop_within = stop_within
        self._cluster = Cluster(data_directory.absolute())
        self._log = ProgramLog(self._cluster.log_file)
        self._lock: DataDirectoryLock | None = None
        self._identity: PostgresIdentity | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """Where the database `duly` is, with the password."""
        return self.dsn_of(DATABASE)

    def dsn_of(self, database: str) -> str:
        """Where another database of this server is."""
        return f"postgresql://{USER}:{self._cluster.password}@{LOOPBACK}:{self.port}/{database}"

    @property
    def pid(self) -> int | None:
        """The server's process; None: it is not running."""
        process = self._process
        return process.pid if process and process.poll() is None else None

    @property
    def log_file(self) -> Path:
        """Where the server writes what it has to say."""
        return self._log.path

    def start(self) -> None:
        """Start, and return when clients can connect to `dsn`.

        Raises:
            PortInUseError: something else listens on the given port.
            DulyError: another process owns the data directory, or Postgres cannot be found or started.
        """
        if sys.platform != "linux":
            raise DulyError("the embedded Postgres runs on Linux only: name a running server with --dsn")
        try:
            self._prepare()
            if self.port is not None:
                require_free(self.port, "Postgres")
                self.launch()
                self.wait_until_ready()
            else:
                self._start_on_a_free_port()
            self._create_database()
        except BaseException:
            self.stop()
            raise

    def launch(self) -> None:
        """Start the server process on the port; again, should it have died."""
        identity = self._identity
        if identity is None:
            raise DulyError("launch() repeats what start() prepared: call start() first")
        leftovers.await_departure(self._cluster.files, self._stop_within)
        arguments = [f"--{name}={value}" for name, value in {**self._settings, "port": self.port}.items()]
        with self._log.open() as log:
            self._process = identity.start(
                "postgres",
                self._cluster.files,
                *arguments,
                preexec_fn=signalled_at_our_death(SIGINT),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_until_ready(self) -> None:
        """Wait until the launched server accepts connections (any thread may wait).

        Raises:
            PortInUseError: something else listens on its port.
            DulyError: it ended, or was not ready in time; quotes the end of its log.
        """
        deadline = time.monotonic() + self._ready_within.total_seconds()
        while not self._says_it_is_ready():
            if self.pid is None:
                said = self._log.last_lines()
                if "Address already in use" in said:
                    raise PortInUseError(f"Postgres cannot use port {self.port}: it is in use")
                raise DulyError(f"Postgres ended while it started; the end of {self._log.path}:\n{said}")
            if time.monotonic() > deadline:
                waited = self._ready_within.total_seconds()
                raise DulyError(
                    f"Postgres was not ready after {waited:g} s; the end of {self._log.path}:\n"
                    f"{self._log.last_lines()}"
                )
            time.sleep(_LOOK_AGAIN_AFTER.total_seconds())

    def stop(self) -> None:
        """Shut down, at worst so that the next start has to recover, and let others own the directory."""
        process, self._process = self._process, None
        if process is not None:
            # Fast shutdown ends sessions and writes a checkpoint; SIGQUIT leaves that to the next start.
            end_program(process, (SIGINT, SIGQUIT), self._stop_within)
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _prepare(self) -> None:
        make_data_directory(self._cluster.data_directory)
        if self._lock is None:
            self._lock = DataDirectoryLock.take(self._cluster.data_directory)
        binaries = find_binaries(self._cluster.major)
        self._identity = PostgresIdentity.choose(binaries, self._cluster.data_directory)
        if self._cluster.major is None:
            self._cluster.create(self._identity, durable=self._settings["fsync"] == "on")
        else:
            leftovers.await_departure(self._cluster.files, self._stop_within)
            self._identity.give(self._cluster.files)

    def _start_on_a_free_port(self) -> None:
        for attempts_left in reversed(range(_ATTEMPTS_AT_A_FREE_PORT)):
            self.port = free_port()
            try:
                self.launch()
                self.wait_until_ready()
            except PortInUseError:  # another process took it between our look and the server's
                if attempts_left == 0:
                    raise
            else:
                return

    def _says_it_is_ready(self) -> bool:
        """What pg_ctl looks at: unlike a connection, it cannot be another server's answer."""
        try:
            lines = (self._cluster.files / "postmaster.pid").read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return False
        return lines[0] == str(self.pid) and any(line.strip() == "ready" for line in lines[7:])

    def _create_database(self) -> None:
        try:
            with psycopg.connect(self.dsn_of("postgres"), autocommit=True, connect_timeout=10) as connection:
                known = "SELECT 1 FROM pg_database WHERE datname = %s"
                if connection.execute(known, [DATABASE]).fetchone() is None:
                    connection.execute(f"CREATE DATABASE {DATABASE}")
        except psycopg.Error as error:
            raise DulyError(f"the embedded Postgres refuses us: {error}") from error
