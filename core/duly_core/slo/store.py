"""Reads how what is promised is kept."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from duly_core.config.live_sections import LiveSloSettings
from duly_core.postgres.pool import Store
from duly_core.slo.rules import Level, Summed, levels_of, spans_of, times_of
from duly_core.trends import store as trends
from duly_core.trends.rules import ALL, places_of

_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)


async def read_levels(
    store: Store, settings: LiveSloSettings, now: datetime, names: Sequence[str] = ()
) -> list[Level]:
    """Return how each promise is kept: calls, starts of all lambdas, then starts of each lambda.

    Args:
        store: the store.
        settings: what is promised.
        now: by the store's clock.
        names: only these lambdas, which may have no runs; empty: all that have some.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    hour, day = await trends.newest_sum(store, 60), await trends.newest_sum(store, 1_440)
    summed = Summed(
        # without one everything is in shorter points
        (hour or datetime.min.replace(tzinfo=now.tzinfo)) + _HOUR,
        (day or datetime.min.replace(tzinfo=now.tzinfo)) + _DAY,
    )
    times = times_of(spans_of(settings.window), now, summed)
    lambdas = [*names, ALL] if names else []
    sums = await trends.sums_of_times(store, [*times], places_of(settings.start_within), lambdas)
    return levels_of(sums, times, settings, names)
