"""Columns that are written in Postgres's binary form arrive as what they were."""

from datetime import UTC, datetime, timedelta

import pytest

from duly_core.postgres import arrays
from duly_core.postgres.pool import fetch
from duly_core.postgres.statements import Statement

ID = bytes(range(16))
INSTANT = datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
LATE = datetime(9999, 12, 31, tzinfo=UTC)
COLUMNS = [
    ("uuid", arrays.uuids, [ID, bytes(16), ID]),
    ("text", arrays.texts, ["", "Größe", None, "a" * 300, "a" * 300]),
    ("int2", arrays.int2s, [1, -1, None, 32_767, 1]),
    ("int4", arrays.int4s, [1, -1, None, 100_000, 1]),
    ("bool", arrays.bools, [True, False, None, True]),
    ("bytea", arrays.byteas, [b"", None, b"\x00\xff" * 200_000]),
    ("timestamptz", arrays.timestamps, [INSTANT, None, LATE, INSTANT]),
    ("timestamptz", arrays.timestamps, [INSTANT, LATE, INSTANT]),
    ("interval", arrays.intervals, [timedelta(days=365, microseconds=1), None, timedelta(seconds=-1)]),
]


async def back(store, kind, array):
    """The elements as Postgres understands them; also whether it thinks that the array is one of its own."""
    echo = Statement("echo", f"select unnest(%(column)b::{kind}[]), cardinality(%(column)b::{kind}[])")
    async with store.connection() as connection:
        return [row[0] for row in await fetch(connection, echo, {"column": array})]


@pytest.mark.parametrize(
    ("kind", "write", "values"),
    COLUMNS,
    ids=[f"{column[0]}{number}" for number, column in enumerate(COLUMNS)],
)
async def test_a_column_arrives_as_it_was(task_states, kind, write, values):
    assert await back(task_states.store, kind, write(values)) == values


@pytest.mark.parametrize(
    ("kind", "write", "_"), COLUMNS, ids=[f"{column[0]}{number}" for number, column in enumerate(COLUMNS)]
)
async def test_an_empty_column_arrives_empty(task_states, kind, write, _):
    assert await back(task_states.store, kind, write([])) == []


def test_an_id_of_another_length_is_refused():
    with pytest.raises(ValueError, match="16 bytes"):
        arrays.uuids([ID, ID[1:]])
