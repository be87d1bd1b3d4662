"""The conformance suite passes workers that keep their duties, and notices each duty that one breaks."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from duly_cli.__main__ import app
from duly_local.conformance.duties import DUTIES
from duly_local.conformance.runner import Judged, judge, run
from duly_local.conformance.stage import LAMBDAS

ROOT = Path(__file__).parents[2]
REFERENCE = (sys.executable, "-m", "tests.fixtures.reference_worker")
WORKER = (sys.executable, "-m", "duly_cli", "worker")
NAMES = [duty.name for duty in DUTIES]

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]
long = (
    pytest.mark.long
)  # leases run out in it; the quick tier has the reference worker, and duties that need no wait
QUICK = ("declares-lambdas", "runs-tasks", "passes-cancels-on", "uses-its-tokens-only")


@pytest.fixture(autouse=True)
def _in_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def terms(*only: str, lease: float) -> dict[str, Any]:
    return {
        "listen": "127.0.0.1:0",
        "lease": timedelta(seconds=lease),
        "patience": timedelta(seconds=15),
        "only": only,
    }


def verdicts(found: Iterable[Judged]) -> dict[str, str]:
    """What came of each duty; a reason behind what is no pass."""
    return {each.duty.name: each.verdict + (f": {each.reason}" if each.reason else "") for each in found}


def judged(command: tuple[str, ...], *only: str, lease: float = 4) -> dict[str, str]:
    return verdicts(run(command, **terms(*only, lease=lease)))


def test_a_worker_that_keeps_the_duties_passes() -> None:
    assert judged(REFERENCE, *QUICK) == dict.fromkeys(QUICK, "pass")


@pytest.mark.parametrize(
    "name", [*QUICK[1:3], *(pytest.param(name, marks=long) for name in NAMES if name not in QUICK[1:3])]
)
def test_a_worker_that_breaks_one_duty_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DULY_BREAK", name)
    played = (
        (name, "ends-before-its-lease") if name == "never-twice-at-a-time" else (name, "sends-heartbeats")
    )

    found = judged(REFERENCE, *played, lease=3)

    assert found[name].startswith("fail: ")


WORKERS = {
    "python": (*WORKER, "examples.conformance.callbacks:app"),
    "program": (
        *WORKER,
        "--exec",
        "examples/conformance/handler.sh",
        *(word for name in LAMBDAS for word in ("--lambda", name)),
    ),
    "reference": REFERENCE,
}


@long
def test_whole_workers_keep_every_duty(tmp_path: Path) -> None:
    """All at once: they wait for leases most of the time."""
    missing = {
        name: reason for name, reason in (("program", _no_jq()), ("node", _no_node(tmp_path))) if reason
    }
    node = ("node", str(tmp_path / "node" / "conformance.mjs"), str(ROOT / "proto"))
    workers = {name: command for name, command in (WORKERS | {"node": node}).items() if name not in missing}

    async def judge_all() -> list[list[Judged]]:
        return await asyncio.gather(*(judge(each, **terms(lease=8)) for each in workers.values()))

    found = dict(zip(workers, map(verdicts, asyncio.run(judge_all())), strict=True))

    assert found == dict.fromkeys(workers, dict.fromkeys(NAMES, "pass"))
    if missing:
        pytest.skip(f"the others keep every duty: {missing}")


def _no_jq() -> str:
    return "" if shutil.which("jq") else "the shell program needs jq: install jq"


def _no_node(folder: Path) -> str:
    """Install what the worker in JavaScript needs; why that cannot be."""
    if not shutil.which("npm"):
        return "needs node and npm: install nodejs and npm"
    shutil.copytree(ROOT / "examples" / "workers" / "node", folder / "node")
    installed = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund"],
        cwd=folder / "node",
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return (
        "npm cannot install @grpc/grpc-js: there may be no registry to reach" if installed.returncode else ""
    )


def test_the_command_prints_each_duty_and_fails_if_one_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DULY_BREAK", "declares-lambdas")
    words = ["conformance", "--duty", "declares-lambdas", "--duty", "runs-tasks", "--heartbeat-timeout", "4s"]

    text = CliRunner().invoke(app, [*words, "--", *REFERENCE])
    as_json = CliRunner().invoke(app, [*words, "--json", "--", *REFERENCE])

    assert (text.exit_code, as_json.exit_code) == (1, 1)
    assert "not declared: conformance.crash" in text.output
    lines = [json.loads(line) for line in as_json.stdout.splitlines()]
    verdicts = {each["duty"]: each["verdict"] for each in lines}
    assert verdicts == {"declares-lambdas": "fail", "runs-tasks": "pass"}


def test_the_command_refuses_a_duty_that_there_is_not() -> None:
    refused = CliRunner().invoke(app, ["conformance", "--duty", "runs-task", "--", "true"])

    assert refused.exit_code == 2
    assert "there is no duty 'runs-task'" in " ".join(refused.output.split()).replace("│ ", "")


def test_the_page_names_each_duty() -> None:
    page = (ROOT / "docs" / "workers.md").read_text()

    assert [name for name in NAMES if f"| `{name}` |" not in page] == []
