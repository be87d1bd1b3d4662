"""How the console writes durations, sizes and commands."""

from datetime import timedelta

import pytest

from duly_console.formatting import codes, size, span


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.25, "250 ms"), (1, "1 s"), (1.5, "1.5 s"), (9.99, "10 s"), (61, "1 min 1 s")]
)
def test_a_duration_has_no_digit_that_says_nothing(seconds, text):
    assert span(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("count", "text"), [(1023, "1023 B"), (262_144, "256 KiB"), (1536, "1.5 KiB"), (5 * 1024**2, "5 MiB")]
)
def test_a_size_has_no_digit_that_says_nothing(count, text):
    assert size(count) == text


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("then `duly redrive 1`", "then <code>duly redrive 1</code>"),
        ("`<b>` or `</code>`", "<code>&lt;b&gt;</code> or <code>&lt;/code&gt;</code>"),
        ("<script>`", "&lt;script&gt;`"),
        ("``", "``"),
        ("a ` b", "a ` b"),
    ],
)
def test_what_is_typed_is_code_and_nothing_of_a_text_is_markup(text, html):
    assert str(codes(text)) == html


def test_a_text_of_many_backticks_is_read_in_little_time():
    assert str(codes("`" + "x" * 401 + "`" * 50_000)).count("<code>") == 0
