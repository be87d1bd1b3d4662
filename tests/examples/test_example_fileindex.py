"""The example that `duly demo` runs: what it finds, and that clients cannot lead it out of its root."""

import hashlib
from pathlib import Path

import pytest

import duly
import fileindex
from duly import testing


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    monkeypatch.setattr(fileindex, "_root", folder)
    return folder


def index(path: str) -> testing.TestRun:
    return testing.run(fileindex.app, "fileindex.index", {"path": path})


def test_the_facts_of_a_file_are_the_result(root: Path) -> None:
    content = b"line\n" * 200_000 + b"no end"
    (root / "file").write_bytes(content)

    attempt = index("file")

    digest = hashlib.sha256(content).hexdigest()
    assert attempt.result == {"sha256": digest, "size": len(content), "lines": 200_000}


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "link", "folder/../../secret", "folder-link/secret"]
)
def test_a_path_that_leads_out_of_the_root_is_refused(root: Path, path: str) -> None:
    (root.parent / "secret").touch()
    (root / "folder").mkdir()
    (root / "link").symlink_to("../secret")
    (root / "folder-link").symlink_to(root.parent)

    attempt = index(path)

    assert attempt.outcome is duly.Outcome.FATAL_FAILURE
    assert attempt.failure_message == f"{path} is not below the root"


@pytest.mark.parametrize(("path", "words"), [("missing", "No such file"), (".", "Is a directory")])
def test_what_is_no_file_is_not_tried_again(root: Path, path: str, words: str) -> None:
    attempt = index(path)

    assert attempt.outcome is duly.Outcome.FATAL_FAILURE
    assert words in attempt.failure_message
