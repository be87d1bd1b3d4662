"""The demo's input: what it takes, what it leaves out and says so, and what it refuses."""

import hashlib
import os
import sysconfig
from pathlib import Path

import pytest

from duly_core.errors import DulyError
from duly_local.demo.files import Facts, find_input, identity_of, read_facts
from duly_local.demo.workload import fails_first, plan


def test_every_regular_file_is_taken_in_order(tmp_path: Path) -> None:
    (tmp_path / "b" / "deep").mkdir(parents=True)
    (tmp_path / "b" / "deep" / "file").write_bytes(b"123")
    (tmp_path / "a [x] ü\n").write_bytes(b"")

    found = find_input(tmp_path)

    assert [(file.path, file.size) for file in found.files] == [("a [x] ü\n", 0), ("b/deep/file", 3)]
    assert found.left_out == {}


def test_what_is_left_out_is_counted_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "folder-link").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).touch()

    found = find_input(tmp_path)

    assert [file.path for file in found.files] == ["file"]
    assert found.left_out == {
        "symbolic links": 2,
        "sockets, pipes and devices": 1,
        "files whose names are not UTF-8, which JSON cannot carry": 1,
    }
    assert "symbolic links (2)" in found.reasons


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "secret").touch(mode=0)

    assert find_input(tmp_path).left_out == {"files that cannot be read": 1}


def test_without_a_directory_it_is_the_standard_library_without_installed_packages() -> None:
    found = find_input(None)

    assert found.directory == Path(sysconfig.get_path("stdlib")).resolve()
    assert "json/__init__.py" in {file.path for file in found.files}
    assert not [file.path for file in found.files if file.path.startswith("site-packages/")]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing", "No such file or directory"),
        ("file", "Not a directory"),
        ("empty", "holds no file to index$"),
        ("links", r"holds no file to index; left out: symbolic links \(1\)"),
    ],
)
def test_what_cannot_be_indexed_is_refused_in_words(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "link").symlink_to("/")

    with pytest.raises(DulyError, match=words):
        find_input(tmp_path / name)


def test_lines_are_counted_as_wc_does(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"one\ntwo\r\n\nno end")

    assert read_facts(file) == Facts(hashlib.sha256(file.read_bytes()).hexdigest(), 16, 3)


def test_a_change_of_a_file_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    before = identity_of(file)

    file.write_text("behind it")

    assert identity_of(file) != before
    file.unlink()
    assert identity_of(file) is None


def test_the_workload_follows_from_the_paths_alone() -> None:
    paths = [f"package/module_{number}.py" for number in range(5_000)]

    planned = plan(paths)

    assert planned == plan(paths)
    assert {task.priority.name for task in planned} == {"HIGH", "NORMAL", "LOW"}
    delays = [task.delay.total_seconds() for task in planned if task.delay is not None]
    assert 0.08 < len(delays) / len(planned) < 0.12
    assert 1 <= min(delays) < max(delays) <= 10
    assert 0.005 < sum(task.fails_first for task in planned) / len(planned) < 0.015
    assert [task.fails_first for task in planned] == [fails_first(path) for path in paths]
