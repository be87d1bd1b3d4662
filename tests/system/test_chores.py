"""A chore from its folder to its results: `duly chores` against a whole stack, and a worker that leaves nothing behind."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from tests.fixtures.documents import blocks
from tests.fixtures.forked_process import ROOT, clean_environment
from tests.fixtures.waiting import wait_until
from tests.fixtures.whole_stack import WholeStack

LONG = timedelta(seconds=60)

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,  # a stack of its own; tests/chores and tests/command_lambdas have its parts
    pytest.mark.timeout(240),
]


class Chores(WholeStack):
    program = ("duly_cli", "up", "--free-ports")


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Chores]:
    (tmp_path / "runs").mkdir()
    file = f'folder = "{tmp_path}/runs"\n[lambdas."chores/bash"]\nshell = "bash"\nmax_attempts = 1\n'
    (tmp_path / "commands.toml").write_text(file)
    started = Chores(
        tmp_path,
        *("--commands", f"{tmp_path}/commands.toml", "--data", f"{tmp_path}/data"),
        DULY_TOKEN="s3cret",
        AWS_SECRET_ACCESS_KEY="s3cret",
    )
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def run_duly(stack: Chores) -> Callable[..., str]:
    environment = clean_environment() | {"DULY_ADDRESS": stack.frontend()}

    def run(*arguments: str, cwd: Path = ROOT) -> str:
        command = [sys.executable, "-m", "duly_cli", *arguments]
        return subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, check=True, timeout=90
        ).stdout

    return run


def test_the_first_seeds_chore_runs_word_for_word(
    stack: Chores, run_duly: Callable[..., str], tmp_path: Path
) -> None:
    chore = tmp_path / "chore_ip-1-2-3-4_ps-349467_20151022-110109-123456"
    chore.mkdir()
    (chore / "chore.json").write_text(blocks("chores.md", "json")[0])
    (chore / "do_it.txt").touch()

    task_id = run_duly("chore", "submit", str(chore), "--wait").split()[0]
    saved = run_duly("chore", "fetch", task_id, "-o", str(tmp_path / "results")).splitlines()

    assert {Path(each).name for each in saved} == {"output.txt", "error.txt", "worker.json"}
    assert "ps -aux" in (tmp_path / "results" / "output.txt").read_text()
    assert (tmp_path / "results" / "error.txt").read_text() == ""
    assert json.loads((tmp_path / "results" / "worker.json").read_text())["state"] == "done"
    assert run_duly("chore", "submit", str(chore)).split() == [task_id]  # the same chore_id


def test_a_chore_brings_files_takes_files_and_is_cancelled(
    stack: Chores, run_duly: Callable[..., str], tmp_path: Path
) -> None:
    chore = tmp_path / "chore"
    chore.mkdir()
    said = {"runner": "bash", "command": "env; mkdir out; tr a-z A-Z < word > out/big", "outputs": ["out/*"]}
    (chore / "chore.json").write_text(json.dumps(said))
    (chore / "word").write_text("word")

    task_id = run_duly("chore", "submit", str(chore), "--wait").split()[0]
    run_duly("chore", "fetch", task_id, cwd=tmp_path)  # into a folder of its own: a worker chooses the names

    assert (tmp_path / task_id / "out" / "big").read_text() == "WORD"
    assert "s3cret" not in (tmp_path / task_id / "stdout.txt").read_text()
    with duly.Client(stack.frontend()) as client:
        begun = tmp_path / "begun"
        script = f"trap 'echo bye; exit' TERM; touch {begun}; while :; do sleep 0.1; done"
        task = client.schedule("chores/bash", {"script": script})
        wait_until(begun.exists)
        client.cancel(task)
        assert client.wait(task, LONG).status is duly.TaskStatus.CANCELLED
        wait_until(lambda: b"bye\n" in b"".join(each.data for each in client.output(task)))
        kept = {each.role.name: client.read_attachment(each.attachment) for each in client.attachments(task)}
    assert kept["STDOUT"] == b"bye\n"
    assert [*(tmp_path / "runs").iterdir()] == []
