"""`duly up` as a process of its own that ends with the demo; and signals, which wait until the demo looks."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import fileindex
from duly_core.errors import DulyError
from duly_local.parent_death_signal import parent_death_signal
from duly_local.processes import end_program
from fileindex.demo.application import LOG_VARIABLE

_APPLICATION = "fileindex.demo.application:app"
EXECUTIONS = "executions"
"""The folder, in that of a run, of its execution log."""

_READY = re.compile(rb"clients connect to (\S+)")
_READY_WITHIN_S = 300
_STOPS_WITHIN = timedelta(seconds=20)
_LOOK_EVERY_S = 0.05


class InterruptedByUserError(Exception):
    """Somebody pressed Ctrl-C, or sent SIGTERM or SIGHUP."""


class Interrupt:
    """Remembers signals until the demo looks, so that none hits a half-made folder or process."""

    def __init__(self) -> None:
        self._came = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._take)

    def check(self) -> None:
        """Raise InterruptedByUserError if a signal came."""
        if self._came:
            raise InterruptedByUserError

    def pause(self) -> None:
        """Wait a moment; raise as `check` does."""
        self.check()
        time.sleep(_LOOK_EVERY_S)

    def _take(self, _number: int, _frame: object) -> None:
        self._came = True


@contextmanager
def running_stack(folder: Path, root: Path, options: Sequence[str], interrupt: Interrupt) -> Iterator[str]:
    """Run `duly up` in a folder; yield the Frontend's address.

    `root`: the folder of the files to index. The execution log will be in `EXECUTIONS`.

    Raises:
        DulyError: it ended, or was not ready in time; with the last lines of its output.
    """
    output, config = folder / "duly-up.log", folder / "duly.toml"
    (folder / EXECUTIONS).mkdir()
    config.touch()  # empty: neither the user's own nor the user's environment may change the demo
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "DULY_")) or name == "DULY_POSTGRES_BIN"
    }
    environment |= {
        "DULY_CONFIG": str(config),
        LOG_VARIABLE: str(folder / EXECUTIONS),
        fileindex.ROOT_VARIABLE: str(root),
        "DULY_EXECUTOR_CALLBACK_ENVIRONMENT": f"{LOG_VARIABLE}, {fileindex.ROOT_VARIABLE}",
        "XDG_RUNTIME_DIR": ".",  # for sockets; relative, for an absolute path may be too long for them
    }
    command = [sys.executable, "-m", "duly_cli", "up", _APPLICATION, "--free-ports", "--executors", "2"]
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--data", str(folder / "data"), *options],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,  # Ctrl-C in a terminal is for the demo alone
            preexec_fn=parent_death_signal(signal.SIGTERM),  # noqa: PLW1509 (it takes no lock)
        )
    try:
        deadline = time.monotonic() + _READY_WITHIN_S
        while not (ready := _READY.search(said := output.read_bytes())):
            interrupt.pause()
            if process.poll() is not None or time.monotonic() > deadline:
                last = b"\n  ".join(said.splitlines()[-5:]).decode(errors="replace")
                raise DulyError(f"`duly up` did not become ready; it said last:\n  {last}")
        yield ready[1].decode()
    finally:
        end_program(process, (signal.SIGTERM, signal.SIGTERM), _STOPS_WITHIN)
