"""A soak of a minute: the whole of it runs, every task ends, and every part of the stack is sampled."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.system import ROOT

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,  # a minute of load; the judge has unit tests
    pytest.mark.timeout(900),
]

PARTS = (
    "frontend 1",
    "hsc 1",
    "store consumer 1",
    "controller 1",
    "executor 1",
    "executor 2",
    "callbacks 1",
    "supervisor 1",
)
TABLES = (
    "task",
    "task_assoc",
    "attempt",
    "session",
    "graph_node",
    "resource_use",
    "dead_letter",
    "idempotency_key",
)


def test_a_short_soak_ends_every_task_and_samples_every_part(tmp_path: Path) -> None:
    kept = tmp_path / "soak.json"
    arguments = [
        "--hours",
        "0.017",
        "--rate",
        "20",
        "--sample",
        "4",
        "--retention",
        "60",
        "--json",
        str(kept),
    ]

    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=840,
        check=False,
    )

    found = json.loads(kept.read_text(encoding="utf-8"))
    assert found["problems"] == []
    assert found["load"]["scheduled"] == found["load"]["started"] + found["load"]["cancelled"]
    assert found["load"]["cancelled"] > 0
    assert {f"memory: {part}" for part in PARTS} <= found["series"].keys()
    assert {f"size: {table}" for table in TABLES} <= found["series"].keys()
    assert all(found["series"][f"size: indexes of {table}"][-1] > 0 for table in TABLES)
    assert found["series"]["connections"][-1] > 0
    assert found["series"]["wal"][-1] > 0
    grown = [verdict["name"] for verdict in found["verdicts"] if verdict["grows"]]
    assert done.returncode == (1 if grown else 0), done.stderr  # a minute is all warm-up: tables do grow
    assert "ran" in done.stdout
