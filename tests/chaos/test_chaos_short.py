"""Short chaos runs of fixed seeds: a whole system is broken in some twenty ways, and every guarantee is checked."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from duly_core.process import PARENT_PID

ROOT = Path(__file__).parents[2]
_SECONDS = 20
_RATE = 12

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
    options = [f"--seed={seed}", *(f"--only={kind}" for kind in kinds)]

    figures = _run(options, tmp_path)

    assert sum(figures["faults"].values()) >= 4


def test_without_faults_every_task_runs_once(tmp_path: Path) -> None:
    figures = _run(["--seed=1", "--no-faults", "--queue=postgres"], tmp_path)

    assert set(figures["faults"]) <= {"machine_busy"}
    assert "cut off" not in figures["outcomes"]
    # Those that said so themselves ran again, and nobody else.
    said_so = sum(figures["outcomes"].get(outcome, 0) for outcome in ("raised", "retriable", "snoozed"))
    assert figures["figures"]["again"] <= said_so


def _run(options: list[str], tmp_path: Path) -> dict[str, Any]:
    """What the run reported; it must have held."""
    report = tmp_path / "report.json"
    command = [
        *(sys.executable, "-m", "tests.chaos", f"--seconds={_SECONDS}", f"--rate={_RATE}", *options),
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
    figures: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    assert (figures["violations"], figures["inconclusive"], figures["problems"]) == ([], [], [])
    assert figures["acked"] >= _SECONDS * _RATE * 0.9
    return figures
