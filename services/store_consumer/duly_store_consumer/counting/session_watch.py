"""Shows how many sessions are blocked."""

from datetime import timedelta

from duly_core.postgres.pool import Store
from duly_core.sessions import store as sessions
from duly_store_consumer import events

_PAUSE = timedelta(minutes=1)
_MOST = 100_000
"""Blocked sessions are counted up to this number: the count must cost little."""


async def count_blocked(store: Store) -> timedelta:
    """Count them; return the pause until the next round.

    Raises:
        StoreUnavailableError: the metric keeps its value.
    """
    events.sessions_blocked.set(await sessions.count_blocked(store, _MOST))
    return _PAUSE
