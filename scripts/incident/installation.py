"""Runs what the incident happens to: `duly up`, and a worker whose application is replaced by deploys."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duly
from scripts.incident.waiting import wait_until

_ROOT = Path(__file__).parents[2]
_VERSIONS = _ROOT / "examples" / "incident"
_JOIN = re.compile(r"to add a worker: (.+)")
_FRONTEND = re.compile(r"clients connect to (\S+)")
_CONSOLE = re.compile(r"console at (\S+)")
_STOPS_WITHIN = 60.0


class Installation:
    """A running Duly; `deploy` replaces its application."""

    def __init__(self, folder: Path) -> None:
        """Start it in an empty folder, and wait until it serves."""
        self._folder = folder
        self._worker: subprocess.Popen[bytes] | None = None
        self._log = folder / "up.log"
        command = ["up", "--free-ports", "--data", str(folder / "data")]
        self._up = _start(command, folder, self._log, {})
        self.console = wait_until(
            "duly up is ready", lambda: _CONSOLE.search(self._log.read_text(errors="replace"))
        )[1]
        self.address = self._found(_FRONTEND)
        _, *settings = shlex.split(self._found(_JOIN))
        self._joining = dict(each.split("=", 1) for each in settings if "=" in each)

    def deploy(self, version: str) -> None:
        """Stop the worker, put a version of `examples/incident` in place, and start the worker again."""
        self._stop_worker()
        shutil.copy(_VERSIONS / f"{version}.py", self._folder / "mailer.py")
        log = self._folder / f"worker-{version}.log"
        self._worker = _start(["worker", "mailer:app"], self._folder, log, self._joining)
        with duly.Client(self.address) as client:
            wait_until(f"the worker with {version}.py serves", lambda: _serves(client))

    @contextmanager
    def worker_of(self, source: str, serves: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a worker of another application, in a folder of its own, once it serves this lambda."""
        folder = self._folder / f"worker-{time.monotonic_ns()}"
        folder.mkdir()
        (folder / "application.py").write_text(source, encoding="utf-8")
        worker = _start(["worker", "application:app"], folder, folder / "log", self._joining)
        try:
            with duly.Client(self.address) as client:
                wait_until("the worker serves", lambda: _serves(client, serves))
            yield worker
        finally:
            _stop(worker)

    def postgres(self) -> list[int]:
        """Return the ids of Postgres's processes, the first one first."""
        (file,) = (self._folder / "data").rglob("postmaster.pid")
        first = int(file.read_text(encoding="utf-8").split()[0])
        children = Path(f"/proc/{first}/task/{first}/children").read_text(encoding="utf-8").split()
        return [first, *map(int, children)]

    @property
    def dsn(self) -> str:
        """Where its Postgres is, for a client that schedules in SQL."""
        (file,) = (self._folder / "data").rglob("postmaster.pid")
        port = file.read_text(encoding="utf-8").splitlines()[3]
        password = file.parents[1].joinpath("postgres.password").read_text(encoding="utf-8").strip()
        return f"postgresql://duly:{password}@127.0.0.1:{port}/duly"

    def stop(self) -> None:
        """Stop the worker, then the rest."""
        self._stop_worker()
        _stop(self._up)

    def _found(self, pattern: re.Pattern[str]) -> str:
        found = pattern.search(self._log.read_text(errors="replace"))
        if found is None:
            raise LookupError(f"`duly up` did not print {pattern.pattern}")
        return found[1]

    def _stop_worker(self) -> None:
        if self._worker is not None:
            _stop(self._worker)
            self._worker = None


@contextmanager
def installation(folder: Path) -> Iterator[Installation]:
    """Run an installation."""
    running = Installation(folder)
    try:
        yield running
    finally:
        running.stop()


def _serves(client: duly.Client, name: str = "mail.send") -> bool:
    return any(True for _ in client.hosts(lambda_name=name, states=[duly.HostState.ALIVE]))


def _start(command: list[str], folder: Path, log: Path, settings: dict[str, str]) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "duly_cli", *command],
            cwd=folder,
            env=os.environ | settings,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOPS_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
