"""No statement compares text with a literal by order: databases sort punctuation differently, by their collation."""

import re
from pathlib import Path

import pytest

import duly_core

FOLDER = Path(duly_core.__file__).parent
FILES = sorted(each for kind in ("*.sql", "*.py") for each in FOLDER.rglob(kind))
BY_ORDER = re.compile(r"(?:(?<![<=>-])>=?|<(?!>)=?)\s*'(?!-?infinity'|epoch'|success')[^']*'")


def test_the_pattern_finds_what_depends_on_the_collation_and_nothing_else():
    assert BY_ORDER.search("parked_on < 'gate;'")
    assert BY_ORDER.search("parked_on >= 'gate:'")
    assert not BY_ORDER.search(
        "status <> 'waiting' and due_at > '-infinity' and events ->> 'kind' = 'left_out'"
    )


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(FOLDER).as_posix())
def test_no_statement_compares_text_with_a_literal_by_order(file):
    assert BY_ORDER.findall(file.read_text("utf-8")) == []
