"""moto's server: an SQS look-alike, for `duly up --queue sqs` and for the tests. It keeps its queues in memory."""

import importlib.util
import os
import subprocess
import sys
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path
from signal import SIGKILL
from typing import ClassVar

from duly_core.errors import DulyError
from duly_local.parent_death_signal import parent_death_signal
from duly_local.ports import LOOPBACK
from duly_local.programs import Program

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

_ONE_QUESTION = timedelta(seconds=2)
# A proxy that the environment names is for the world outside, not for loopback.
_no_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class MotoServer(Program):
    """One server. It dies with us at once: it has nothing to save."""

    NAME: ClassVar[str] = "the SQS look-alike"

    def __init__(
        self, log_file: Path, port: int | None = None, *, ready_within: timedelta = timedelta(seconds=30)
    ) -> None:
        super().__init__(port, log_file, ready_within)

    @property
    def endpoint_url(self) -> str:
        """What boto3 is told as `endpoint_url`."""
        return f"http://{LOOPBACK}:{self.port}"

    def _prepare(self) -> None:
        if importlib.util.find_spec("moto") is None:
            raise DulyError("the SQS look-alike needs moto: run `pip install 'duly[local]'`")

    def launch(self) -> None:
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

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _is_ready(self) -> bool:
        question = f"{self.endpoint_url}/moto-api/"
        try:
            with _no_proxy.open(question, timeout=_ONE_QUESTION.total_seconds()) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False
