"""What the SDK refuses of a cron expression where it is declared, the Frontend refuses as well."""

from cronsim import CronSimError
from hypothesis import given
from hypothesis import strategies as st

from duly.time_tables.cron import cron_problem
from duly_core.time_tables.rhythm import ALIASES, parse

_VALUES = st.one_of(
    st.just("*"),
    st.one_of(st.integers(1, 7), st.integers(0, 70)).map(str),
    st.tuples(st.integers(0, 70), st.integers(0, 70)).map(lambda pair: f"{min(pair)}-{max(pair)}"),
    st.sampled_from(["L", "LW", "5L", "1#2", "MON", "MON-FRI", "JAN-MAR", "DEC", "x", "", "-1", "@"]),
)
_TERMS = st.one_of(_VALUES, st.tuples(_VALUES, st.integers(0, 70)).map(lambda pair: f"{pair[0]}/{pair[1]}"))
_FIELDS = st.lists(_TERMS, min_size=1, max_size=3).map(",".join)


@given(st.lists(_FIELDS, min_size=5, max_size=5).map(" ".join) | st.sampled_from(sorted(ALIASES)))
def test_the_sdk_refuses_no_expression_that_the_frontend_takes(expression: str) -> None:
    try:
        parse(expression)
    except CronSimError:
        return
    assert cron_problem(expression) == ""
