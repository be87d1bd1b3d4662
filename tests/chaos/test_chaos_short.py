"""Short chaos runs of fixed seeds: a whole system is broken in several ways, and every guarantee is checked."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from duly_core.process.parent import PARENT_PID
from tests.chaos.intruders import TRIED
from tests.chaos.single import EXIT_BROKEN

ROOT = Path(__file__).parents[2]
_SECONDS = 12
_RATE = 12

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,  # each breaks a whole stack for twelve seconds; `make test` has single faults
    pytest.mark.timeout(240),
]


@pytest.mark.parametrize(
    ("seed", "options"),
    [
        pytest.param(2, ("--queue=store",), id="store"),
        pytest.param(5, ("--queue=sqs",), id="sqs"),
    ],
)
def test_nothing_is_lost_and_nothing_runs_twice_at_once_whatever_breaks(
    seed: int, options: tuple[str, ...], tmp_path: Path
) -> None:
    figures = _run([f"--seed={seed}", *options], tmp_path)

    assert sum(figures["faults"].values()) >= 3


def test_tasks_start_when_they_are_due_though_hints_are_lost_and_the_store_consumer_is_away(
    tmp_path: Path,
) -> None:
    figures = _run(
        ["--seed=4", "--queue=store", "--only=notification", "--only=away_store_consumer"], tmp_path
    )

    assert {"notification_lose", "away_store_consumer"} <= set(figures["faults"])


def test_without_faults_every_task_runs_once(tmp_path: Path) -> None:
    figures = _run(["--seed=1", "--no-faults", "--queue=store"], tmp_path)

    assert set(figures["faults"]) <= {"machine_busy"}
    assert "cut off" not in figures["outcomes"]
    # Those that said so themselves ran again, and nobody else.
    said_so = sum(figures["outcomes"].get(outcome, 0) for outcome in ("raised", "retriable", "snoozed"))
    assert figures["figures"]["again"] <= said_so


@pytest.mark.timeout(720)
def test_a_lease_that_is_renewed_with_an_old_token_is_found(tmp_path: Path) -> None:
    """No timer of Duly lets such a heartbeat through by itself: the replayer sends it."""
    for seed in (2, 4, 6):  # a run may have no task whose former holder could send one
        done, figures = _report(
            [f"--seed={seed}", "--queue=store", "--mutation=heartbeat-without-token"], tmp_path
        )
        if done.returncode == EXIT_BROKEN:
            break

    assert done.returncode == EXIT_BROKEN, f"{done.stdout}{done.stderr}"
    assert any(line.startswith("C3.replayed") for line in figures["violations"])


def test_nobody_is_let_in_who_may_not(tmp_path: Path) -> None:
    figures = _run(["--seed=4", "--queue=store", "--auth"], tmp_path)

    assert {*figures["intrusions"]} == {*TRIED}


def _run(options: list[str], tmp_path: Path) -> dict[str, Any]:
    """What the run reported; it must have held."""
    done, figures = _report(options, tmp_path)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert (figures["violations"], figures["inconclusive"], figures["problems"]) == ([], [], [])
    assert figures["acked"] >= _SECONDS * _RATE * 0.9
    return figures


def _report(options: list[str], tmp_path: Path) -> tuple["subprocess.CompletedProcess[str]", dict[str, Any]]:
    """How the run ended, and what it reported."""
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

    return done, json.loads(report.read_text(encoding="utf-8"))
