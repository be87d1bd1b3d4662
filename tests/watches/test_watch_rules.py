"""Positions and filters: what a caller was told is read back, and nothing else is a position."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly_core.lambdas.patterns import covers
from duly_core.watches.rules import Cursor, Position, WatchFilter

NUMBERS = st.integers(0, (1 << 63) - 1)


@given(st.binary(min_size=16, max_size=16), NUMBERS, st.integers(0, 127), NUMBERS)
def test_a_position_reads_back_as_it_was(watch_id, xid, kind, seq):
    position = Position(watch_id, Cursor(xid, kind, seq))

    assert Position.parse(str(position)) == position


@given(st.text(max_size=100) | st.text("ABab01_-=", max_size=60))
def test_what_is_no_position_is_refused(text):
    found = Position.parse(text)

    assert found is None or Position.parse(str(found)) == found


def test_a_filter_reads_the_same_in_another_order():
    assert str(WatchFilter(("b", "a", "b"))) == str(WatchFilter(("a", "b")))


@pytest.mark.parametrize(
    ("lambdas", "readable", "keys"),
    [
        ((), ("*",), ["*"]),
        (("a", "b.*"), ("*",), ["lambda:a", "prefix:b."]),
        ((), ("a.*", "b"), ["graphs", "lambda:b", "prefix:a."]),
        (("*",), ("a",), ["graphs", "lambda:a"]),
        (("a.*",), ("a.b.*", "c"), ["prefix:a.b."]),
        (("a",), ("b",), []),
    ],
)
def test_no_more_is_written_than_the_caller_may_read(lambdas, readable, keys):
    assert WatchFilter(lambdas).keys(readable) == keys


NAMES = st.sampled_from(["a", "a.b", "a.b.c", "t/a", "t/a.b", "a@2", "t/a.b@1"])
PATTERNS = st.sampled_from(["a", "a.*", "a.b*", "t/*", "t/a.*", "*", "a@2"])


async def test_the_store_finds_each_watch_that_a_pattern_covers(store):
    wrong = []
    async with store.connection() as connection:
        for pattern in PATTERNS.elements:  # type: ignore[attr-defined]
            for name in NAMES.elements:  # type: ignore[attr-defined]
                async with connection.transaction(force_rollback=True):
                    await connection.execute(
                        """
                        with made as (
                            insert into watch values (gen_random_uuid(), '', '', '', '0', 0, now(), '1 minute', now())
                            returning watch_id
                        )
                        insert into watch_key select unnest(%s::text[]), watch_id from made
                        """,
                        [WatchFilter((pattern,)).keys()],
                    )
                    cursor = await connection.execute("select duly_is_watched(%s, null, null)", [name])
                    if await cursor.fetchall() != [(covers(pattern, name),)]:
                        wrong.append((pattern, name))

    assert wrong == []
