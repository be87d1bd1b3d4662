"""The slot board: what one process writes, another reads, and no reader sees a record that is half written."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from duly_core.slot_board import RunningTask, SlotBoard

TASK, OTHER = b"t" * 16, b"o" * 16
START = 0x0123_4567_89AB_CDEF


@pytest.fixture
def board() -> SlotBoard:
    return SlotBoard.create(processes=2, slots=3)


def test_a_new_board_is_empty(board: SlotBoard) -> None:
    assert (board.processes, board.slots) == (2, 3)
    assert list(board.running()) == []
    assert board.pids() == []


def test_two_mappings_see_each_other(board: SlotBoard) -> None:
    other = SlotBoard(board.descriptor)

    board.started(1, 2, TASK, START)
    board.set_pid(1, 4711)

    assert (other.processes, other.slots) == (2, 3)
    assert list(other.running()) == [RunningTask(1, 2, TASK, START)]
    assert other.pids() == [4711]


def test_each_slot_has_a_place_of_its_own(board: SlotBoard) -> None:
    written = [
        RunningTask(process, slot, bytes([process, slot]) * 8, 1 + process * 3 + slot)
        for process in range(2)
        for slot in range(3)
    ]

    for running in written:
        board.started(running.process, running.slot, running.task_id, running.started_boot_ns)
    board.set_pid(0, 1)
    board.set_pid(1, 2)

    assert list(board.running()) == written
    assert list(board.running(1)) == written[3:]
    assert board.pids() == [1, 2]


def test_a_slot_whose_callback_ended_is_free(board: SlotBoard) -> None:
    board.started(0, 0, TASK, START)
    board.started(0, 1, OTHER, START)

    board.ended(0, 0)

    assert [running.task_id for running in board.running()] == [OTHER]


def test_a_process_that_is_gone_leaves_nothing(board: SlotBoard) -> None:
    board.set_pid(0, 1)
    board.set_pid(1, 2)
    for process in range(2):
        board.started(process, 0, TASK, START)

    board.clear(0)

    assert [running.process for running in board.running()] == [1]
    assert board.pids() == [2]


def test_a_task_id_without_a_start_is_not_seen(board: SlotBoard) -> None:
    board.started(0, 0, TASK, START)

    board.started(0, 0, OTHER, 0)  # as far as a writer has come before its last step

    assert list(board.running()) == []


def test_a_reader_never_sees_the_start_of_one_task_with_the_id_of_another(board: SlotBoard) -> None:
    writer = """
import itertools, sys
from duly_core.slot_board import SlotBoard
board = SlotBoard(int(sys.argv[1]))
for number in itertools.count(1 << 40):
    board.started(0, 0, number.to_bytes(16), number)
    board.ended(0, 0)
"""
    command = [sys.executable, "-c", writer, str(board.descriptor)]
    process = subprocess.Popen(command, pass_fds=[board.descriptor])
    try:
        seen: list[RunningTask] = []
        looks = 0
        while looks < 300_000 or not seen:
            seen += board.running(0)
            looks += 1
    finally:
        process.kill()
        process.wait()

    assert [running for running in seen if int.from_bytes(running.task_id) != running.started_boot_ns] == []


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x01", id="shorter than a header"),
        pytest.param(struct.pack("<ii", 2, 3), id="shorter than its shape"),
        pytest.param(struct.pack("<ii", -1, -1) + bytes(4096), id="negative"),
        pytest.param(bytes(4096), id="of no slots"),
        pytest.param(b"\xff" * 4096, id="noise"),
        pytest.param(b"", id="empty"),
    ],
)
def test_memory_that_is_no_board_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "memory").write_bytes(content)
    descriptor = os.open(tmp_path / "memory", os.O_RDWR)

    with pytest.raises(ValueError, match=r"not a slot board|empty"):
        SlotBoard(descriptor)

    os.close(descriptor)


def test_a_board_that_is_let_go_of_lives_on_in_other_mappings(board: SlotBoard) -> None:
    other = SlotBoard(board.descriptor)
    board.started(0, 0, TASK, START)

    board.close()

    assert [running.task_id for running in other.running()] == [TASK]
