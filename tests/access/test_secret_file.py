"""A file with a secret is whole, its owner's, and not in the way of the next one."""

import os
import signal
import stat
import subprocess
import sys

from duly_cli.access.secret_file import secret_file

KILLED = """
import os, signal, sys
from pathlib import Path
from duly_cli.access.secret_file import secret_file
os.getpid = lambda: 7
with secret_file(Path(sys.argv[1])):
    signal.raise_signal(signal.SIGKILL)
"""


def test_what_a_killed_command_left_stops_no_other_with_the_same_id(tmp_path, monkeypatch):
    path = tmp_path / "token"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, timeout=60)
    left = list(tmp_path.iterdir())
    monkeypatch.setattr(os, "getpid", lambda: 7)
    with secret_file(path) as write:
        write("a secret")

    assert killed.returncode == -signal.SIGKILL
    assert len(left) == 1
    assert path.read_text() == "a secret\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
