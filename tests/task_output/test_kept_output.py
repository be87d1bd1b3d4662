"""What a callback process keeps of what its callbacks write: order, bounds, attribution, and what it costs who writes nothing."""

import asyncio
import logging
import socket
import threading

import pytest

from duly.encryption import AesGcm
from duly.errors import DecryptionError
from duly.task_output.encryption import opened
from duly.task_output.piece import PieceReader
from duly_executor.callback import output
from duly_executor.callback.kept_output import AttemptOutput, KeptOutput
from duly_executor.callback.report_sender import ReportSender
from duly_wire.output_rules import CHUNK_BYTES, MOST_CONTENT
from duly_wire.v1 import hsc_pb2, output_pb2

STDOUT, STDERR, LOG = 1, 2, 3
MIB = 1024 * 1024


def claimed(number=0, fence=1):
    task = hsc_pb2.ClaimedTask(**{"lambda": "mail.send"}, fence=fence)
    task.claim.task_id = bytes([number] * 16)
    task.claim.token = bytes([number + 1] * 16)
    return task


def pieces(chunks):
    return [(piece.stream, piece.data) for chunk in chunks for piece in chunk.plain.pieces]


@pytest.fixture
def kept():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield KeptOutput(ReportSender(ours))


def sent(kept):
    return kept._report_sender._output


def test_streams_keep_the_order_in_which_they_were_written_and_writes_in_a_row_are_one_piece():
    attempt = AttemptOutput(claimed(fence=3), None)
    for stream, data in ((STDOUT, b"a"), (STDOUT, b"b"), (STDERR, b"c"), (STDOUT, b"d")):
        attempt.add(stream, data)

    (first,) = attempt.take(MIB)
    attempt.add(LOG, b"e")
    (second,) = attempt.take(MIB)

    assert pieces([first]) == [(STDOUT, b"ab"), (STDERR, b"c"), (STDOUT, b"d")]
    assert [(each.fence, each.number, each.position, each.size_bytes) for each in (first, second)] == [
        (3, 1, 0, 4),
        (3, 2, 4, 1),
    ]
    assert attempt.take(MIB) == []


def test_a_large_write_is_divided_and_only_so_much_goes_at_a_time():
    attempt = AttemptOutput(claimed(), None)
    attempt.add(STDOUT, bytes(5 * CHUNK_BYTES))

    some = attempt.take(2 * CHUNK_BYTES)
    rest = attempt.take(MIB)

    assert [each.size_bytes for each in some] == [CHUNK_BYTES] * 2
    assert [each.size_bytes for each in rest] == [CHUNK_BYTES] * 3
    assert [each.number for each in (*some, *rest)] == [1, 2, 3, 4, 5]
    assert all(each.ByteSize() < MOST_CONTENT for each in (*some, *rest))


def test_of_a_flood_the_newest_is_kept_and_the_position_counts_what_is_left_out():
    attempt = AttemptOutput(claimed(), None)
    for number in range(100_000):
        attempt.add(STDOUT, b"%099d\n" % number)

    chunks = attempt.take(4 * MIB)
    reader = PieceReader(None, bytes(16))
    for chunk in chunks:
        chunk.written_at.GetCurrentTime()
    read = [piece for chunk in chunks for piece in reader.read(chunk)]

    left_out = sum(piece.left_out_bytes for piece in read)
    assert left_out + sum(len(piece.data) for piece in read) == 10_000_000
    assert left_out > 9_000_000
    assert read[0].left_out_bytes == left_out
    assert read[-1].data.endswith(b"99999\n")


def test_print_and_logging_belong_to_the_task_whose_thread_or_coroutine_writes(kept, monkeypatch):
    stdout, stderr = output._Lines(1), output._Lines(2)
    handler = output._LogHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    monkeypatch.setattr(output, "_send", lambda *_: None)

    async def say(text):
        await asyncio.sleep(0)
        stdout.write(text)

    def run(number):
        speaker = output.Speaker(claimed(number), kept, None)
        output.begin(speaker)
        stdout.write(b"out %d\n" % number)
        stderr.write(b"err %d\n" % number)
        handler.emit(logging.makeLogRecord({"name": "n", "levelname": "INFO", "msg": f"log {number}"}))
        asyncio.run(say(b"async %d\n" % number))
        output.end(speaker)
        stdout.write(b"nobody's\n")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for number in range(3):
        own = [each.chunk for each in sent(kept) if each.task_id == bytes([number] * 16)]
        assert pieces(own) == [
            (STDOUT, b"out %d\n" % number),
            (STDERR, b"err %d\n" % number),
            (LOG, b"INFO n: log %d\n" % number),
            (STDOUT, b"async %d\n" % number),
        ]
    assert len(sent(kept)) == 3


def test_an_attempt_that_writes_nothing_makes_nothing(kept):
    speaker = output.Speaker(claimed(), kept, None)
    output.begin(speaker)
    output.end(speaker)

    assert (sent(kept), kept._attempts, kept._written.is_set()) == ([], {}, False)


def test_the_rest_goes_before_the_result_and_nothing_is_kept_after_the_end(kept):
    speaker = output.Speaker(claimed(), kept, None)
    output.begin(speaker)
    speaker.keep(STDOUT, b"last")
    output.end(speaker)
    kept._report_sender.result(bytes(16), hsc_pb2.TaskResult())
    speaker.keep(STDOUT, b"from a thread that lives on")

    assert pieces(each.chunk for each in sent(kept)) == [(STDOUT, b"last")]
    assert kept._attempts == {}


def test_while_the_executor_reads_nothing_output_is_left_out(kept):
    for number in range(400):
        speaker = output.Speaker(claimed(number % 200), kept, None)
        speaker.keep(STDOUT, bytes(CHUNK_BYTES))
        output.end(speaker)

    assert len(sent(kept)) == 256


def test_a_codec_encrypts_chunks_bound_to_their_task():
    codec = AesGcm({"k": bytes(32)}, "k")
    attempt = AttemptOutput(claimed(1), codec)
    attempt.add(STDOUT, b"secret")

    (chunk,) = attempt.take(MIB)

    assert b"secret" not in chunk.SerializeToString()
    assert chunk.size_bytes == len(b"secret")
    assert opened(codec, bytes([1] * 16), chunk) == output_pb2.OutputPieces(
        pieces=[output_pb2.OutputPiece(stream=output_pb2.OUTPUT_STREAM_STDOUT, data=b"secret")]
    )
    with pytest.raises(DecryptionError):
        opened(codec, bytes([2] * 16), chunk)
    with pytest.raises(DecryptionError):
        opened(None, bytes([1] * 16), chunk)
