"""The files of a Postgres cluster: made by initdb once, then kept, with the password beside them."""

import os
import secrets
import shutil
import subprocess
from pathlib import Path
from signal import SIGTERM

from duly_core.errors import DulyError
from duly_local.parent_death_signal import parent_death_signal
from duly_local.postgres.data_directory import NO_SPACE, no_space
from duly_local.postgres.os_user import PostgresOsUser

USER = "duly"
DATABASE = "duly"


class Cluster:
    """What one data directory holds: `postgres/`, `postgres.password`, `postgres.log`."""

    def __init__(self, data_directory: Path) -> None:
        self.data_directory = data_directory
        self.files = data_directory / "postgres"
        self.log_file = data_directory / "postgres.log"
        self.password_file = data_directory / "postgres.password"

    @property
    def major(self) -> int | None:
        """The major version of the Postgres that made the files; None: there are none yet."""
        try:
            return int((self.files / "PG_VERSION").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    @property
    def password(self) -> str:
        """The password of the user `duly`.

        Raises:
            DulyError: its file is gone.
        """
        try:
            return self.password_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise DulyError(
                f"{self.password_file} cannot be read ({error.strerror}), and without it neither can the "
                f"data: put it back, or begin anew with another --data"
            ) from error

    def create(self, identity: PostgresOsUser, *, durable: bool) -> None:
        """Run initdb. A run cut short leaves nothing that looks complete.

        `durable` flushes the new files to disk: Postgres itself flushes only what it changes later.

        Raises:
            DulyError: initdb failed; quotes what it said.
        """
        if not self.password_file.exists():
            self._write_password()
        unfinished = self.files.with_name("postgres.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        identity.give(unfinished)
        password = self._password_in_memory(identity.owner)
        try:
            initdb = identity.start(
                "initdb",
                unfinished,
                f"--username={USER}",
                "--auth=scram-sha-256",
                f"--pwfile=/proc/self/fd/{password}",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                *([] if durable else ["--no-sync"]),
                pass_fds=(password,),
                preexec_fn=parent_death_signal(SIGTERM),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        finally:
            os.close(password)
        with initdb:  # waits for it whatever happens here: nobody else may write there meanwhile
            output, _ = initdb.communicate()
        if initdb.returncode != 0:
            said = output.decode(errors="replace").strip()
            if NO_SPACE in said:
                raise DulyError(no_space(self.files))
            raise DulyError(f"initdb could not make {self.files}; it said:\n{said}")
        self._create_database(identity, unfinished, durable=durable)
        unfinished.rename(self.files)

    def _create_database(self, identity: PostgresOsUser, files: Path, *, durable: bool) -> None:
        """Create the database before there is a server: a client would stay in our memory.

        Raises:
            DulyError: it cannot be created; quotes what Postgres said.
        """
        creating = identity.start(
            "postgres",
            files,
            *([] if durable else ["-F"]),
            "postgres",
            first=("--single",),
            preexec_fn=parent_death_signal(SIGTERM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        with creating:
            output, _ = creating.communicate(f"CREATE DATABASE {DATABASE}\n".encode())
        said = output.decode(errors="replace").strip()
        if NO_SPACE in said:
            raise DulyError(no_space(self.files))
        if creating.returncode != 0 or "ERROR:" in said:
            raise DulyError(f"the database {DATABASE} could not be created; Postgres said:\n{said}")

    def _write_password(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        file_descriptor = os.open(self.password_file, flags, 0o600)
        with os.fdopen(file_descriptor, "w") as file:
            file.write(secrets.token_urlsafe(24))
            file.flush()
            os.fsync(file_descriptor)

    def _password_in_memory(self, reader: int) -> int:
        """A descriptor from which initdb, which may run as another user, reads the password."""
        file_descriptor = os.memfd_create("password", os.MFD_CLOEXEC)
        os.write(file_descriptor, f"{self.password}\n".encode())
        if os.geteuid() == 0:
            os.fchown(file_descriptor, reader, -1)
        return file_descriptor
