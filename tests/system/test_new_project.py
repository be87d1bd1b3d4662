"""What `duly init` makes works: its tests pass, its types check, and `duly up` serves it."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from tests.fixtures.forked_process import clean_environment
from tests.fixtures.whole_stack import WholeStack

# long: a stack and a Postgres of its own, and mypy without a cache
pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(400)]


class ProjectStack(WholeStack):
    """`duly up` of the project."""

    program = ("duly_cli", "up", "mail_sender.app:app", "--free-ports")


def run_in(folder: Path, *words: str) -> str:
    """Run a module as the project's developer does; return what it says."""
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("projects")
    run_in(folder, "duly_cli", "init", "mail-sender")
    return folder / "mail-sender"


@pytest.fixture
def stack(project: Path, tmp_path: Path) -> Iterator[WholeStack]:
    started = ProjectStack(tmp_path, "--data", str(tmp_path / "data"), cwd=project)
    yield started
    started.stop()


def test_its_tests_pass(project: Path) -> None:
    assert "3 passed" in run_in(project, "pytest", "-q", "-p", "no:cacheprovider")


def test_its_types_check(project: Path) -> None:
    assert "no issues found in 3 source files" in run_in(project, "mypy")


def test_its_lambda_runs_once_without_a_server(project: Path) -> None:
    said = run_in(project, "duly_cli", "run", "mail_sender.app:app", "mail_sender.greet", '{"name": "Ada"}')

    assert "Hello, Ada!" in said


def test_duly_up_serves_it(stack: WholeStack) -> None:
    with duly.Client(stack.frontend()) as client:
        task = client.schedule("mail_sender.greet", {"name": "Ada"})

        assert client.wait(task, timedelta(seconds=60)).result == "Hello, Ada! This is attempt 1."
