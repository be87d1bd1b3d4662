"""Finds hosts that fell silent, and clocks that differ from the store's."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from duly_core.postgres.arrays import texts
from duly_core.postgres.pool import Store
from duly_core.problems.kinds import Kind, Severity
from duly_core.problems.problem import MOST_SHOWN, AboutHost, FoundProblem, found
from duly_core.problems.statements import PROBLEMS
from duly_core.process.wall_clock import LARGEST_SKEW

_MOST_HOSTS = 100
_MOST_LAMBDAS = 100
_MOST_COMPARED = 300
"""Lambdas of a host, by name: a worker that serves more may not be known to replace another."""


async def hosts_astray(
    store: Store,
    now: datetime,
    skewed_services: Sequence[AboutHost],
    explained: Collection[str] = (),
    *,
    has_hosts: bool = True,
) -> list[FoundProblem]:
    """Return one problem for all hosts that fell silent, and one for all clocks that differ.

    Silent hosts that are `explained` are left out: another problem says what their silence did. So are those that were
    replaced: as many workers that were started later on the same machine serve what they served. `has_hosts`: whether there may be any.

    Raises:
        StoreUnavailableError: ask again.
    """
    asked = {
        "largest_skew": LARGEST_SKEW,
        "explained": texts([*explained]),
        "most": _MOST_HOSTS,
        "most_lambdas": _MOST_COMPARED,
    }
    rows = await store.run(PROBLEMS["hosts_astray"], asked) if has_hosts else []
    hosts = [
        (state, AboutHost(host_id, name, "", reported_at, ahead))
        for _, state, host_id, name, reported_at, ahead in rows
    ]
    problems = []
    if silent := [host for state, host in hosts if state == "silent"]:
        since_at = min(host.reported_at for host in silent if host.reported_at is not None)
        lambdas = await lambdas_of(store, silent)
        number = max(row[0] for row in rows)
        problems.append(
            found(
                Kind.SILENT_HOSTS,
                Severity.WARNING,
                since_at,
                lambdas=lambdas,
                hosts=silent,
                number=number,
            )
        )
    skewed = [host for state, host in hosts if state != "silent"] + [*skewed_services]
    if skewed:
        problems.append(
            found(
                Kind.CLOCKS_APART,
                Severity.WARNING,
                now,
                lambdas=await lambdas_of(store, [host for host in skewed if host.host_id]),
                hosts=sorted(skewed, key=lambda host: -abs(host.clock_ahead or timedelta())),
            )
        )
    return problems


async def lambdas_of(store: Store, hosts: list[AboutHost]) -> dict[str, int]:
    """Return the lambdas that hosts serve, each with no tasks.

    Raises:
        StoreUnavailableError: ask again.
    """
    asked = {"host_ids": texts([host.host_id for host in hosts[:MOST_SHOWN]]), "most": _MOST_LAMBDAS}
    return {row[0]: 0 for row in await store.run(PROBLEMS["lambdas_of_hosts"], asked)}
