"""How the console shows what a task printed: the end of the last run, as text only."""

from duly_console.pages.output import of_chunks
from duly_wire.v1 import output_pb2

KIB = 1024


def answer(*chunks):
    return output_pb2.ReadOutputResponse(
        chunks=[
            output_pb2.OutputChunk(
                fence=fence,
                position=position,
                plain=output_pb2.OutputPieces(
                    pieces=[output_pb2.OutputPiece(stream=output_pb2.OUTPUT_STREAM_STDOUT, data=data)]
                ),
            )
            for fence, position, data in chunks
        ]
    )


def test_characters_that_would_be_obeyed_are_shown():
    shown = of_chunks(answer((1, 0, b"a\tb\r\n\x1b[2J\x00 \xe2\x80\xae\xff")), "/output/x")

    assert shown.text == "a\tb\n\\x1b[2J\\x00 \\u202e\N{REPLACEMENT CHARACTER}"


def test_of_the_last_run_the_end_is_shown_and_what_is_before_is_counted():
    shown = of_chunks(
        answer((1, 0, b"older"), (2, 1000, b"b" * 40 * KIB), (2, 1000 + 40 * KIB, b"c" * 40 * KIB)), ""
    )

    assert (shown.run, len(shown.text)) == (2, 64 * KIB)
    assert shown.text.endswith("c" * 40 * KIB)
    assert shown.bytes_before == 1000 + 16 * KIB


def test_encrypted_output_is_said_to_be_so():
    encrypted = output_pb2.ReadOutputResponse(
        chunks=[output_pb2.OutputChunk(fence=1, number=1, encrypted=b"\xd0\x01")]
    )

    assert of_chunks(encrypted, "").is_encrypted
    assert of_chunks(answer(), "").text == ""
