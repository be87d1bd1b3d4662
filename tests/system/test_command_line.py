"""The command line as people and scripts use it, against `duly up`."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from duly_cli.__main__ import app
from tests.fixtures.documents import python_blocks
from tests.fixtures.forked_process import clean_environment
from tests.fixtures.programs import is_alive
from tests.fixtures.waiting import wait_until
from tests.fixtures.whole_stack import WholeStack

NOBODY = "127.0.0.1:1"

# long: a stack of its own; tests/tasks, tests/cli and tests/lambdas run the commands against a Frontend in this process
pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(240)]

Duly = Callable[..., Result]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeStack]:
    folder = tmp_path_factory.mktemp("stack")
    started = WholeStack(folder, "--data", str(folder / "data"))
    try:
        started.frontend()
        yield started
    finally:
        started.stop()


@pytest.fixture
def run(stack: WholeStack) -> Duly:
    """Run a command against the stack; what is said on stdout and stderr, and the exit code."""

    def invoke(*arguments: str, **environment: str) -> Result:
        settings = {"DULY_ADDRESS": stack.frontend(), "COLUMNS": "200", **environment}
        return CliRunner().invoke(app, list(arguments), env=settings)

    return invoke


def scheduled(run: Duly, *arguments: str) -> str:
    """The id of a new task."""
    result = run("schedule", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_schedule_prints_the_id_and_get_shows_what_became_of_it(run: Duly) -> None:
    task_id = scheduled(run, "test.echo", '{"answer": 42}', "--priority", "high")

    waited = run("wait", task_id, "--json")
    got = run("get", task_id)

    task = json.loads(waited.stdout)
    assert (task["task_id"], task["status"], task["priority"]) == (task_id, "success", "high")
    assert task["result"] == {"answer": 42}
    assert "success" in got.stdout


def test_schedule_waits_for_the_end_if_it_is_told_to(run: Duly) -> None:
    result = run("schedule", "test.echo", '"hello"', "--wait")

    assert result.exit_code == 0
    assert "hello" in result.stdout


def test_wait_fails_if_the_task_did(run: Duly) -> None:
    task_id = scheduled(run, "test.misbehave", '"fatal"')

    result = run("wait", task_id)

    assert result.exit_code == 1
    assert "never again" in result.stdout


def test_wait_says_when_its_time_is_over(run: Duly) -> None:
    task_id = scheduled(run, "test.echo", "--delay", "1h")

    result = run("wait", task_id, "--timeout", "50ms")

    assert result.exit_code == 1
    assert task_id in result.stderr


def test_list_filters_and_writes_json_lines(run: Duly) -> None:
    task_id = scheduled(run, "test.echo", "--collection", "spring", "--delay", "1h")

    table = run("list", "--collection", "spring")
    lines = run("list", "--collection", "spring", "--status", "new", "--json")

    assert task_id in table.stdout
    assert [json.loads(line)["task_id"] for line in lines.stdout.splitlines()] == [task_id]
    assert "no tasks match" in run("list", "--collection", "autumn").stdout


def test_cancel_says_what_became_of_each(run: Duly) -> None:
    waiting, done = scheduled(run, "test.echo", "--delay", "1h"), scheduled(run, "test.echo")
    run("wait", done)

    result = run("cancel", waiting, done)

    assert result.exit_code == 1
    assert f"{waiting}: cancelled" in result.stdout
    assert done in result.stderr


def test_lambdas_are_listed_with_their_policies(run: Duly) -> None:
    listed = run("lambdas").stdout

    (line,) = (line for line in listed.splitlines() if line.startswith("test.brief "))
    assert "300ms" in line


def test_health_answers_with_its_exit_code(run: Duly, stack: WholeStack) -> None:
    serving = run("health", stack.frontend())
    nobody = run("health", NOBODY, "--timeout", "1s")

    assert (serving.exit_code, serving.stdout.strip()) == (0, f"{stack.frontend()}: SERVING")
    assert nobody.exit_code == 1
    assert "does not answer: nothing listens there" in nobody.stderr


def test_config_shows_every_setting_and_who_set_it(run: Duly) -> None:
    result = run("config", DULY_EXECUTOR_SLOTS="3", DULY_STORE_DSN="postgresql://ann:hunter2@db/duly")

    assert result.exit_code == 0
    (slots,) = (line for line in result.stdout.splitlines() if "DULY_EXECUTOR_SLOTS" in line)
    assert slots.split()[1:3] == ["3", "environment"]
    assert "hunter2" not in result.stdout


def test_without_a_frontend_the_way_to_one_is_named(run: Duly) -> None:
    result = run("schedule", "test.echo", "--address", NOBODY)

    assert result.exit_code == 69
    assert f"no Duly Frontend answers at {NOBODY}: start one with `duly up`" in result.stderr


def test_a_settings_file_that_cannot_be_used_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "duly.toml").write_text('[fronted]\nlisten = "127.0.0.1:0"\n')
    stack = WholeStack(tmp_path, "--data", str(tmp_path / "data"), DULY_CONFIG=str(tmp_path / "duly.toml"))

    assert stack.process.wait(60) == os.EX_CONFIG

    assert stack.output.splitlines()[-1].endswith("there is no section [fronted]; do you mean [frontend]?")
    assert not (tmp_path / "data").exists()


def test_a_second_stack_on_the_same_data_is_refused(
    stack: WholeStack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = next(argument for argument in stack.process.args if argument.endswith("/data"))
    second = WholeStack(tmp_path_factory.mktemp("second"), "--data", data)

    assert second.process.wait(60) == os.EX_CONFIG

    assert "Traceback" not in second.output
    assert data in second.output.splitlines()[-1]
    assert stack.process.poll() is None


def test_a_second_worker_joins_by_the_line_that_up_prints_and_serves_the_client_of_the_documents(
    run: Duly, stack: WholeStack, tmp_path: Path
) -> None:
    shop, *blocks = python_blocks("lambdas.md")
    client = next(block for block in blocks if "with duly.Client() as client" in block)
    (tmp_path / "shop.py").write_text(shop, encoding="utf-8")
    line = wait_until(lambda: re.search(r"to add a worker: (.*)", stack.output))[1]
    environment = clean_environment()
    environment |= {"PATH": f"{Path(sys.executable).parent}:{environment['PATH']}"}
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(
            ["sh", "-c", line.replace("MODULE:APP", "shop:app")],
            cwd=tmp_path,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_until(lambda: "order.price" in run("lambdas").stdout)
        done = subprocess.run(
            [sys.executable, "-c", client],
            env=environment | {"DULY_ADDRESS": stack.frontend()},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.killpg(worker.pid, signal.SIGTERM)
        worker.wait(25)

    assert (done.stdout, done.stderr) == ("22\n", ""), (tmp_path / "log").read_text()
    wait_until(lambda: not group_lives(worker.pid))


def group_lives(leader: int) -> bool:
    """Whether any process of the leader's group is left: the shell may have made room for the command, or not."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    return True


def test_ctrl_c_leaves_no_process(run: Duly, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("short")
    stack = WholeStack(folder, "--data", str(folder / "data"))
    try:
        stack.frontend()
        processes = stack.processes()
        assert len(processes) > 10
    finally:
        exit_code = stack.stop(signal.SIGINT)

    assert exit_code == 0

    def all_are_gone() -> bool:
        return not any(is_alive(pid) for pid in processes)

    wait_until(all_are_gone, timedelta(seconds=5))
