"""`duly up` on a disk that is full says so in a line."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.forked_process import ROOT

_ALONE = ("unshare", "--user", "--map-root-user", "--mount")
"""In a namespace of its own, where a mount is nobody else's."""
_UP = 'mount -t tmpfs -o size=$0 none "$1" && shift && exec "$@"'


def up(size: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run `duly up` with its data on a disk of this size."""
    folder.mkdir()
    data = ["--data", str(folder / "data"), "--free-ports", "--no-console"]
    program = [sys.executable, "-m", "duly_cli", "up", *data]
    command = [*_ALONE, "sh", "-c", _UP, size, str(folder), *program]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=50)


@pytest.mark.parametrize(
    ("size", "full"),
    # long: a disk that is full before there is a database
    [pytest.param("4k", "data", marks=pytest.mark.long), ("300k", "data/postgres")],
)
def test_a_full_disk_is_told_in_a_line_with_the_way_out(size: str, full: str, tmp_path: Path) -> None:
    mount = [*_ALONE, "mount", "-t", "tmpfs", "none", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount in a namespace of its own")

    done = up(size, tmp_path / "disk")

    assert done.returncode in (74, 78)
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"duly up: no space is left on the disk of {tmp_path}/disk/{full}")
    assert line.endswith("free some, or use a folder on another disk with --data")
