"""What the text of a search may mean."""

import pytest

from duly_core.search.rules import IdPart, read
from duly_wire.ids import new_task_id


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("0192d3e4-5f60", [IdPart("0192d3e45f60"), IdPart(end="0192d3e45f60")]),
        ("  CDEF ", [IdPart("cdef"), IdPart(end="cdef")]),
        ("0192d3e4…cdef", [IdPart("0192d3e4", "cdef")]),
        ("0192d3e4...cdef", [IdPart("0192d3e4", "cdef")]),
        ("…89abcdef", [IdPart(end="89abcdef")]),
        ("0192d3e4*", [IdPart("0192d3e4")]),
        ("abc", []),
        ("abcg", []),
        ("0192…d3…e4", []),
        ("----", []),
        ("f" * 33, []),
        ("f" * 20 + "…" + "f" * 20, []),
        ("mail.send", []),
    ],
)
def test_digits_are_the_begin_or_the_end_of_an_id(text, ids):
    assert [*read(text).ids] == ids


def test_a_whole_id_is_one_id():
    task_id = new_task_id()

    (part,) = read(str(task_id).upper()).ids

    assert part.is_whole
    assert part.lowest == part.highest == task_id


@pytest.mark.parametrize(
    ("text", "attribute"),
    [
        ("order=17", ("order", "17")),
        ("order.id = a=b ", ("order.id", "a=b")),
        ("Order=17", None),
        ("order=", None),
        ("=17", None),
    ],
)
def test_a_name_and_a_value_are_an_attribute(text, attribute):
    assert read(text).attribute == attribute
