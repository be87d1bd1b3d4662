import dataclasses
import enum
import typing
import uuid
from datetime import UTC, datetime

import pydantic
import pytest

from duly.callbacks.validation import reader_for
from duly.errors import PayloadError, RegistrationError


class Colour(enum.Enum):
    RED = "red"
    ONE = 1


@dataclasses.dataclass(frozen=True)
class Address:
    host: str
    port: int = 25


@dataclasses.dataclass
class Mail:
    to: list[Address]
    kind: typing.Literal["text", "html"] = "text"
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    when: datetime | None = None
    retries: int | str = 0
    made: int = dataclasses.field(default=0, init=False)


@dataclasses.dataclass
class Tree:
    children: list["Tree"]


@dataclasses.dataclass
class Positive:
    number: int

    def __post_init__(self):
        if self.number <= 0:
            raise ValueError("must be positive")


class Options(typing.TypedDict):
    name: str
    size: typing.NotRequired[int]


class Model(pydantic.BaseModel):
    to: list[pydantic.PositiveInt]


def test_a_dataclass_is_built_with_everything_in_it():
    read = reader_for(Mail)

    mail = read(
        {"to": [{"host": "a"}], "kind": "html", "headers": {"x": "y"}, "when": "2030-01-01T00:00:00Z"}
    )

    assert mail == Mail([Address("a", 25)], "html", {"x": "y"}, datetime(2030, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "payload: expected Mail as dict, got list"),
        (None, "payload: expected Mail as dict, got None"),
        ({}, "payload.to: is missing"),
        ({"to": None}, "payload.to: expected list, got None"),
        ({"to": [{"host": "a"}, {"host": 3}]}, "payload.to[1].host: expected str, got int"),
        ({"to": [{"host": "a", "port": True}]}, "payload.to[0].port: expected int, got bool"),
        ({"to": [], "cc": []}, "payload.cc: Mail has no such field"),
        ({"to": [], "made": 1}, "payload.made: Mail has no such field"),
        ({"to": [], "kind": "pdf"}, "payload.kind: expected one of 'text', 'html', got another str"),
        ({"to": [], "headers": {"x": 1}}, "payload.headers['x']: expected str, got int"),
        ({"to": [], "when": "noon"}, "payload.when: expected an ISO 8601 datetime, got another str"),
        ({"to": [], "when": 3}, "payload.when: expected an ISO 8601 datetime as str, got int"),
        ({"to": [], "retries": 1.5}, "payload.retries: expected int or str, got float"),
    ],
)
def test_what_does_not_fit_a_dataclass_is_told_with_its_place(value, message):
    with pytest.raises(PayloadError) as raised:
        reader_for(Mail)(value)

    assert str(raised.value) == message


def test_a_dataclass_may_contain_itself():
    read = reader_for(Tree)

    assert read({"children": [{"children": []}]}) == Tree([Tree([])])
    with pytest.raises(PayloadError, match=r"payload\.children\[0\]\.children: is missing"):
        read({"children": [{}]})


def test_what_a_dataclass_says_of_its_values_itself_is_passed_on():
    with pytest.raises(PayloadError, match="payload: Positive refused it: must be positive"):
        reader_for(Positive)({"number": 0})


def test_a_typed_dict_has_its_keys_and_no_others():
    read = reader_for(Options)

    assert read({"name": "a"}) == {"name": "a"}
    assert read({"name": "a", "size": 3}) == {"name": "a", "size": 3}
    for value, message in (
        ({}, "payload.name: is missing"),
        ({"name": "a", "size": "3"}, "payload.size: expected int, got str"),
        ({"name": "a", "colour": 1}, "payload.colour: Options has no such field"),
    ):
        with pytest.raises(PayloadError) as raised:
            read(value)
        assert str(raised.value) == message


def test_a_pydantic_model_checks_itself_and_its_error_does_not_quote_the_payload():
    read = reader_for(dict[str, Model])

    assert read({"a": {"to": [1]}}) == {"a": Model(to=[1])}
    with pytest.raises(PayloadError, match=r"^payload\['a'\]\.to\[1\]: Input should be greater than 0$"):
        read({"a": {"to": [1, -31337]}})


@pytest.mark.parametrize(
    ("annotation", "value", "read"),
    [
        (str, "a", "a"),
        (float, 3, 3.0),
        (typing.Any, [1], [1]),
        (list, [1], [1]),
        (dict, {"a": 1}, {"a": 1}),
        (tuple[int, ...], [1, 2], (1, 2)),
        (typing.Sequence[int], [1], [1]),
        (int | None, None, None),
        (typing.Optional[int], 3, 3),  # noqa: UP045 (the old spelling)
        (int | str | None, None, None),
        (typing.Annotated[int, "meters"], 3, 3),
        (Colour, "red", Colour.RED),
        (Colour, 1, Colour.ONE),
        (uuid.UUID, "00000000-0000-0000-0000-000000000007", uuid.UUID(int=7)),
    ],
)
def test_a_declared_type_reads_its_json(annotation, value, read):
    assert reader_for(annotation)(value) == read


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 1.0), (int, True), (float, "1"), (bool, 1), (str, None), (Colour, True), (Colour, "blue"),
        (list[int], ["a"]), (list[int], {}), (typing.Literal[1], True), (uuid.UUID, "7"), (type(None), 0),
    ],
)  # fmt: skip
def test_what_does_not_fit_a_declared_type_is_refused(annotation, value):
    with pytest.raises(PayloadError):
        reader_for(annotation)(value)


@pytest.mark.parametrize(
    "annotation", [set[int], dict[int, str], complex, tuple[int, str], "int", list[bytes]]
)
def test_a_type_that_json_cannot_be_read_into_is_refused_at_once(annotation):
    with pytest.raises(RegistrationError, match="cannot be read into"):
        reader_for(annotation)
