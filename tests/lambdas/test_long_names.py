"""What a request with a long name costs."""

import tracemalloc
from collections.abc import Callable

import pytest

from duly_core.rpc.requests.names import check_lambda_name, check_name
from duly_core.rpc.requests.problem import Problem


@pytest.mark.parametrize("check", [check_name, check_lambda_name])
def test_long_names_are_refused_and_not_remembered(check: Callable[[str, str], None]) -> None:
    tracemalloc.start()
    try:
        for number in range(20):
            with pytest.raises(Problem):
                check("lambda", f"{number}{'x' * 100_000}")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < 1_000_000
