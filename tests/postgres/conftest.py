"""Tests of sessions and pools: none of them gets a session that another test left."""

import pytest

from tests.fixtures.warm_sessions import WarmSessions


@pytest.fixture(autouse=True)
def new_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each pool sessions of its own."""
    monkeypatch.setattr(WarmSessions, "is_paused", True)
