"""Keeps objectives of lambdas, and reads how what is promised is kept."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from duly_core.config.live_sections import LiveSloSettings
from duly_core.errors import NotInCellError
from duly_core.lambdas.names import base_name, namespace_of
from duly_core.lambdas.store import list_names
from duly_core.postgres.arrays import texts
from duly_core.postgres.pool import Store, fetch
from duly_core.postgres.statements import load
from duly_core.slo.objectives import MOST_OBJECTIVES, Objective, Objectives, Promised
from duly_core.slo.rules import Level, Summed, levels_of, spans_of, times_of
from duly_core.trends import store as trends
from duly_core.trends.rules import ALL

SLO = load("slo/slo.sql")

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
    objectives = Objectives(settings, await list_objectives(store))
    sums = await trends.sums_of_times(store, [*times], lambdas)
    return levels_of(sums, times, settings, names, objectives)


class TooManyObjectivesError(Exception):
    """There are as many objectives as there may be."""


async def list_objectives(store: Store) -> list[Objective]:
    """Return the objectives of lambdas, by pattern.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    return [Objective(*row) for row in await store.run(SLO["list_objectives"], {})]


async def promised_by_lambda(store: Store, settings: LiveSloSettings) -> dict[str, Promised]:
    """Return what holds for each registered lambda that has an objective of its own.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    found = await list_objectives(store)
    if not found:
        return {}
    objectives = Objectives(settings, found)
    names = {base_name(name) for name in await list_names(store)}
    promised = {name: objectives.of(name) for name in sorted(names)}
    return {name: each for name, each in promised.items() if each.pattern}


async def put_objective(
    store: Store,
    pattern: str,
    make: Callable[[Objective | None], tuple[float, timedelta]],
    has_room: Callable[[Sequence[str]], bool] = lambda patterns: len(patterns) < MOST_OBJECTIVES,
) -> tuple[Objective, Objective | None]:
    """Set the objective of a pattern, or change it; return it, and what it was before (None: it is new).

    Args:
        store: the store.
        pattern: what the objective is of.
        make: returns the share and the time that are to be, from what is there. What it raises is raised, and nothing is changed.
        has_room: says of the patterns of all objectives whether there may be another.

    Raises:
        TooManyObjectivesError: there is no room for another.
        NotInCellError: another cell owns the namespace.
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    namespace = namespace_of(pattern)
    async with store.connection() as connection, connection.transaction():
        await connection.execute("lock table start_objective in share row exclusive mode")
        # who gives a namespace away waits for this lock, or is done: an objective elsewhere would hold for nothing, and nobody could remove it
        for own, owner, version in await fetch(
            connection, SLO["owner_of_objective"], {"namespace": namespace}
        ):
            raise NotInCellError(
                f"namespace {namespace or 'default'} lives in cell {owner}, and not in cell {own} (version {version} of the directory)"
            )
        found = [Objective(*row) for row in await fetch(connection, SLO["list_objectives"], {})]
        before = next((each for each in found if each.pattern == pattern), None)
        share, start_within = make(before)
        if before is None and not has_room([each.pattern for each in found]):
            raise TooManyObjectivesError
        if before is not None and (before.share, before.start_within) == (share, start_within):
            return before, before
        asked = {"pattern": pattern, "share": share, "start_within": start_within}
        (row,) = await fetch(connection, SLO["put_objective"], asked)
    return Objective(*row), before


async def delete_objectives(store: Store, patterns: Sequence[str]) -> set[str]:
    """Remove objectives; return the patterns that had one.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    rows = await store.run(SLO["delete_objectives"], {"patterns": texts(patterns)})
    return {pattern for (pattern,) in rows}
