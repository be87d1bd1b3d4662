"""The database that a model is held against."""

from collections.abc import Iterator

import pytest

from tests.models.world import World


@pytest.fixture
def world(dsn: str) -> Iterator[World]:
    """A store whose clock stands still."""
    with World(dsn) as opened:
        yield opened
