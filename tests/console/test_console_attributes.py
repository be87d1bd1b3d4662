"""Attributes as people write them into the filter of tasks, and as strangers write them into an address."""

import pytest

from duly_console.errors import PageError
from duly_console.pages.tasks import attributes


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("order=17", [("order", "17")]),
        (" order = 17 , kind=e mail  ,", [("order", "17"), ("kind", "e mail")]),
        ('city="Rome, Italy", order=17', [("city", "Rome, Italy"), ("order", "17")]),
        (r'said="a \"b\" \u00e9"', [("said", 'a "b" é')]),
        (
            ", ".join(f"{'n' * 63}{n}={'x' * 256}" for n in range(8)),
            [(f"{'n' * 63}{n}", "x" * 256) for n in range(8)],
        ),
    ],
)
def test_attributes_are_read_as_they_are_written(text, found):
    assert attributes(text) == found


@pytest.mark.parametrize(
    "text",
    [
        *("order", "order=", "order= , kind=mail", "=17", "Order=17", 'a="b', 'a="b" c', "a=b,,c=d"),
        r'a="\ud800"',
        r'a="\x"',
        "a=" + " " * 16_000 + "x",
        "a=b" + " " * 16_000,
        "a=1," * 4_000,
    ],
)
def test_text_that_is_no_list_of_attributes_is_a_bad_request(text):
    with pytest.raises(PageError) as refused:
        attributes(text)
    assert refused.value.status == 400
