"""The slot board: what one process writes, another reads, and no reader sees a record that is half written."""

import fcntl
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from duly_core.host.slot_board import RunningTask, SlotBoard, SlotWriter
from duly_core.process.clock import since_boot_ns

TASK, OTHER = b"t" * 16, b"o" * 16
START = 1_234_567


@pytest.fixture
def board() -> Iterator[SlotBoard]:
    made = SlotBoard.create(processes=2, slots=3)
    yield made
    os.close(made.descriptor)


def writer(board: SlotBoard, process: int) -> SlotWriter:
    return SlotWriter(board.descriptor, process, board.slots)


def test_a_new_board_is_empty(board: SlotBoard) -> None:
    assert list(board.running()) == []
    assert [board.starts(process) for process in range(2)] == [0, 0]


def test_each_slot_has_a_place_of_its_own(board: SlotBoard) -> None:
    written = [
        RunningTask(process, slot, bytes([process, slot]) * 8, 1 + process * 3 + slot)
        for process in range(2)
        for slot in range(3)
    ]

    for running in written:
        writer(board, running.process).started(running.slot, running.task_id, running.started_boot_ns)

    assert list(board.running()) == written
    assert list(board.running(1)) == written[3:]


def test_a_slot_whose_callback_ended_is_free_and_its_start_counts(board: SlotBoard) -> None:
    ours = writer(board, 0)
    ours.started(0, TASK, START)
    ours.started(1, OTHER, START)

    ours.ended(0)

    assert [running.task_id for running in board.running()] == [OTHER]
    assert board.starts(0) == 2


def test_a_process_that_is_gone_leaves_nothing(board: SlotBoard) -> None:
    for process in range(2):
        writer(board, process).started(0, TASK, START)

    board.clear(0)

    assert [running.process for running in board.running()] == [1]
    assert [board.starts(process) for process in range(2)] == [0, 1]


def test_a_task_id_without_a_start_is_not_seen(board: SlotBoard) -> None:
    ours = writer(board, 0)
    ours.started(0, TASK, START)

    ours.started(0, OTHER, 0)  # as far as a writer has come before its last step

    assert list(board.running()) == []


def test_a_reader_never_sees_the_start_of_one_task_with_the_id_of_another(board: SlotBoard) -> None:
    source = """
import itertools, sys
from duly_core.host.slot_board import SlotWriter
writer = SlotWriter(int(sys.argv[1]), 0, 3)
for number in itertools.count(1):
    writer.started(0, number.to_bytes(16), number)
    writer.ended(0)
"""
    command = [sys.executable, "-c", source, str(board.descriptor)]
    process = subprocess.Popen(command, pass_fds=[board.descriptor])
    try:
        seen: list[RunningTask] = []
        looks = 0
        while looks < 100_000 or not seen:
            seen += board.running(0)
            looks += 1
    finally:
        process.kill()
        process.wait()

    assert [running for running in seen if int.from_bytes(running.task_id) != running.started_boot_ns] == []


def test_whatever_a_process_writes_is_read_without_an_error(board: SlotBoard) -> None:
    for noise in (b"\xff", b"\x7f", b"\x80", b"\x00\x01"):
        os.pwrite(board.descriptor, noise * (2 * mmap.PAGESIZE // len(noise)), 0)

        starts = [running.started_boot_ns for running in board.running()]

        assert len(starts) == 6
        assert all(1 <= start <= since_boot_ns() for start in starts)
        assert isinstance(board.starts(0), int)


def test_a_board_without_a_name_keeps_its_size(board: SlotBoard) -> None:
    for size in (0, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(board.descriptor, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(board.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


def test_a_board_that_was_truncated_is_empty_and_gets_its_room_again(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "board", os.O_RDWR | os.O_CREAT)
    board = SlotBoard.create(2, 3, descriptor)
    writer(board, 1).started(0, TASK, START)

    os.ftruncate(descriptor, 3)

    assert list(board.running()) == []
    assert board.starts(1) == 0
    board.clear(0)
    board.make_room()
    writer(board, 1).started(0, TASK, START)
    assert list(board.running()) == [RunningTask(1, 0, TASK, START)]
    os.close(descriptor)


def test_a_writer_keeps_no_descriptor_and_reaches_no_other_part(board: SlotBoard) -> None:
    before = list(Path("/proc/self/fd").iterdir())
    ours = writer(board, 0)

    for slot in range(3):
        ours.started(slot, TASK, START)

    assert len(list(Path("/proc/self/fd").iterdir())) == len(before)
    assert list(board.running(1)) == []
    with pytest.raises(IndexError):
        ours.started(3, TASK, START)


def test_a_slot_that_was_read_while_it_was_written_is_passed_over(
    board: SlotBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer(board, 0).started(0, OTHER, START + 1)
    true = os.pread(board.descriptor, 96, 0)
    for half in (START.to_bytes(8, "little") + true[8:], true[:8] + TASK + true[24:]):
        reads = iter([half, true])
        monkeypatch.setattr("os.pread", lambda *_, reads=reads: next(reads))

        assert list(board.running(0)) == []


@pytest.mark.parametrize(("processes", "slots"), [(0, 1), (1, 0), (-1, -1), (4_097, 1), (1, 4_097)])
def test_a_board_of_a_shape_that_cannot_be_is_refused(processes: int, slots: int) -> None:
    with pytest.raises(ValueError, match=r"no slot board"):
        SlotBoard(0, processes, slots)
