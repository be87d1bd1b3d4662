"""What `make sql` writes is what Postgres gets."""

import pytest

from scripts.resolved_sql import FOLDER, SCHEMA, pages

WRITTEN = {path.name for path in FOLDER.glob("*.sql")}


@pytest.mark.parametrize("name", sorted(WRITTEN | pages().keys()))
def test_a_file_of_resolved_sql_is_what_the_code_sends(name):
    assert name in WRITTEN, "run `make sql`"
    assert (FOLDER / name).read_text(encoding="utf-8") == pages()[name], "run `make sql`"


def test_nothing_is_left_to_be_resolved():
    assert [name for name, text in pages().items() if "{{" in text] == []
    assert "create function public.duly_schedule" in pages()[SCHEMA]
