"""A short run of three zones: all of them are hit, and every guarantee is checked. Without root or the packages it is skipped."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from duly_core.process.parent import PARENT_PID
from tests.zones.requirements import what_is_missing

ROOT = Path(__file__).parents[2]
_KINDS = {
    "store": ("zone_cut", "database_kill", "fleet_leave"),
    "sqs": ("zone_cut", "queue_cut", "database_kill"),
}

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,  # starts three zones with a Postgres under Patroni, and breaks them for half a minute
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing() or "nothing is missing"),
]


@pytest.mark.parametrize("queue", list(_KINDS))
def test_nothing_is_lost_and_nothing_runs_twice_at_once_whatever_becomes_of_a_zone(queue: str) -> None:
    with tempfile.TemporaryDirectory(prefix="duly-zones-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)  # Postgres runs as a user of its own, which may not enter pytest's folders
        command = [sys.executable, "-m", "tests.zones", "--seed=2", "--seconds=40", "--rate=8"]
        command += [f"--folder={folder}", f"--queue={queue}", *(f"--only={kind}" for kind in _KINDS[queue])]

        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, PARENT_PID: str(os.getpid())},
            capture_output=True,
            text=True,
            check=False,
        )

        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        (report,) = [json.loads(line) for line in (folder / "runs.jsonl").read_text("utf-8").splitlines()]
    assert report["acked"] > 200
    assert len(report["flows"]) >= 2
