"""The demo's input: what it takes, and what it leaves out."""

import hashlib
import os
from pathlib import Path

from fileindex.demo.files import facts_of, files_below, standard_library


def test_regular_files_are_taken_in_order_and_all_else_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "b" / "deep").mkdir(parents=True)
    (tmp_path / "b" / "deep" / "file").write_bytes(b"123")
    (tmp_path / "a [x] ü\n").write_bytes(b"")
    (tmp_path / "link").symlink_to("b/deep/file")
    (tmp_path / "folder-link").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).touch()

    found = dict(files_below(tmp_path))

    assert list(found) == ["a [x] ü\n", "b/deep/file"]
    assert found["b/deep/file"]["size"] == 3


def test_of_the_standard_library_installed_packages_and_caches_are_left_out() -> None:
    folder = standard_library()

    assert (folder / "json" / "__init__.py").is_file()
    assert not [
        path for path, _ in files_below(folder / "json") if path.endswith(".pyc") or "-packages" in path
    ]


def test_lines_are_counted_as_wc_does(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"one\ntwo\r\n\nno end")

    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert facts_of(file) == {"sha256": digest, "size": 16, "lines": 3}
