"""What the services stand on: Postgres and the SQS look-alike. Not ours, but kept running like ours."""

import asyncio
import subprocess
import time
from abc import ABC, abstractmethod
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from duly_core.errors import DulyError, PortInUseError
from duly_local.merged_output import MergedOutput
from duly_local.ports import free_port, is_free, require_free
from duly_local.program_log import ProgramLog

_ATTEMPTS_AT_A_FREE_PORT = 5
_LOOK_AGAIN_AFTER = timedelta(milliseconds=10)
_LOOK_EVERY = timedelta(milliseconds=500)
_AFTER_A_FAILURE = timedelta(seconds=5)


class Program(ABC):
    """A server that runs on the port it first got; start it from the main thread (see parent_death_signal.py)."""

    NAME: ClassVar[str]
    """What it is, in error messages."""

    def __init__(
        self, port: int | None, log_file: Path, ready_within: timedelta, usual_port: int | None = None
    ) -> None:
        """Make one; without `port`, a free one is taken, and kept while this object lives: `usual_port`, if it is free."""
        self.port = port
        self._usual_port = usual_port
        self._log = ProgramLog(log_file)
        self._ready_within = ready_within
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The server's process; None: it is not running."""
        process = self._process
        return process.pid if process and process.poll() is None else None

    def start(self) -> None:
        """Start it for the first time, and return when it is ready.

        Raises:
            PortInUseError: something else listens on the given port.
            DulyError: it is not installed, or it cannot be started.
        """
        try:
            self._prepare()
            if self.port is not None:
                require_free(self.port, self.NAME)
                self.launch()
                self.wait_until_ready()
            else:
                self._start_on_a_free_port()
        except BaseException:
            self.stop()
            raise

    def _start_on_a_free_port(self) -> None:
        usual, self._usual_port = self._usual_port, None
        for attempts_left in reversed(range(_ATTEMPTS_AT_A_FREE_PORT)):
            self.port = usual if usual is not None and is_free(usual) else free_port()
            usual = None
            try:
                self.launch()
                self.wait_until_ready()
            except PortInUseError:  # another process took it between our look and the server's
                if attempts_left == 0:
                    raise
            else:
                return

    @abstractmethod
    def _prepare(self) -> None:
        """Do what is needed once before it can be launched."""

    @abstractmethod
    def launch(self) -> None:
        """Start its process on the port; again, should it have died."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether it serves."""

    @abstractmethod
    def stop(self) -> None:
        """End it."""

    def wait_until_ready(self) -> None:
        """Wait until the launched server serves (any thread may wait).

        Raises:
            PortInUseError: something else listens on its port.
            DulyError: it ended, or was not ready in time; quotes the end of its log.
        """
        deadline = time.monotonic() + self._ready_within.total_seconds()
        while not self._is_ready():
            if self.pid is None:
                said = self._log.last_lines()
                if "Address already in use" in said:
                    raise PortInUseError(f"{self.NAME} cannot use port {self.port}: it is in use")
                raise DulyError(f"{self.NAME} ended while it started; the end of {self._log.path}:\n{said}")
            if time.monotonic() > deadline:
                waited = self._ready_within.total_seconds()
                raise DulyError(
                    f"{self.NAME} was not ready after {waited:g} s; the end of {self._log.path}:\n"
                    f"{self._log.last_lines()}"
                )
            time.sleep(_LOOK_AGAIN_AFTER.total_seconds())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


async def keep_running(name: str, program: Program, output: MergedOutput) -> None:
    """Start the program again whenever it has ended, until cancelled."""
    while True:
        await asyncio.sleep(_LOOK_EVERY.total_seconds())
        if program.pid is not None:
            continue
        output.write(name, "[duly] ended; starting it again")
        try:
            program.launch()  # here, not in a thread: the kernel ties its life to the thread that starts it
            await asyncio.to_thread(program.wait_until_ready)
        except (DulyError, OSError) as error:
            for line in str(error).splitlines():
                output.write(name, f"[duly] {line}")
            await asyncio.sleep(_AFTER_A_FAILURE.total_seconds())
        else:
            output.write(name, f"[duly] ready on port {program.port}")
