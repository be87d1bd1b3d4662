"""Log lines of a process."""

import json
import os
import subprocess
import sys

import pytest

LINES = 3_000
"""More than a pipe and a buffer hold."""

_LOG = f"""
import os, sys, threading, structlog
from duly_core.process.telemetry import TelemetrySettings, set_up_logging

reads, writes = os.pipe()
os.dup2(writes, 2)
os.close(writes)
another = os.dup(2)  # of the same open file, as a callback process has one
os.set_blocking(another, False)
all_logged = threading.Event()

def copy():
    while not (os.get_blocking(another) or all_logged.is_set()):  # full, if lines are refused
        all_logged.wait(0.01)
    os.close(another)
    with open(reads, "rb") as lines:
        for line in lines:
            sys.stdout.buffer.write(line)

slow_reader = threading.Thread(target=copy)
slow_reader.start()
set_up_logging("worker", TelemetrySettings())
for number in range({LINES}):
    structlog.get_logger().info("callback process died", number=number)
all_logged.set()
os.close(2)
slow_reader.join()
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_no_log_line_is_lost_when_a_callback_makes_stderr_non_blocking_and_its_reader_is_slow(unbuffered):
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    logged = subprocess.run(
        [sys.executable, "-c", _LOG], stdout=subprocess.PIPE, env=environment, check=True, timeout=60
    ).stdout

    assert [json.loads(line)["number"] for line in logged.splitlines()] == list(range(LINES))
