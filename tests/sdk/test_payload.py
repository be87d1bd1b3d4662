import dataclasses
import enum
import json
import re
import uuid
from datetime import UTC, date, datetime

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.callbacks.payload import decode, encode
from duly.errors import EncodingError, PayloadError
from duly_wire.v1 import task_pb2

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Inner:
    when: datetime


@dataclasses.dataclass
class Outer:
    inners: list[Inner]
    id: uuid.UUID
    by_colour: dict[str, Colour]


class Model(pydantic.BaseModel):
    when: datetime


@given(json_values)
def test_what_json_can_carry_comes_back_as_it_was(value):
    assert decode(*encode(value)) == value


@pytest.mark.parametrize("value", [b"\x00\xff", bytearray(b"\x00\xff"), memoryview(b"\x00\xff")])
def test_bytes_travel_as_they_are(value):
    assert encode(value) == (b"\x00\xff", task_pb2.ENCODING_RAW)
    assert decode(*encode(value)) == b"\x00\xff"


def test_nothing_is_no_bytes_at_all():
    assert encode(None) == (b"", task_pb2.ENCODING_JSON)
    assert decode(b"", task_pb2.ENCODING_UNSPECIFIED) is None


def test_json_is_compact_utf8():
    assert encode({"a": ["ä", 1]})[0] == '{"a":["ä",1]}'.encode()


def test_a_dataclass_becomes_an_object_with_what_its_types_can_read_back():
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    value = Outer([Inner(noon)], uuid.UUID(int=7), {"best": Colour.RED})

    assert decode(*encode({"outer": value})) == {
        "outer": {
            "inners": [{"when": "2030-01-01T12:00:00+00:00"}],
            "id": "00000000-0000-0000-0000-000000000007",
            "by_colour": {"best": "red"},
        }
    }


def test_a_pydantic_model_becomes_what_it_dumps():
    assert decode(*encode([Model(when=datetime(2030, 1, 1, tzinfo=UTC))])) == [
        {"when": "2030-01-01T00:00:00Z"}
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (datetime(2030, 1, 1, tzinfo=UTC), "a datetime: pass its isoformat"),
        ([date(2030, 1, 1)], "a date: pass its isoformat"),
        ({"a": {1, 2}}, "a set"),
        ({"a": b"x"}, "a bytes"),
        (Colour.RED, "a Colour"),
        (Inner, "a type"),
        ({(1, 2): 3}, "keys must be str"),
        (float("nan"), "this float"),
        ("\ud800", "lone surrogate"),
    ],
)
def test_what_json_cannot_carry_is_refused_by_name(value, message):
    with pytest.raises(EncodingError, match=message):
        encode(value)


def test_a_circle_and_a_tower_are_refused():
    circle = []
    circle.append(circle)
    tower = []
    for _ in range(100_000):
        tower = [tower]

    for value in (circle, tower):
        with pytest.raises(EncodingError):
            encode(value)


@pytest.mark.parametrize("data", [b"{", b"\xff", b"NaN", b"[" * 100_000, b"1" * 5000])
def test_bytes_that_are_not_the_json_they_should_be_are_a_payload_error(data):
    with pytest.raises(PayloadError, match=r"^payload: not JSON"):
        decode(data, task_pb2.ENCODING_JSON)


@pytest.mark.parametrize("text", ["1", " 1", "1\n", '\t{"a": [1]} ', "null", '"x"'])
def test_blanks_around_json_are_no_part_of_it(text):
    assert decode(text.encode(), task_pb2.ENCODING_JSON) == json.loads(text)


@pytest.mark.parametrize("text", [" ", "1 2", "{} x", "[1", "nul", "1,", "\ufeff1"])
def test_what_json_refuses_is_refused_in_its_words(text):
    with pytest.raises(json.JSONDecodeError) as words:
        json.JSONDecoder().decode(text)

    with pytest.raises(PayloadError, match=re.escape(f"not JSON: {words.value}")):
        decode(text.encode(), task_pb2.ENCODING_JSON)
