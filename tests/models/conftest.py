"""The database that a model is held against."""

from collections.abc import Iterator

import pytest
from hypothesis.internal.conjecture import providers

from tests.models.world import World


@pytest.fixture
def world(dsn: str) -> Iterator[World]:
    """A store whose clock stands still."""
    with World(dsn) as opened:
        yield opened


@pytest.fixture(autouse=True)
def same_search_in_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep Hypothesis from drawing constants that it found in the modules in memory.

    With them, a search that is derandomized depends on which other tests were collected: a mutation that is found alone is
    missed in the whole suite.
    """
    none = providers.Constants()
    monkeypatch.setattr(providers, "_get_local_constants", lambda: none)
