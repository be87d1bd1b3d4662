"""moto's server: an SQS look-alike, for `duly up --queue sqs` and for the tests. It keeps its queues in memory."""

import importlib.util
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path
from signal import SIGKILL
from types import TracebackType
from typing import Self

from duly_core.errors import DulyError
from duly_local.parent_death_signal import parent_death_signal
from duly_local.ports import LOOPBACK, free_port, require_free
from duly_local.processes import end_program
from duly_local.program_log import ProgramLog

# boto3 wants some; moto takes any.
AWS_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "duly",
    "AWS_SECRET_ACCESS_KEY": "duly",
    "AWS_DEFAULT_REGION": "us-east-1",
}

# `python -m moto.server`, without a log line for each of a service's many polls.
_PROGRAM = """
import logging, sys
from moto.server import main
logging.getLogger("werkzeug").setLevel(logging.ERROR)
main(sys.argv[1:])
"""

_LOOK_AGAIN_AFTER = timedelta(milliseconds=50)
_ONE_QUESTION = timedelta(seconds=2)
# A proxy that the environment names is for the world outside, not for loopback.
_no_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class MotoServer:
    """One server; start it from the main thread (see parent_death_signal.py). It dies with us at once: it has nothing to save."""

    def __init__(
        self, log_file: Path, port: int | None = None, *, ready_within: timedelta = timedelta(seconds=30)
    ) -> None:
        self.port = port
        self._ready_within = ready_within
        self._log = ProgramLog(log_file)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint_url(self) -> str:
        """What boto3 is told as `endpoint_url`."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The server's process; None: it is not running."""
        process = self._process
        return process.pid if process and process.poll() is None else None

    def start(self) -> None:
        """Start, and return when it answers.

        Raises:
            PortInUseError: something else listens on the given port.
            DulyError: moto is not installed, or its server ended or did not answer in time.
        """
        if importlib.util.find_spec("moto") is None:
            raise DulyError("the SQS look-alike needs moto: run `pip install 'duly[local]'`")
        if self.port is None:
            self.port = free_port()
        else:
            require_free(self.port, "the SQS look-alike")
        try:
            self.launch()
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def launch(self) -> None:
        """Start the process on the port; again, should it have died."""
        with self._log.open() as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, "-H", LOOPBACK, "-p", str(self.port)],
                env={**os.environ, **AWS_ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=parent_death_signal(SIGKILL),  # noqa: PLW1509 (it takes no lock)
            )

    def wait_until_ready(self) -> None:
        """Wait until it answers (any thread may wait).

        Raises:
            DulyError: it ended, or did not answer in time; quotes the end of its log.
        """
        deadline = time.monotonic() + self._ready_within.total_seconds()
        while not self._answers():
            if self.pid is None or time.monotonic() > deadline:
                what = "ended while it started" if self.pid is None else "does not answer"
                raise DulyError(
                    f"the SQS look-alike {what}; the end of {self._log.path}:\n{self._log.last_lines()}"
                )
            time.sleep(_LOOK_AGAIN_AFTER.total_seconds())

    def stop(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is not None:
            end_program(process, (), timedelta())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _answers(self) -> bool:
        question = f"{self.endpoint_url}/moto-api/"
        try:
            with _no_proxy.open(question, timeout=_ONE_QUESTION.total_seconds()) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False
