"""The frames between an Executor and its callback processes."""

import io

import pytest
from google.protobuf.message import DecodeError

from duly_executor.callback.report_sender import parts
from duly_executor.processes import frames
from duly_wire.v1 import callback_pb2, hsc_pb2


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


def test_a_frame_that_is_too_long_is_none_and_is_not_waited_for() -> None:
    stream = io.BytesIO(frames.LENGTH.pack(frames.MOST_BYTES + 1))

    with pytest.raises(DecodeError):
        frames.read(stream, callback_pb2.CallbackOrder)


def test_many_large_results_go_in_several_frames_in_their_order() -> None:
    results = [
        hsc_pb2.TaskResult(result=bytes(1024 * 1024), failure_message=str(number)) for number in range(100)
    ]
    rest = callback_pb2.SerializedReport(unstarted=[b"id"], recalled=True)

    frames_sent = list(parts([result.SerializeToString() for result in results], rest))

    sent = [callback_pb2.CallbackReport.FromString(part.SerializeToString()) for part in frames_sent]
    assert [result.failure_message for part in sent for result in part.results] == [
        str(n) for n in range(100)
    ]
    assert all(part.ByteSize() <= frames.FULL_BYTES + 1024 for part in sent)
    assert [part.recalled for part in sent] == [False] * (len(sent) - 1) + [True]
    assert list(sent[-1].unstarted) == [b"id"]


def test_a_report_without_results_is_one_frame() -> None:
    report = callback_pb2.SerializedReport(recalled=True)

    assert list(parts([], report)) == [report]
