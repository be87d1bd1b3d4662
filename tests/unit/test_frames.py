"""The frames between an Executor and its callback processes."""

import io

import pytest

from duly.v1 import callback_pb2
from duly_executor import frames


def order(*task_ids: bytes) -> callback_pb2.CallbackOrder:
    return callback_pb2.CallbackOrder(cancel=task_ids)


@pytest.mark.parametrize("size", [0, 1, 255, 70_000, 3_000_000])
def test_what_is_written_is_read_again(size: int) -> None:
    stream = io.BytesIO(frames.write(order(b"x" * size)))

    assert frames.read(stream, callback_pb2.CallbackOrder) == order(b"x" * size)


def test_an_empty_message_is_a_frame_too() -> None:
    stream = io.BytesIO(frames.write(callback_pb2.CallbackOrder()))

    assert frames.read(stream, callback_pb2.CallbackOrder) == callback_pb2.CallbackOrder()
    assert frames.read(stream, callback_pb2.CallbackOrder) is None


def test_frames_follow_each_other_without_a_gap() -> None:
    sent = [order(), order(b"a"), order(b"b", b"c")]
    stream = io.BytesIO(b"".join(frames.write(each) for each in sent))

    read = [frames.read(stream, callback_pb2.CallbackOrder) for _ in range(4)]

    assert read == [*sent, None]


@pytest.mark.parametrize("kept", range(len(frames.write(order(b"abc")))))
def test_a_frame_that_breaks_off_is_the_end(kept: int) -> None:
    stream = io.BytesIO(frames.write(order(b"abc"))[:kept])

    assert frames.read(stream, callback_pb2.CallbackOrder) is None
