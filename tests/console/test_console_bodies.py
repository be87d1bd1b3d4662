"""How the console shows payloads and results: any tenant writes them, and all who use the console share its process."""

import json

import pytest

from duly_console.formatting import body
from duly_wire.v1 import task_pb2

KIB = 1024
LINES = 31_000
DEPTH = 700


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        pytest.param(b'{"a":[1,2]}', '{\n  "a": [\n    1,\n    2\n  ]\n}', id="JSON"),
        pytest.param(b'{"a":"\\ud800"}', '{\n  "a": "\\ud800"\n}', id="half a character"),
        pytest.param(b"{not JSON", "{not JSON", id="not JSON"),
        pytest.param(b"[" * 5_000, "[" * 5_000, id="not JSON, and deep"),
        pytest.param(b'"\xff"', '"\N{REPLACEMENT CHARACTER}"', id="not UTF-8"),
    ],
)
def test_a_payload_is_shown_so_that_a_page_can_carry_it(sent, shown):
    text = body(sent, task_pb2.ENCODING_JSON)

    assert text == shown
    assert text.encode()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"[" * DEPTH + b"1," * LINES + b"1" + b"]" * DEPTH, id="long lists, deep within others"),
        pytest.param(b'{"a":' * DEPTH + b"1" + b"}" * DEPTH, id="deep"),
    ],
)
def test_a_payload_that_line_breaks_would_multiply_is_shown_as_it_was_sent(sent):
    text = body(sent, task_pb2.ENCODING_JSON)

    assert len(sent) <= 64 * KIB
    assert text == sent.decode()


def test_a_long_payload_that_is_flat_is_shown_with_line_breaks():
    sent = json.dumps({f"name_{number}": number for number in range(2_000)}).encode()

    text = body(sent, task_pb2.ENCODING_JSON)

    assert text.count("\n") == 2_001
