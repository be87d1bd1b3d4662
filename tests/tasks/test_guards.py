"""Guards in functions of the schema: each is where it is said to be, and is gone once it is taken out."""

import psycopg
import pytest

from tests.fixtures.guards import FUNCTION_GUARDS, InFunction


@pytest.mark.parametrize("what", FUNCTION_GUARDS)
def test_a_guard_of_a_function_is_taken_out(dsn: str, what: str) -> None:
    for edit in FUNCTION_GUARDS[what]:
        before = definition(dsn, edit)

        edit.plant(dsn)

        assert definition(dsn, edit) == before.replace(edit.guard, edit.instead) != before


def definition(dsn: str, edit: InFunction) -> str:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select pg_get_functiondef(%s::regproc)", [edit.name]).fetchone()
    assert row is not None
    return str(row[0])
