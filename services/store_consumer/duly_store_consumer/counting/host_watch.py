"""Shows how many hosts there are in each state, and how many clocks differ from the store's."""

from datetime import timedelta

from duly_core.fleet.host_reads import count_hosts, count_skewed
from duly_core.postgres.pool import Store
from duly_store_consumer import events

_PAUSE = timedelta(seconds=15)


async def watch_hosts(store: Store) -> timedelta:
    """Count them; return the pause until the next round.

    Raises:
        StoreUnavailableError: the metric keeps its value.
    """
    for state, count in (await count_hosts(store)).items():
        events.hosts.set(count, state.value)
    for kind, count in (await count_skewed(store)).items():
        events.skewed_clocks.set(count, kind)
    return _PAUSE
