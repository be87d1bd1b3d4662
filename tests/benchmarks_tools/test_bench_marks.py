"""Starts that callbacks note are all read back, whichever thread or process noted them."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks import marks


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(marks.FOLDER, str(tmp_path))
    monkeypatch.setattr(marks, "_writer", None)
    yield tmp_path
    marks._forget()


def test_what_many_threads_note_at_once_is_read_back_once_each(folder: Path) -> None:
    noted = marks.Marks(folder)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(marks.mark, (marks.payload_of(number) for number in range(5_000))))
    noted.look()

    assert sorted(noted.starts) == list(range(5_000))
    assert noted.notes == 5_000


def test_what_is_noted_later_is_read_by_the_next_look_alone(folder: Path) -> None:
    noted = marks.Marks(folder)
    marks.mark(marks.payload_of(1))
    noted.look()

    marks.mark(marks.payload_of(2).decode())
    noted.look()

    assert {number: len(starts) for number, starts in noted.starts.items()} == {1: 1, 2: 1}


def test_a_task_that_starts_twice_has_two_starts(folder: Path) -> None:
    noted = marks.Marks(folder)

    marks.mark(marks.payload_of(7))
    marks.mark(marks.payload_of(7))
    noted.look()

    first, second = noted.starts[7]
    assert first <= second


def test_each_process_writes_a_file_of_its_own(folder: Path) -> None:
    noted = marks.Marks(folder)
    marks.mark(marks.payload_of(0))

    marks._forget()
    (folder / f"marks-{os.getpid()}").rename(folder / "marks-another")
    marks.mark(marks.payload_of(1))
    noted.look()

    assert noted.processes == 2
    assert sorted(noted.starts) == [0, 1]


@pytest.mark.parametrize("size", [100, 1024, 256 * 1024])
def test_a_payload_has_the_size_that_was_asked_for(size: int) -> None:
    assert len(marks.payload_of(123, size)) == size
