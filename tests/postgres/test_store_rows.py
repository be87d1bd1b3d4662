"""Rows by the names of their columns: the order in which a statement selects them does not matter."""

from typing import NamedTuple

import pytest

from duly_core.postgres.rows import named
from duly_core.postgres.statements import READS, TRANSITIONS, Statement
from duly_core.tasks.claims import ClaimedTask


class Pair(NamedTuple):
    first: int
    second: str


@pytest.mark.parametrize(
    "columns",
    ["1 as first, 'two' as second", "'two' as second, 1 as first", "0 as other, 1 as first, 'two' as second"],
)
async def test_fields_are_the_columns_of_their_names(store, columns):
    rows = await store.run_as(named(Pair), Statement("pair", f"select {columns}"), {})

    assert rows == [Pair(1, "two")]


async def test_a_column_that_is_missing_is_an_error(store):
    with pytest.raises(ValueError, match="second"):
        await store.run_as(named(Pair), Statement("pair", "select 1 as first"), {})


@pytest.mark.parametrize("name", ["claim", "claim_work", "claim_again", "claim_repeated", "claimed_before"])
def test_every_claim_is_answered_with_the_fields_of_a_claimed_task(name):
    sql = (TRANSITIONS | READS)[name].sql

    for field in ClaimedTask._fields:
        assert f"claimed.{field}" in sql or f"entity.{field}" in sql or f"as {field}" in sql
