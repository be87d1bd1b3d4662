"""A run of all tests looks once more, alone, at the few that failed beside others, and at nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.failed_again import MOST, failed_tests

ROOT = Path(__file__).parents[2]
FAILED, INTERRUPTED, BROKEN = 1, 2, 3
TESTS = """
import pathlib

def test_fails_beside_others():
    seen = pathlib.Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first

def test_fails_while_it_is_broken():
    assert not pathlib.Path("broken").exists()
"""


def record(tmp_path, names):
    written = tmp_path / "lastfailed"
    written.write_text(json.dumps(dict.fromkeys(names, True)))
    return written


def test_a_few_failures_are_run_again(tmp_path):
    names = [f"tests/test_a.py::test_{number}" for number in range(MOST)]

    assert failed_tests(FAILED, record(tmp_path, names)) == names


@pytest.mark.parametrize(
    ("status", "names"),
    [
        (INTERRUPTED, ["tests/test_a.py::test_1"]),
        (BROKEN, ["tests/test_a.py::test_1"]),
        (FAILED, [f"tests/test_a.py::test_{number}" for number in range(MOST + 1)]),
        (FAILED, ["tests/test_a.py"]),
        (FAILED, []),
    ],
    ids=["tests were not run", "pytest broke", "many failed", "a file cannot be imported", "none is known"],
)
def test_other_verdicts_stand(tmp_path, status, names):
    assert failed_tests(status, record(tmp_path, names)) == []


@pytest.mark.parametrize("stop", ["-x", "-qx", "--exitfirst", "--maxfail=2"])
def test_a_run_that_stopped_early_is_not_called_passed(tmp_path, stop):
    one = record(tmp_path, ["tests/test_a.py::test_1"])

    assert failed_tests(FAILED, one, ["-n", "0", stop]) == []
    assert failed_tests(FAILED, one, ["-n", "0", "-k", "exitfirst", "--durations=9"]) != []


def test_no_record_changes_no_verdict(tmp_path):
    assert failed_tests(FAILED, tmp_path / "none") == []


@pytest.mark.parametrize("is_broken", [False, True])
def test_what_passes_alone_is_named_and_what_fails_again_fails_the_whole(tmp_path, is_broken):
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    if is_broken:
        (tmp_path / "broken").touch()

    def run(*arguments):
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    first = run("-m", "pytest", "-q", "-n", "0")
    again = run("-m", "scripts.failed_again", str(first.returncode))

    assert first.returncode == FAILED
    assert again.returncode == (FAILED if is_broken else 0)
    assert ("FLAKY test_some.py::test_fails_beside_others" in again.stdout) is not is_broken
