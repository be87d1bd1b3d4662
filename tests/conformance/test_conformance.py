"""The conformance suite passes workers that keep their duties, and notices each duty that one breaks."""

import json
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from duly_cli.__main__ import app
from duly_local.conformance.duties import DUTIES
from duly_local.conformance.runner import run
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


def judged(command: tuple[str, ...], *only: str, lease: float = 4) -> dict[str, str]:
    """What came of each duty; a reason behind what is no pass."""
    found = run(
        command,
        listen="127.0.0.1:0",
        lease=timedelta(seconds=lease),
        patience=timedelta(seconds=15),
        only=only,
    )
    return {each.duty.name: each.verdict + (f": {each.reason}" if each.reason else "") for each in found}


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


@long
@pytest.mark.parametrize(
    "command",
    [
        (*WORKER, "examples.conformance.callbacks:app"),
        pytest.param(
            (
                *WORKER,
                "--exec",
                "examples/conformance/handler.sh",
                *(word for name in LAMBDAS for word in ("--lambda", name)),
            ),
            marks=pytest.mark.skipif(not shutil.which("jq"), reason="the shell program needs jq: install jq"),
        ),
        REFERENCE,
    ],
    ids=["python", "program", "reference"],
)
def test_whole_workers_keep_every_duty(command: tuple[str, ...]) -> None:
    assert judged(command, lease=8) == dict.fromkeys(NAMES, "pass")


@long
@pytest.mark.skipif(not shutil.which("npm"), reason="needs node and npm: install nodejs and npm")
def test_the_worker_in_javascript_keeps_every_duty(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    shutil.copytree(ROOT / "examples" / "workers" / "node", folder)
    installed = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    if installed.returncode:
        pytest.skip("npm cannot install @grpc/grpc-js: there may be no registry to reach")

    found = judged(("node", str(folder / "conformance.mjs"), str(ROOT / "proto")), lease=8)

    assert found == dict.fromkeys(NAMES, "pass")


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
