"""psycopg keeps what it made of a statement, however long that is."""

import re

import pytest
from psycopg import _queries
from psycopg.adapt import Transformer

import duly_core.postgres.pool  # noqa: F401 (sets psycopg's limit)
from duly_core.postgres.statements import FAIR, GATED, GATED_FAIR, TRANSITIONS

STATEMENTS = {
    statement.name: statement
    for statement in (*TRANSITIONS.values(), *GATED.values(), *FAIR.values(), *GATED_FAIR.values())
}


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_a_statement_is_parsed_once(name: str) -> None:
    sql = STATEMENTS[name].sql
    parameters = dict.fromkeys(re.findall(r"%\((\w+)\)b", sql))
    _queries._query2pg.cache_clear()

    for _ in range(2):
        _queries.PostgresQuery(Transformer()).convert(sql, parameters)

    assert _queries._query2pg.cache_info().hits == 1
