"""What `duly logs` prints of pieces: lines as they come, nothing that a terminal would obey, notes on stderr."""

from datetime import UTC, datetime

import duly
from duly_cli.task_output.commands import _Printer
from duly_wire.enums import OutputStream

NOW = datetime(2026, 11, 26, tzinfo=UTC)
OUT, ERR = OutputStream.STDOUT, OutputStream.STDERR


def shown(capsys, *pieces, wanted=None):
    printer = _Printer()
    for run, stream, data, left_out in pieces:
        printer.show(duly.OutputPiece(run, stream, data, NOW, left_out), wanted)
    printer.end()
    return capsys.readouterr()


def test_streams_do_not_share_lines_or_characters_and_terminals_obey_nothing(capsys):
    said = shown(
        capsys,
        (1, OUT, "a\tb é".encode()[:-1], 0),
        (1, ERR, b"\x1b[2Jerr\r\n", 0),
        (1, OUT, "é".encode()[-1:] + b"\nno end", 0),
    )

    assert said.out == "a\tb \n\\x1b[2Jerr\né\nno end\n"
    assert said.err == ""


def test_what_is_left_out_and_later_runs_are_told_on_stderr(capsys):
    said = shown(capsys, (1, OUT, b"one", 1234), (2, OUT, b"two\n", 0))

    assert said.out == "one\ntwo\n"
    assert said.err == "[1,234 bytes left out]\n[run 2]\n"


def test_one_stream_is_shown_alone(capsys):
    assert shown(capsys, (1, OUT, b"out\n", 0), (1, ERR, b"err\n", 0), wanted=ERR).out == "err\n"
