"""Short chaos runs of fixed seeds: a whole system is broken in some twenty ways, and every guarantee is checked."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from duly_core.process import PARENT_PID

ROOT = Path(__file__).parents[2]
_SECONDS = 20
_RATE = 25

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    ("seed", "kinds"),
    [
        pytest.param(2, (), id="any"),
        pytest.param(3, ("kill", "pause"), id="processes"),
        pytest.param(5, ("postgres", "net", "queue"), id="infrastructure"),
    ],
)
def test_nothing_is_lost_and_nothing_runs_twice_at_once_whatever_breaks(
    seed: int, kinds: tuple[str, ...], tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    command = [
        *(sys.executable, "-m", "tests.chaos", f"--seed={seed}", f"--seconds={_SECONDS}", f"--rate={_RATE}"),
        *(f"--only={kind}" for kind in kinds),
        f"--json={report}",
    ]

    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, PARENT_PID: str(os.getpid())},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )

    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    figures = json.loads(report.read_text(encoding="utf-8"))
    assert (figures["violations"], figures["inconclusive"], figures["problems"]) == ([], [], [])
    assert figures["acked"] >= _SECONDS * _RATE * 0.8
    assert sum(figures["faults"].values()) >= 4
