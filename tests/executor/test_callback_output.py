"""What a callback prints, as lines: complete ones at once, begun ones when it asks or ends."""

import os

import pytest

from duly_executor.callback import output
from duly_wire.v1 import hsc_pb2


@pytest.fixture
def lines():
    """Write with `lines.write`, read what came out with `lines()`."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    class Lines(output._Lines):
        def __call__(self):
            try:
                return os.read(reading, 2**20).decode()
            except BlockingIOError:
                return ""

    task = hsc_pb2.ClaimedTask(**{"lambda": "mail.send"})
    task.claim.task_id = bytes(16)
    speaker = output.Speaker(task)
    output.begin(speaker)
    yield Lines(writing)
    output.end(speaker)
    os.close(reading)
    os.close(writing)


def test_a_line_that_is_not_complete_comes_out_when_it_is_flushed(lines):
    lines.write(b"about to call C")
    before = lines()
    lines.flush()

    assert before == ""
    assert lines().endswith("] about to call C\n")


def test_many_small_writes_become_one_line(lines):
    for _ in range(1_000):
        lines.write(b".")
    lines.write(b"\nnext")

    assert lines().count("\n") == 1


def test_control_characters_cannot_draw_over_the_head_of_a_line(lines):
    lines.write(b"true\r[other.lambda] forged \x1b[2J\n")

    text = lines()

    assert "\r" not in text
    assert "\x1b" not in text
    assert r"true\x0d[other.lambda] forged \x1b[2J" in text
