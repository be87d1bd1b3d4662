"""A folder with chore.json becomes a task, and what it left is saved where it was asked for, and nowhere else."""

import json
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.chores import ChoreError, new_task, place_in
from duly.command_lambdas.request import read_request
from tests.command_lambdas.allowed import command_lambda
from tests.fixtures.documents import blocks


def write(folder: Path, said: Any, *files: str) -> Path:
    folder.joinpath("chore.json").write_text(said if isinstance(said, str) else json.dumps(said))
    for each in files:
        folder.joinpath(each).write_text(each)
    return folder


def test_the_first_chore_is_a_task_for_bash(tmp_path: Path) -> None:
    chore = write(tmp_path, blocks("chores.md", "json")[0], "do_it.txt")

    task = new_task(chore)

    assert task.lambda_name == "chores/bash"
    assert task.payload == {"script": "ps -aux", "stdout": "output.txt", "stderr": "error.txt"}
    assert task.idempotency_key == "ip-1-2-3-4_ps-349467_20151022-110109-123456"
    read_request(command_lambda(shell="/bin/bash"), task.payload)  # noqa: S604 (it is no subprocess)


def test_a_chore_has_its_files_and_says_what_it_needs(tmp_path: Path) -> None:
    said = {
        "argv": ["convert", "a.png"],
        "stdin": "in.txt",
        "outputs": ["*.jpg"],
        "environment": {"LANG": "C"},
        "requires": ["gpu"],
        "priority": "high",
    }
    chore = write(tmp_path, said, "a.png", "in.txt", "stdout.txt", "worker.json", "done.txt", ".hidden")

    task = new_task(chore)

    assert (task.lambda_name, task.requires, task.priority) == ("chores/run", ("gpu",), duly.Priority.HIGH)
    assert [each.name for each in task.payload["inputs"]] == ["a.png"]
    assert task.payload["stdin"].read() == b"in.txt"
    assert task.payload["outputs"] == ["*.jpg"]
    allowed = command_lambda(programs={"convert": "/bin/convert"}, settable=frozenset({"LANG"}))
    assert read_request(allowed, task.payload).argv == ("convert", "a.png")


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("{", "is not JSON"),
        ("[]", "must have an object"),
        ({}, 'needs a "command" for its runner, or an "argv"'),
        ({"command": "ps"}, 'needs a "runner" that runs it'),
        ({"command": "ps", "argv": ["ps"]}, "one of the two"),
        ({"command": "ps", "runner": 1}, '"runner" must be a text'),
        ({"command": "ps", "runner": "bash", "reslut": "a"}, "has a field 'reslut' that no chore has"),
        ({"command": "ps", "runner": "bash", "result": "../a"}, '"result" has a "/"'),
        ({"command": "ps", "runner": "bash", "error": "chore.json"}, "says something of the chore"),
        ({"argv": ["ps"], "stdin": "none"}, '"stdin" names no file'),
        ({"argv": ["ps"], "requires": "gpu"}, '"requires" must be a list'),
        ({"argv": ["ps"], "priority": "soon"}, '"priority" is one of'),
    ],
)
def test_a_folder_that_is_no_chore_is_refused(tmp_path: Path, said: Any, problem: str) -> None:
    with pytest.raises(ChoreError) as refused:
        new_task(write(tmp_path, said))

    assert problem in str(refused.value)


def test_a_folder_without_the_file_is_told_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(ChoreError, match=r'chore.json is not there: write .*"runner"'):
        new_task(tmp_path)


def test_links_are_followed_only_if_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "chore").mkdir()
    (tmp_path / "annexed").write_text("large")
    chore = write(tmp_path / "chore", {"argv": ["ps"]})
    (chore / "media").symlink_to(tmp_path / "annexed")

    with pytest.raises(ChoreError, match="media is a link: --follow-links"):
        new_task(chore)

    (media,) = new_task(chore, follow_links=True).payload["inputs"]
    assert (media.name, media.read()) == ("media", b"large")


def test_a_folder_in_a_chore_is_refused(tmp_path: Path) -> None:
    chore = write(tmp_path, {"argv": ["ps"]})
    (chore / "bin").mkdir()

    with pytest.raises(ChoreError, match=r"bin is a folder.*: pack it into an archive"):
        new_task(chore)


@pytest.mark.parametrize(
    "path",
    ["../x", "/etc/x", "a/../x", "", "a//x", ".", "a/./x", "x/", "link", "link/x", "folder", "a\0b", "a\\b"],
)
def test_what_a_worker_left_is_saved_in_the_folder_or_not_at_all(tmp_path: Path, path: str) -> None:
    target = tmp_path / "target"
    (target / "folder").mkdir(parents=True)
    (target / "link").symlink_to(tmp_path)

    with pytest.raises(ChoreError):
        place_in(target, path)

    assert place_in(target, "new/a.txt") == target / "new" / "a.txt"
